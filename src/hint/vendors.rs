//! The headers that vendors have made up to say when, and whether, to come back.

use std::time::Duration;

use http::StatusCode;
use http::header::HeaderMap;

use super::moment::{Clock, Moment};
use super::number::Decimal;
use super::{longest, members, milliseconds, rate_limit, text};

/// Headers that ask for a wait in milliseconds, as `retry-after-ms` does.
///
/// `x-amz-retry-after`: AWS SDKs. `grpc-retry-pushback-ms`: gRPC proposal A6, here for a server that answers with
/// trailers only.
pub(super) fn asked_milliseconds(headers: &HeaderMap) -> Option<Duration> {
    longest(headers, "x-amz-retry-after", milliseconds).or_else(|| match pushback(headers) {
        Some(Pushback::Wait(wait)) => Some(wait),
        Some(Pushback::Stop) | None => None,
    })
}

/// Whether the server says outright that another attempt is, or is not, worth it.
///
/// `x-should-retry`: `OpenAI` and Anthropic. `stripe-should-retry`: Stripe. Their SDKs let both overrule the status.
pub(super) fn should_retry(headers: &HeaderMap) -> Option<bool> {
    let says = |word: &str| {
        ["x-should-retry", "stripe-should-retry"]
            .iter()
            .flat_map(|name| headers.get_all(*name))
            .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
            .any(|value| value.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
    };
    // A stop beats everything: of the two mistakes, sending again is the one that can't be taken back.
    if says("false") || matches!(pushback(headers), Some(Pushback::Stop)) {
        Some(false)
    } else if says("true") {
        Some(true)
    } else {
        None
    }
}

enum Pushback {
    Wait(Duration),
    Stop,
}

/// A signed 32-bit number. The proposal reads whatever else it finds as the wish not to be asked again, and so do the
/// implementations with a second value.
fn pushback(headers: &HeaderMap) -> Option<Pushback> {
    let mut values = headers.get_all("grpc-retry-pushback-ms").iter();
    let first = values.next()?;
    let wait = text(first)
        .filter(|value| !value.starts_with('+') && values.next().is_none())
        .and_then(|value| value.parse::<i32>().ok())
        .and_then(|wait| u64::try_from(wait).ok());
    Some(wait.map_or(Pushback::Stop, |wait| {
        Pushback::Wait(Duration::from_millis(wait))
    }))
}

/// A header that says when a quota is refilled, and the one that says how much of it is left.
type Reset = (&'static str, &'static str);

/// Discord, which sends the time twice and wants this one read: it needs no clock.
const RESETS_AFTER: &[Reset] = &[("x-ratelimit-reset-after", "x-ratelimit-remaining")];

const RESETS: &[Reset] = &[
    // GitHub, Discord, Auth0, Smartsheet: Unix time. Reddit, Helix: seconds. Jira: a date without seconds.
    ("x-ratelimit-reset", "x-ratelimit-remaining"),
    // X: Unix time.
    ("x-rate-limit-reset", "x-rate-limit-remaining"),
    // The IETF's drafts 03 to 06: seconds. GitLab: Unix time, and the same again as an HTTP-date.
    ("ratelimit-reset", "ratelimit-remaining"),
    ("ratelimit-resettime", "ratelimit-remaining"),
    // OpenAI: Go durations. Azure OpenAI: seconds.
    (
        "x-ratelimit-reset-requests",
        "x-ratelimit-remaining-requests",
    ),
    ("x-ratelimit-reset-tokens", "x-ratelimit-remaining-tokens"),
    (
        "x-ratelimit-reset-tokens_usage_based",
        "x-ratelimit-remaining-tokens_usage_based",
    ),
    // Anthropic: RFC 3339, and for subscriptions a Unix time with a word instead of a number.
    (
        "anthropic-ratelimit-requests-reset",
        "anthropic-ratelimit-requests-remaining",
    ),
    (
        "anthropic-ratelimit-tokens-reset",
        "anthropic-ratelimit-tokens-remaining",
    ),
    (
        "anthropic-ratelimit-input-tokens-reset",
        "anthropic-ratelimit-input-tokens-remaining",
    ),
    (
        "anthropic-ratelimit-output-tokens-reset",
        "anthropic-ratelimit-output-tokens-remaining",
    ),
    (
        "anthropic-ratelimit-unified-reset",
        "anthropic-ratelimit-unified-status",
    ),
];

/// Atlassian announces limits that are not in force yet under this name.
const ANNOUNCED_RESETS: &[Reset] = &[("x-beta-ratelimit-reset", "x-beta-ratelimit-remaining")];

/// The wait until a quota is refilled that has nothing left: from the most precise statement to the vaguest.
pub(super) fn quota_wait(
    status: StatusCode,
    headers: &HeaderMap,
    clock: &Clock<'_>,
) -> Option<Duration> {
    let is_throttled = status == StatusCode::TOO_MANY_REQUESTS;
    let rate_limit = |name| rate_limit::wait(headers, name, clock);
    let retry_after = |name| longest(headers, name, |value| until_reset(value, clock));
    let reset = |resets| reset_wait(resets, is_throttled, headers, clock);
    rate_limit("ratelimit")
        // Who is not throttled has not met a limit that is only announced.
        .or_else(|| rate_limit("beta-ratelimit").filter(|_| is_throttled))
        // MailerLite: seconds.
        .or_else(|| retry_after("x-ratelimit-retry-after"))
        .or_else(|| reset(RESETS_AFTER))
        .or_else(|| reset(RESETS))
        .or_else(|| reset(ANNOUNCED_RESETS).filter(|_| is_throttled))
}

/// Reset times are sent with every answer; only a quota with nothing left has to do with why this one failed. One that
/// does not say what is left counts if the client was throttled and no other is known to be used up.
fn reset_wait(
    resets: &[Reset],
    is_throttled: bool,
    headers: &HeaderMap,
    clock: &Clock<'_>,
) -> Option<Duration> {
    let longest_of = |wanted: Left| {
        resets
            .iter()
            .filter(|(_, left)| Left::of(headers, left) == wanted)
            .filter_map(|(reset, _)| longest(headers, *reset, |value| until_reset(value, clock)))
            .max()
    };
    let unknown = || is_throttled.then(|| longest_of(Left::Unknown)).flatten();
    longest_of(Left::Nothing).or_else(unknown)
}

/// A reset time is rounded to seconds, or even to minutes, so that one which has passed says nothing.
fn until_reset(value: &str, clock: &Clock<'_>) -> Option<Duration> {
    let moment = Moment::parse_reset(value)?;
    // Nobody knows when a cached answer began to count.
    if matches!(moment, Moment::After(_)) && clock.is_from_cache() {
        return None;
    }
    Some(clock.until(moment)).filter(|wait| !wait.is_zero())
}

/// What is left of a quota.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    Nothing,
    Something,
    Unknown,
}

impl Left {
    fn of(headers: &HeaderMap, name: &str) -> Self {
        let values = headers.get_all(name).iter().filter_map(text);
        values
            .flat_map(members)
            .fold(Self::Unknown, |left, value| match (left, value) {
                (Self::Nothing, _) | (_, "rejected") => Self::Nothing,
                (_, "allowed" | "allowed_warning") => Self::Something,
                // Reddit counts in decimals. Azure's -1 stands for a number that it does not know.
                _ => match Decimal::parse(value) {
                    Some(number) if number.whole == 0 => Self::Nothing,
                    Some(_) => Self::Something,
                    None => left,
                },
            })
    }
}
