//! What a server said about when to come back: header bytes in, a wait out.
//!
//! Nothing here fails. A value that can't be read is no hint, a number too large for its type is a very long wait, and
//! every fraction of a millisecond is rounded up, so that no hint is ever undercut.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{AGE, DATE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};

/// Names the response headers that are read for the wait a server asked for.
///
/// A hint overrides the computed delay as it is: never earlier, never jittered, never clamped. It is looked for on
/// every response that is about to be retried, whatever its status; it never makes a response retryable.
///
/// | value | reads as |
/// |---|---|
/// | `120`, `0.503`, `2.0` | seconds from now |
/// | 1e9 and more | a Unix time in seconds, from 1e11 in milliseconds, from 1e14 in microseconds |
/// | an HTTP-date in any of its three forms, second `:60` included | that moment, counted from the response's own `Date` |
/// | a sign, `nan`, `inf`, letters, digits that are not ASCII | no hint |
///
/// A date is compared with the local clock instead where `Date` is missing or unreadable, or where `Age` says that the
/// response comes out of a cache. Of several values of one header the longest counts. Where two headers disagree, the
/// more precise one counts, but never for less than `Retry-After`.
///
/// Sources: RFC 9110 sections 10.2.3 (`Retry-After`) and 5.6.7 (HTTP-date).
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct DelayHints {
    standard: bool,
    own: Vec<(HeaderName, HintUnit)>,
}

/// Says what a number in a header of one's own counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HintUnit {
    /// Seconds, or from 1e9 on a Unix time; HTTP-dates are read, too.
    Seconds,
    /// Milliseconds from now.
    Milliseconds,
}

const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
const X_MS_RETRY_AFTER_MS: HeaderName = HeaderName::from_static("x-ms-retry-after-ms");

impl DelayHints {
    /// Creates hints that read no header: every delay is computed.
    pub const fn none() -> Self {
        Self {
            standard: false,
            own: Vec::new(),
        }
    }

    /// Creates hints that read `retry-after-ms`, `x-ms-retry-after-ms` and `Retry-After`. This is the default.
    pub const fn standard() -> Self {
        Self {
            standard: true,
            own: Vec::new(),
        }
    }

    /// Adds a header of one's own, which comes before all others; of several, the first that can be read counts.
    pub fn with_header(mut self, name: HeaderName, unit: HintUnit) -> Self {
        self.own.push((name, unit));
        self
    }

    /// Reads the wait that a response asks for. `now` is the local clock, and is used only where the response's own
    /// can't be.
    pub(crate) fn read(&self, headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
        let clock = Clock { headers, now };
        let own = self
            .own
            .iter()
            .find_map(|(name, unit)| longest(headers, name, |value| unit.read(value, &clock)));
        if !self.standard {
            return own;
        }
        let precise = own
            .or_else(|| longest(headers, &RETRY_AFTER_MS, milliseconds))
            .or_else(|| longest(headers, &X_MS_RETRY_AFTER_MS, milliseconds));
        let retry_after = longest(headers, &RETRY_AFTER, |value| moment(value, &clock));
        // `None` is the smallest `Option`, so this is "the longer of those that are there".
        precise.max(retry_after)
    }
}

impl Default for DelayHints {
    fn default() -> Self {
        Self::standard()
    }
}

impl HintUnit {
    fn read(self, value: &str, clock: &Clock<'_>) -> Option<Duration> {
        match self {
            Self::Seconds => moment(value, clock),
            Self::Milliseconds => milliseconds(value),
        }
    }
}

/// The moment that absolute times are counted from.
struct Clock<'a> {
    headers: &'a HeaderMap,
    now: SystemTime,
}

impl Clock<'_> {
    /// The server's own time where the response carries it, which makes a wait independent of how wrong the local
    /// clock is; but the `Date` of a response out of a cache is as old as the response.
    fn reference(&self) -> SystemTime {
        if self.is_from_cache() {
            return self.now;
        }
        self.headers
            .get(DATE)
            .and_then(text)
            .and_then(http_date)
            .unwrap_or(self.now)
    }

    fn is_from_cache(&self) -> bool {
        // An age of zero says that the response was made just now, so that its `Date` is as good as new.
        self.headers
            .get(AGE)
            .is_some_and(|age| age.as_bytes() != b"0")
    }

    fn until(&self, then: SystemTime) -> Duration {
        let wait = then
            .duration_since(self.reference())
            .unwrap_or(Duration::ZERO);
        round_up(wait)
    }
}

