//! What a server said about when to come back: header bytes in, a wait out.
//!
//! Nothing here fails. A value that can't be read is no hint, a number too large for its type is a very long wait, and
//! every fraction of a millisecond is rounded up, so that no hint is ever undercut.

mod moment;
mod number;

use std::time::{Duration, SystemTime};

use http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};

use self::moment::{Clock, Moment};
use self::number::{Decimal, MILLISECOND, round_up};

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
        let retry_after = longest(headers, &RETRY_AFTER, |value| wait_until(value, &clock));
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
            Self::Seconds => wait_until(value, clock),
            Self::Milliseconds => milliseconds(value),
        }
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
fn wait_until(value: &str, clock: &Clock<'_>) -> Option<Duration> {
    Moment::parse(value).map(|moment| clock.until(moment))
}

fn milliseconds(value: &str) -> Option<Duration> {
    Decimal::parse(value).map(|number| round_up(number.times(MILLISECOND)))
}
