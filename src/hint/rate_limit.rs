//! The `RateLimit` field of draft-ietf-httpapi-ratelimit-headers: the dictionary that draft 07 made of it
//! (`limit=10, remaining=0, reset=7`), and the list that it has been since draft 08 (`"daily";r=0;t=30`).
//!
//! Not a parser of structured fields (RFC 9651), which must refuse a whole field for one bad member: of what can't be
//! read here only the member is lost. What this needs of the grammar is where a member ends.

use std::time::Duration;

use http::header::HeaderMap;

use super::moment::{Clock, Moment};
use super::number::Decimal;
use super::text;

/// The longest time until a quota with nothing left is refilled.
pub(super) fn wait(headers: &HeaderMap, name: &str, clock: &Clock<'_>) -> Option<Duration> {
    // The drafts forbid it: a cached answer says how much somebody had left, some time ago.
    if clock.is_from_cache() {
        return None;
    }
    // The members of one dictionary may come on several lines, the parameters of an item may not.
    let mut dictionary = Quota::default();
    let mut longest = None;
    let lines = headers.get_all(name).iter().filter_map(text);
    for member in lines.flat_map(|line| split(line, ',')) {
        let mut parts = split(member, ';');
        let head = parts.next().unwrap_or_default();
        if head.starts_with('"') || !head.contains('=') {
            let mut item = Quota::default();
            parts.for_each(|parameter| item.set(parameter, "r", "t"));
            if !head.is_empty() {
                longest = longest.max(item.wait(clock));
            }
        } else {
            dictionary.set(head, "remaining", "reset");
        }
    }
    longest.max(dictionary.wait(clock))
}

#[derive(Default)]
struct Quota {
    remaining: Option<Decimal>,
    reset: Option<Decimal>,
}

impl Quota {
    /// Of several values of one key the last one counts, as everywhere in structured fields, and unknown keys don't.
    fn set(&mut self, pair: &str, remaining: &str, reset: &str) {
        match pair.split_once('=') {
            Some((key, value)) if key == remaining => self.remaining = integer(value),
            Some((key, value)) if key == reset => self.reset = integer(value),
            _ => {}
        }
    }

    fn wait(&self, clock: &Clock<'_>) -> Option<Duration> {
        let reset = self.reset?;
        (self.remaining?.whole == 0)
            .then(|| clock.until(Moment::of_number(reset)))
            .filter(|wait| !wait.is_zero())
    }
}

fn integer(value: &str) -> Option<Decimal> {
    Decimal::parse(value).filter(|_| !value.contains('.'))
}

/// Splits at a separator that is not within a quoted string.
fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    let mut is_escaped = false;
    text.split(move |c| {
        if is_escaped {
            is_escaped = false;
            return false;
        }
        match c {
            '\\' => is_escaped = is_quoted,
            '"' => is_quoted = !is_quoted,
            _ => return c == separator && !is_quoted,
        }
        false
    })
    .map(str::trim_ascii)
}
