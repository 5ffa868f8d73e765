//! What a server said about when to come back: header bytes in, a wait out.
//!
//! Nothing here fails. A value that can't be read is no hint, a number too large for its type is a very long wait, and
//! every fraction of a millisecond is rounded up, so that no hint is ever undercut.

mod moment;
mod number;
mod rate_limit;
mod vendors;

use std::time::{Duration, SystemTime};

use http::StatusCode;
use http::header::{AsHeaderName, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};

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
    known: Known,
    own: Vec<(HeaderName, HintUnit)>,
}

/// The headers that are read without being named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Nothing,
    Standard,
    Vendors,
}

/// A wait, and what it rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hint {
    pub(crate) wait: Duration,
    /// Whether the server asked for the wait, or only said when its quota is refilled. It says that with answers of
    /// all kinds, so that it does not mean that this request was turned away.
    pub(crate) is_asked_for: bool,
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
            known: Known::Nothing,
            own: Vec::new(),
        }
    }

    /// Creates hints that read `retry-after-ms`, `x-ms-retry-after-ms` and `Retry-After`. This is the default.
    pub const fn standard() -> Self {
        Self {
            known: Known::Standard,
            own: Vec::new(),
        }
    }

    /// Creates hints that read the headers of [`standard`](Self::standard), and those that vendors and the IETF's
    /// drafts have made up.
    ///
    /// | header | value | sent by |
    /// |---|---|---|
    /// | `x-amz-retry-after` | milliseconds | AWS |
    /// | `grpc-retry-pushback-ms` | milliseconds; negative or unreadable: stop | gRPC |
    /// | `RateLimit` | `"name";r=0;t=30` or `remaining=0, reset=30`, in seconds | IETF drafts from 07 on, Cloudflare |
    /// | `Beta-RateLimit` | the same, on a 429 | Atlassian |
    /// | `X-RateLimit-Retry-After` | seconds | `MailerLite` |
    /// | `X-RateLimit-Reset-After` | seconds | Discord |
    /// | `X-RateLimit-Reset` | Unix time | GitHub, Discord, Auth0, Smartsheet |
    /// | `X-RateLimit-Reset` | seconds | Reddit, Helix |
    /// | `X-RateLimit-Reset` | `2026-03-26T16:00Z` | Jira |
    /// | `x-rate-limit-reset` | Unix time | X |
    /// | `RateLimit-Reset` | seconds | IETF drafts 03 to 06 |
    /// | `RateLimit-Reset`, `RateLimit-ResetTime` | Unix time, HTTP-date | GitLab |
    /// | `x-ratelimit-reset-requests`, `-tokens`, `-tokens_usage_based` | `6m0s` | `OpenAI` |
    /// | the same | seconds | Azure `OpenAI` |
    /// | `anthropic-ratelimit-requests-reset`, `-tokens-`, `-input-tokens-`, `-output-tokens-` | RFC 3339 | Anthropic |
    /// | `anthropic-ratelimit-unified-reset` | Unix time | Anthropic |
    /// | `X-Beta-RateLimit-Reset` | `2026-03-26T16:00Z`, on a 429 | Jira |
    /// | `x-should-retry` | `true`: go, `false`: stop | `OpenAI`, Anthropic |
    /// | `stripe-should-retry` | `true`: go, `false`: stop | Stripe |
    ///
    /// Every reset header takes all of these forms, whoever sends it; a number is told from a Unix time by its size. A
    /// time that has passed, and a number of seconds in a response out of a cache, is no hint.
    ///
    /// The headers in milliseconds come first, then `Retry-After`, then the two `RateLimit` fields,
    /// `X-RateLimit-Retry-After`, `X-RateLimit-Reset-After`, and last the other resets. Nothing makes the wait shorter
    /// than `Retry-After`. A quota is heeded only where nothing is left of it (`r=0`, or 0 in the `remaining` header
    /// that belongs to the reset), or, on a 429, where nothing says what is left; of several the longest counts.
    ///
    /// Stop and go are what [`Attempt::should_retry`](crate::Attempt::should_retry) returns. Of the two, stop wins.
    pub const fn vendors() -> Self {
        Self {
            known: Known::Vendors,
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
    pub(crate) fn read(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        now: SystemTime,
    ) -> Option<Hint> {
        let clock = Clock { headers, now };
        if let Some(wait) = self.asked_wait(headers, &clock) {
            return Some(Hint {
                wait,
                is_asked_for: true,
            });
        }
        if self.known != Known::Vendors {
            return None;
        }
        let wait = vendors::quota_wait(status, headers, &clock)?;
        Some(Hint {
            wait,
            is_asked_for: false,
        })
    }

    /// Reads the server's word on whether to try again, where it has one.
    pub(crate) fn should_retry(&self, headers: &HeaderMap) -> Option<bool> {
        match self.known {
            Known::Vendors => vendors::should_retry(headers),
            Known::Standard | Known::Nothing => None,
        }
    }

    fn asked_wait(&self, headers: &HeaderMap, clock: &Clock<'_>) -> Option<Duration> {
        let own = self
            .own
            .iter()
            .find_map(|(name, unit)| longest(headers, name, |value| unit.read(value, clock)));
        if self.known == Known::Nothing {
            return own;
        }
        let precise = own
            .or_else(|| longest(headers, &RETRY_AFTER_MS, milliseconds))
            .or_else(|| longest(headers, &X_MS_RETRY_AFTER_MS, milliseconds))
            .or_else(|| match self.known {
                Known::Vendors => vendors::asked_milliseconds(headers),
                Known::Standard | Known::Nothing => None,
            });
        let retry_after = longest(headers, &RETRY_AFTER, |value| wait_until(value, clock));
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
    name: impl AsHeaderName,
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
