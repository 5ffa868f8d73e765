//! How long a retry may wait: the curve, its cap, and the sequence that the jitter draws from it.

use std::time::Duration;

use rand::{RngExt, SeedableRng};

use crate::jitter::{Dice, Jitter, Span};

/// Says how the delay grows from retry to retry, where it stops growing, and how it is jittered.
///
/// Delays are whole milliseconds, the resolution of tokio's timer: `base` and `cap` are rounded up to the next one. No
/// value is refused: a cap below the base is simply the longest delay, a base or a cap of zero means no delay, and
/// everything saturates.
///
/// # Default
///
/// Exponential, base 1 s, cap 30 s, factor 2, [`Jitter::Full`].
///
/// ```
/// use std::time::Duration;
/// use reqwest_jitter::{Backoff, Jitter};
///
/// const BACKOFF: Backoff =
///     Backoff::exponential(Duration::from_millis(200), Duration::from_secs(5)).with_jitter(Jitter::Equal);
///
/// assert_eq!(BACKOFF.ceiling(1), Duration::from_millis(200));
/// assert_eq!(BACKOFF.ceiling(4), Duration::from_millis(1600));
/// assert_eq!(BACKOFF.ceiling(u32::MAX), Duration::from_secs(5));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Backoff {
    pub(crate) curve: Curve,
    pub(crate) base: Duration,
    pub(crate) cap: Duration,
    pub(crate) factor: u32,
    pub(crate) jitter: Jitter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Curve {
    Exponential,
    Linear,
    Fixed,
}

impl Backoff {
    /// Creates a backoff of `min(cap, base * factor^(retry - 1))`, with factor 2 and [`Jitter::Full`].
    pub const fn exponential(base: Duration, cap: Duration) -> Self {
        Self {
            curve: Curve::Exponential,
            base,
            cap,
            factor: 2,
            jitter: Jitter::Full,
        }
    }

    /// Creates a backoff of `min(cap, base * retry)`, with [`Jitter::Full`].
    pub const fn linear(base: Duration, cap: Duration) -> Self {
        Self {
            curve: Curve::Linear,
            ..Self::exponential(base, cap)
        }
    }

    /// Creates a backoff that waits the same `delay` each time, with [`Jitter::None`].
    ///
    /// A crowd of clients with a fixed delay returns as a crowd; [`with_jitter`](Self::with_jitter) spreads it.
    pub const fn fixed(delay: Duration) -> Self {
        Self {
            curve: Curve::Fixed,
            jitter: Jitter::None,
            ..Self::exponential(delay, delay)
        }
    }

    /// Sets what the delay is multiplied with from retry to retry. Zero reads as 1. Default: 2.
    ///
    /// Only exponential backoffs have a use for it.
    pub const fn with_factor(self, factor: u32) -> Self {
        Self {
            factor: if factor == 0 { 1 } else { factor },
            ..self
        }
    }

    /// Sets how a delay is spread at random. Default: [`Jitter::Full`], and [`Jitter::None`] for
    /// [`fixed`](Self::fixed).
    pub const fn with_jitter(self, jitter: Jitter) -> Self {
        Self { jitter, ..self }
    }

    /// Returns the longest delay that a retry can meet. Retries are numbered from 1; 0 reads as 1.
    ///
    /// For [`Jitter::Decorrelated`] this is `min(cap, base * 3^retry)`, for every other jitter `min(cap, curve)`.
    #[must_use]
    pub fn ceiling(&self, retry: u32) -> Duration {
        let retry = retry.max(1);
        let longest = match self.jitter {
            Jitter::Decorrelated => self
                .base_ms()
                .saturating_mul(3_u64.saturating_pow(retry))
                .min(self.cap_ms()),
            _ => self.curve_ms(retry),
        };
        Duration::from_millis(longest)
    }

    /// Returns the delays of one imaginary call, retry after retry and without end, drawn from `seed`.
    ///
    /// For documentation, previews and simulations: the same seed gives the same delays everywhere, and they are those
    /// of the first failing call of a middleware built
    /// [`with_seed`](crate::JitteredRetryMiddleware::with_seed) with it.
    ///
    /// ```
    /// use reqwest_jitter::Backoff;
    ///
    /// let total: std::time::Duration = Backoff::default().delays(7).take(4).sum();
    /// assert!(total <= std::time::Duration::from_secs(1 + 2 + 4 + 8));
    /// ```
    pub fn delays(&self, seed: u64) -> impl Iterator<Item = Duration> + use<> {
        let backoff = *self;
        let mut schedule = Schedule::default();
        let mut dice = Dice::seed_from_u64(seed);
        let mut retry = 0_u32;
        std::iter::repeat_with(move || {
            retry = retry.saturating_add(1);
            schedule.next(backoff, retry, &mut dice)
        })
    }

    fn base_ms(&self) -> u64 {
        whole_milliseconds(self.base)
    }

    fn cap_ms(&self) -> u64 {
        whole_milliseconds(self.cap)
    }

    fn curve_ms(&self, retry: u32) -> u64 {
        let grown = match self.curve {
            Curve::Exponential => {
                let growth = u64::from(self.factor).saturating_pow(retry.saturating_sub(1));
                self.base_ms().saturating_mul(growth)
            }
            Curve::Linear => self.base_ms().saturating_mul(u64::from(retry)),
            Curve::Fixed => self.base_ms(),
        };
        grown.min(self.cap_ms())
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::exponential(Duration::from_secs(1), Duration::from_secs(30))
    }
}

/// The computed delays of one call. It remembers what decorrelated jitter grows from: the last *computed* delay, so
/// that a hint of an hour does not make the next guess three hours.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schedule {
    previous_ms: Option<u64>,
}

impl Schedule {
    /// Draws the delay of a retry, numbered from 1.
    pub(crate) fn next(&mut self, backoff: Backoff, retry: u32, dice: &mut Dice) -> Duration {
        let base = backoff.base_ms();
        let span = Span {
            ceiling: backoff.curve_ms(retry),
            base,
            cap: backoff.cap_ms(),
            previous: self.previous_ms.unwrap_or(base),
        };
        let delay = backoff.jitter.sample(span, dice);
        self.previous_ms = Some(delay);
        Duration::from_millis(delay)
    }
}

/// Rounds up: tokio's timer has this resolution and rounds up, too, so what is reported is what was slept.
pub(crate) fn whole_milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Draws `random(0, spread)` in whole milliseconds.
pub(crate) fn spread(spread: Duration, dice: &mut Dice) -> Duration {
    if spread.is_zero() {
        return Duration::ZERO;
    }
    Duration::from_millis(dice.random_range(0..=whole_milliseconds(spread)))
}
