//! Exact token arithmetic. It reads no clock: the time that has passed is passed in.

use std::time::Duration;

/// What fills a bucket, and how far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rates {
    pub(crate) burst: u32,
    pub(crate) reserve_per_sec: u32,
    /// What one deposit is worth, in hundredths of a token.
    pub(crate) extra_load_percent: u32,
}

/// So fine that a per cent, and a token per second during one nanosecond, are whole numbers of it.
const UNITS_PER_HUNDREDTH: u128 = 1_000_000_000;
const HUNDREDTHS_PER_TOKEN: u128 = 100;
const UNITS_PER_TOKEN: u128 = HUNDREDTHS_PER_TOKEN * UNITS_PER_HUNDREDTH;

/// The tokens of one origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    units: u128,
}

impl Rates {
    /// A bucket nobody has taken anything from, with the deposit of the call that is about to ask.
    pub(crate) fn full_bucket(self) -> Bucket {
        Bucket {
            units: tokens(self.burst).saturating_add(self.deposit()),
        }
    }

    /// One deposit more than the burst: were the bucket cut to the burst itself, the fraction of a token that is left
    /// over from each deposit would be lost, and 30 % would grant a quarter.
    fn capacity(self) -> u128 {
        tokens(self.burst.max(1)).saturating_add(self.deposit())
    }

    fn deposit(self) -> u128 {
        u128::from(self.extra_load_percent).saturating_mul(UNITS_PER_HUNDREDTH)
    }
}

impl Bucket {
    /// Adds what came in, and what the reserve yielded in the time that passed.
    pub(crate) fn fill(&mut self, rates: Rates, hundredths: u64, elapsed: Duration) {
        let deposited = u128::from(hundredths).saturating_mul(UNITS_PER_HUNDREDTH);
        let reserve = elapsed
            .as_nanos()
            .saturating_mul(u128::from(rates.reserve_per_sec))
            .saturating_mul(HUNDREDTHS_PER_TOKEN);
        let filled = self.units.saturating_add(deposited).saturating_add(reserve);
        self.units = filled.min(rates.capacity());
    }

    /// Takes one token, if there is a whole one.
    pub(crate) fn withdraw(&mut self) -> bool {
        match self.units.checked_sub(UNITS_PER_TOKEN) {
            Some(left) => {
                self.units = left;
                true
            }
            None => false,
        }
    }

    /// How many whole tokens are missing from a full bucket.
    pub(crate) fn missing(&self, rates: Rates) -> u32 {
        let missing = tokens(rates.burst)
            .saturating_sub(self.units)
            .div_ceil(UNITS_PER_TOKEN);
        u32::try_from(missing).unwrap_or(u32::MAX)
    }
}

fn tokens(count: u32) -> u128 {
    u128::from(count).saturating_mul(UNITS_PER_TOKEN)
}
