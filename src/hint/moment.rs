//! The moments that servers name, and the clock that they are counted from.

use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{AGE, DATE, HeaderMap};

use super::number::{Decimal, MICROSECOND, MILLISECOND, SECOND, go_duration, round_up};
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

    /// Reads what vendors put into their reset headers: the same, a Go duration, or a date of RFC 3339.
    pub(super) fn parse_reset(value: &str) -> Option<Self> {
        Self::parse(value)
            .or_else(|| go_duration(value).map(Self::After))
            .or_else(|| rfc3339(value).map(Self::At))
    }

    /// Servers do send Unix times where a number of seconds belongs. Nobody asks for a wait of thirty years, and
    /// nobody's clock is in the years before 2001, so the size of the number tells one from the other.
    pub(super) fn of_number(number: Decimal) -> Self {
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

    pub(super) fn is_from_cache(&self) -> bool {
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

/// Reads a date and time of RFC 3339 from 1970 on; what was before has passed anyway. The seconds may be missing, as
/// ISO 8601 allows and Jira does. Without an offset from UTC it names no moment.
// By hand, since a calendar crate is larger than this whole one, and all that is needed of the calendar is its leap
// years.
fn rfc3339(value: &str) -> Option<SystemTime> {
    let (date, time) = value.split_once(['T', 't'])?;
    let (time, is_ahead, offset) = if let Some(time) = time.strip_suffix(['Z', 'z']) {
        (time, true, "00:00")
    } else {
        let (time, offset) = time.split_at_checked(time.rfind(['+', '-'])?)?;
        (time, offset.starts_with('+'), offset.get(1..)?)
    };
    let (offset, rest) = hours_and_minutes(offset)?;
    let (since_midnight, seconds) = hours_and_minutes(time)?;
    let seconds = match (rest, seconds) {
        (Some(_), _) => return None,
        (None, None) => Duration::ZERO,
        (None, Some(seconds)) => {
            let whole = seconds.split_once('.').map_or(seconds, |(whole, _)| whole);
            digits(whole, 2, 0..=60)?;
            Decimal::parse(seconds)?.times(SECOND)
        }
    };
    let days = Duration::from_secs(days_since_epoch(date)?.saturating_mul(86_400));
    let local = UNIX_EPOCH
        .checked_add(days)?
        .checked_add(since_midnight)?
        .checked_add(seconds)?;
    if is_ahead {
        local.checked_sub(offset)
    } else {
        local.checked_add(offset)
    }
}

/// Reads `HH:MM`, and leaves what follows another colon.
fn hours_and_minutes(text: &str) -> Option<(Duration, Option<&str>)> {
    let mut fields = text.splitn(3, ':');
    let hours = digits(fields.next()?, 2, 0..=23)?;
    let minutes = digits(fields.next()?, 2, 0..=59)?;
    let seconds = hours
        .saturating_mul(60)
        .saturating_add(minutes)
        .saturating_mul(60);
    Some((Duration::from_secs(seconds), fields.next()))
}

/// The days between 1970-01-01 and a date of the Gregorian calendar.
fn days_since_epoch(date: &str) -> Option<u64> {
    const MONTHS: [u64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    const LEAP_DAYS_BEFORE_1970: u64 = 477;

    let mut fields = date.splitn(3, '-');
    let year = digits(fields.next()?, 4, 1970..=9999)?;
    let month = digits(fields.next()?, 2, 1..=12)?;
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let months = (1_u64..).zip(MONTHS).map(|(number, days)| {
        let leap_day = u64::from(is_leap && number == 2);
        (number, days.saturating_add(leap_day))
    });
    let length = months.clone().find(|(number, _)| *number == month)?.1;
    let day = digits(fields.next()?, 2, 1..=length)?;

    let last = year.saturating_sub(1);
    let leap_days = (last / 4)
        .saturating_add(last / 400)
        .saturating_sub(last / 100)
        .saturating_sub(LEAP_DAYS_BEFORE_1970);
    let earlier_months = months
        .take_while(|(number, _)| *number < month)
        .map(|(_, days)| days)
        .sum::<u64>();
    let days = year
        .saturating_sub(1970)
        .saturating_mul(365)
        .saturating_add(leap_days)
        .saturating_add(earlier_months)
        .saturating_add(day.saturating_sub(1));
    Some(days)
}

/// Reads exactly so many digits: within these ranges and widths there is no room for a fraction.
fn digits(text: &str, width: usize, range: RangeInclusive<u64>) -> Option<u64> {
    let number = Decimal::parse(text).filter(|_| text.len() == width)?;
    range.contains(&number.whole).then_some(number.whole)
}
