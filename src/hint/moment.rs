//! The moments that servers name, and the clock that they are counted from.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{AGE, DATE, HeaderMap};

use super::number::{Decimal, MICROSECOND, MILLISECOND, SECOND, round_up};
use super::text;

/// When to come back.
#[derive(Clone, Copy, Debug)]
pub(super) enum Moment {
    /// So long after the response was made.
    After(Duration),
    At(SystemTime),
}

const FIRST_EPOCH_SECOND: u64 = 1_000_000_000;
const FIRST_EPOCH_MILLISECOND: u64 = 100_000_000_000;
const FIRST_EPOCH_MICROSECOND: u64 = 100_000_000_000_000;

impl Moment {
    /// Reads what `Retry-After` may hold: a number, or an HTTP-date.
    pub(super) fn parse(value: &str) -> Option<Self> {
        match Decimal::parse(value) {
            Some(number) => Some(Self::of_number(number)),
            None => http_date(value).map(Self::At),
        }
    }

    /// Servers do send Unix times where a number of seconds belongs. Nobody asks for a wait of thirty years, and
    /// nobody's clock is in the years before 2001, so the size of the number tells one from the other.
    fn of_number(number: Decimal) -> Self {
        let unit = match number.whole {
            ..FIRST_EPOCH_SECOND => return Self::After(number.times(SECOND)),
            FIRST_EPOCH_SECOND..FIRST_EPOCH_MILLISECOND => SECOND,
            FIRST_EPOCH_MILLISECOND..FIRST_EPOCH_MICROSECOND => MILLISECOND,
            FIRST_EPOCH_MICROSECOND.. => MICROSECOND,
        };
        UNIX_EPOCH
            .checked_add(number.times(unit))
            .map_or(Self::After(Duration::MAX), Self::At)
    }
}

/// What moments are counted from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock<'a> {
    pub(super) headers: &'a HeaderMap,
    pub(super) now: SystemTime,
}

impl Clock<'_> {
    /// The wait until a moment, zero if it has passed.
    pub(super) fn until(&self, moment: Moment) -> Duration {
        round_up(match moment {
            Moment::After(wait) => wait,
            Moment::At(then) => then
                .duration_since(self.reference())
                .unwrap_or(Duration::ZERO),
        })
    }

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
    date.checked_add(SECOND)
}
