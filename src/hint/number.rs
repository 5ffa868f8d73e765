//! Unsigned numbers as servers write them, and durations made of them. Every function is total.

use std::time::Duration;

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MILLISECOND: Duration = Duration::from_millis(1);
pub(super) const MICROSECOND: Duration = Duration::from_micros(1);

const BILLION: u128 = 1_000_000_000;

/// An unsigned decimal number as its whole part and its billionths, the latter rounded up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decimal {
    pub(super) whole: u64,
    billionths: u32,
}

impl Decimal {
    /// Reads `1*DIGIT [ "." 1*DIGIT ]`. Not `str::parse`, which takes a sign, and not a float, which takes `nan`.
    pub(super) fn parse(value: &str) -> Option<Self> {
        let (whole, fraction) = value.split_once('.').unwrap_or((value, "0"));
        let are_digits =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !are_digits(whole) || !are_digits(fraction) {
            return None;
        }
        let digit = |byte: u8| u64::from(byte.wrapping_sub(b'0'));
        let whole = whole.bytes().fold(0_u64, |number, byte| {
            number.saturating_mul(10).saturating_add(digit(byte))
        });
        let digits = fraction.bytes().chain(std::iter::repeat(b'0')).take(9);
        let billionths = digits.fold(0_u64, |number, byte| {
            number.saturating_mul(10).saturating_add(digit(byte))
        });
        let is_cut = fraction.bytes().skip(9).any(|byte| byte != b'0');
        let billionths = billionths.saturating_add(u64::from(is_cut));
        Some(Self {
            whole,
            billionths: u32::try_from(billionths).unwrap_or(u32::MAX),
        })
    }

    /// So many of a unit, rounded up to the next nanosecond; what does not fit is a very long time.
    pub(super) fn times(self, unit: Duration) -> Duration {
        let billionths = u128::from(self.whole)
            .saturating_mul(BILLION)
            .saturating_add(u128::from(self.billionths));
        let nanos = billionths.saturating_mul(unit.as_nanos()).div_ceil(BILLION);
        match (
            u64::try_from(nanos / BILLION),
            u32::try_from(nanos % BILLION),
        ) {
            (Ok(seconds), Ok(nanos)) => Duration::new(seconds, nanos),
            _ => Duration::MAX,
        }
    }
}

/// Reads what Go's `time.Duration` prints (`6m0s`, `12ms`, `1h2m3.5s`), without its sign.
pub(super) fn go_duration(value: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = value;
    while !rest.is_empty() {
        let (number, after) = split_before(rest, |c| !c.is_ascii_digit() && c != '.');
        let (unit, after) = split_before(after, |c| c.is_ascii_digit());
        let unit = match unit {
            "h" => Duration::from_secs(3600),
            "m" => Duration::from_secs(60),
            "s" => SECOND,
            "ms" => MILLISECOND,
            // As ASCII, with the micro sign, and with the Greek letter.
            "us" | "\u{b5}s" | "\u{3bc}s" => MICROSECOND,
            "ns" => Duration::from_nanos(1),
            _ => return None,
        };
        total = total.saturating_add(Decimal::parse(number)?.times(unit));
        rest = after;
    }
    (!value.is_empty()).then_some(total)
}

fn split_before(text: &str, is_next: impl Fn(char) -> bool) -> (&str, &str) {
    text.find(is_next)
        .and_then(|at| text.split_at_checked(at))
        .unwrap_or((text, ""))
}

/// To whole milliseconds, the resolution of the timer.
pub(super) fn round_up(wait: Duration) -> Duration {
    match wait.subsec_nanos() % 1_000_000 {
        0 => wait,
        part => wait.saturating_add(Duration::from_nanos(u64::from(
            1_000_000_u32.saturating_sub(part),
        ))),
    }
}