/// The longest of the values of one header that can be read.
fn longest(
    headers: &HeaderMap,
    name: &HeaderName,
    read: impl Fn(&str) -> Option<Duration>,
) -> Option<Duration> {
    headers
        .get_all(name)
        .iter()
        .filter_map(text)
        .flat_map(members)
        .filter_map(read)
        .max()
}

fn text(value: &HeaderValue) -> Option<&str> {
    std::str::from_utf8(value.as_bytes()).ok()
}

/// What a value may stand for once a proxy has joined several lines into one: itself, and what lies between its
/// commas, one member or two of them, since an HTTP-date has a comma of its own.
fn members(value: &str) -> impl Iterator<Item = &str> {
    // Only ", " joins: "0,5" is somebody's decimal and must not read as five seconds.
    let starts = std::iter::once(0).chain(
        value
            .match_indices(", ")
            .map(|(at, comma)| at.saturating_add(comma.len())),
    );
    starts
        .flat_map(move |start| {
            let rest = value.get(start..).unwrap_or_default();
            let mut ends = rest.match_indices(", ").map(|(at, _)| at);
            let one = ends.next();
            let two = ends.next().unwrap_or(rest.len());
            [
                rest.get(..one.unwrap_or(rest.len())),
                one.and_then(|_| rest.get(..two)),
            ]
        })
        .flatten()
        .map(str::trim_ascii)
}

/// A number of seconds, a Unix time, or an HTTP-date, as a wait from now.
fn moment(value: &str, clock: &Clock<'_>) -> Option<Duration> {
    match Decimal::parse(value) {
        Some(number) => Some(number.as_seconds_or_epoch(clock)),
        None => http_date(value).map(|then| clock.until(then)),
    }
}

fn milliseconds(value: &str) -> Option<Duration> {
    Decimal::parse(value).map(Decimal::as_milliseconds)
}

/// An unsigned decimal number as its whole part and its billionths, the latter rounded up.
#[derive(Clone, Copy)]
struct Decimal {
    whole: u64,
    billionths: u32,
}

const FIRST_EPOCH_SECOND: u64 = 1_000_000_000;
const FIRST_EPOCH_MILLISECOND: u64 = 100_000_000_000;
const FIRST_EPOCH_MICROSECOND: u64 = 100_000_000_000_000;

impl Decimal {
    /// Reads `1*DIGIT [ "." 1*DIGIT ]`. Not `str::parse`, which takes a sign, and not a float, which takes `nan`.
    fn parse(value: &str) -> Option<Self> {
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

    /// Servers do send Unix times where a number of seconds belongs. Nobody asks for a wait of thirty years, and
    /// nobody's clock is in the years before 2001, so the size of the number tells one from the other.
    fn as_seconds_or_epoch(self, clock: &Clock<'_>) -> Duration {
        let since_epoch = match self.whole {
            ..FIRST_EPOCH_SECOND => return round_up(self.as_seconds()),
            FIRST_EPOCH_SECOND..FIRST_EPOCH_MILLISECOND => self.as_seconds(),
            FIRST_EPOCH_MILLISECOND..FIRST_EPOCH_MICROSECOND => self.as_milliseconds(),
            FIRST_EPOCH_MICROSECOND.. => self.as_microseconds(),
        };
        match UNIX_EPOCH.checked_add(since_epoch) {
            Some(then) => clock.until(then),
            None => Duration::MAX,
        }
    }

    fn as_seconds(self) -> Duration {
        Duration::from_secs(self.whole)
            .saturating_add(Duration::from_nanos(u64::from(self.billionths)))
    }

    fn as_milliseconds(self) -> Duration {
        Duration::from_millis(self.rounded_up())
    }

    fn as_microseconds(self) -> Duration {
        Duration::from_micros(self.rounded_up())
    }

    fn rounded_up(self) -> u64 {
        self.whole.saturating_add(u64::from(self.billionths > 0))
    }
}

/// All three forms that RFC 9110 section 5.6.7 asks a recipient to take, and the leap second that its grammar allows.
fn http_date(value: &str) -> Option<SystemTime> {
    if let Ok(date) = httpdate::parse_http_date(value) {
        return Some(date);
    }
    let (before, after) = value.rsplit_once(":60")?;
    if !before.contains(':') {
        // A minute of 60, which no grammar allows.
        return None;
    }
    let date = httpdate::parse_http_date(&format!("{before}:59{after}")).ok()?;
    date.checked_add(Duration::from_secs(1))
}

/// To whole milliseconds, the resolution of the timer.
fn round_up(wait: Duration) -> Duration {
    match wait.subsec_nanos() % 1_000_000 {
        0 => wait,
        part => wait.saturating_add(Duration::from_nanos(u64::from(
            1_000_000_u32.saturating_sub(part),
        ))),
    }
}
