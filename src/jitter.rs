//! Where in its range a delay falls.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, RngExt};

/// The one generator of this crate. A portable one, so that a seed means the same delays on every machine.
pub(crate) type Dice = Xoshiro256PlusPlus;

/// Says how a computed delay is spread at random, so that clients which failed together do not return together.
///
/// With `t = min(cap, base * factor^(retry - 1))`, in whole milliseconds and with both ends included:
///
/// | jitter | delay |
/// |---|---|
/// | `None` | `t` |
/// | `Full` | `random(0, t)` |
/// | `Equal` | `random(ceil(t / 2), t)` |
/// | `Decorrelated` | `min(cap, random(base, previous * 3))`, where `previous` starts at `base` |
///
/// The default is [`Full`](Jitter::Full): of the formulae that grow by a factor it sends the fewest requests into a
/// contended host. The names and the formulae are those of Marc Brooker's "Exponential Backoff And Jitter" (AWS
/// Architecture Blog, 2015). A wait that the server asked for is never jittered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Jitter {
    /// No spread at all: clients that failed together return together. For tests, and for a client that is alone.
    None,
    /// Anywhere from no wait at all to the whole backoff. The widest spread.
    #[default]
    Full,
    /// At least half of the backoff, the other half at random. For callers that want a floor under every wait.
    Equal,
    /// Grows from the delay drawn before instead of from the attempt's number, and never falls below the base. The
    /// factor of the backoff has no part in it.
    Decorrelated,
}

/// What a draw depends on, in whole milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// `min(cap, curve)` of the retry that is due.
    pub(crate) ceiling: u64,
    pub(crate) base: u64,
    pub(crate) cap: u64,
    /// The last computed delay, or the base before the first.
    pub(crate) previous: u64,
}

impl Jitter {
    /// Draws one delay in milliseconds, at most `span.cap`.
    pub(crate) fn sample(self, span: Span, dice: &mut impl Rng) -> u64 {
        let delay = match self {
            Self::None => span.ceiling,
            Self::Full => dice.random_range(0..=span.ceiling),
            Self::Equal => dice.random_range(span.ceiling.div_ceil(2)..=span.ceiling),
            Self::Decorrelated => {
                // A cap below the base leaves a `previous` below it; the range must still not be empty.
                let longest = span.previous.saturating_mul(3).max(span.base);
                dice.random_range(span.base..=longest)
            }
        };
        // The cap is the last step for every jitter: cutting the range instead would move the mean.
        delay.min(span.cap)
    }
}
