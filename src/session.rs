//! Decides, outcome by outcome, how one call goes on. It neither sends nor sleeps, and reads no clock.

use std::time::Duration;

use http::{Method, StatusCode};
use reqwest::Request;
use tokio::time::Instant;

use crate::backoff::Schedule;
use crate::classify::{Cause, Effect, Verdict};
use crate::jitter::Dice;
use crate::origin::Origin;
use crate::policy::{Replay, Terms};
use crate::report::{DelaySource, Record, RetryEvent, RetryReport, StopReason};

/// One call, from its first failure on.
#[derive(Debug)]
pub(crate) struct Session {
    terms: Terms,
    origin: Origin,
    replay: Replayability,
    started: Option<Instant>,
    attempt: u32,
    schedule: Schedule,
    /// Whether the server's last word was "now".
    was_told_now: bool,
    dice: Dice,
    record: Record,
}

/// What is known of the request itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Replayability {
    pub(crate) is_idempotent: bool,
    /// Whether there is a body that can be sent again, or none.
    pub(crate) has_replayable_body: bool,
}

/// An outcome, as far as the decision depends on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) verdict: Verdict,
    pub(crate) hint: Option<Duration>,
    pub(crate) status: Option<StatusCode>,
}

#[derive(Clone, Debug)]
pub(crate) enum Decision {
    /// Wait, then send again; if the budget allows it.
    Retry(RetryEvent),
    Stop(StopReason),
}

impl Session {
    /// `started` is needed only where the terms limit the elapsed time.
    pub(crate) fn new(
        terms: Terms,
        origin: Origin,
        replay: Replayability,
        started: Option<Instant>,
        dice: Dice,
    ) -> Self {
        Self {
            terms,
            origin,
            replay,
            started,
            attempt: 1,
            schedule: Schedule::default(),
            was_told_now: false,
            dice,
            record: Record::default(),
        }
    }

    /// Decides what follows the outcome of the current attempt.
    pub(crate) fn decide(&mut self, outcome: Outcome, now: Instant) -> Decision {
        match outcome.verdict {
            Verdict::Accept => Decision::Stop(StopReason::Accepted),
            Verdict::Reject => Decision::Stop(StopReason::Rejected),
            Verdict::Retry {
                cause,
                effect,
                after,
            } => {
                self.record.last_cause = Some(cause);
                match self.plan(effect, after, outcome.hint, now) {
                    Ok((delay, source)) => {
                        Decision::Retry(self.event(cause, outcome.status, delay, source))
                    }
                    Err(stop) => Decision::Stop(stop),
                }
            }
        }
    }

    /// Notes that a retry was waited for.
    pub(crate) fn waited(&mut self, event: RetryEvent) {
        self.record.slept = self.record.slept.saturating_add(event.delay);
        // Most calls need one retry, and a vector that grows by itself begins with room for four.
        if self.record.history.is_empty() {
            self.record.history.reserve_exact(1);
        }
        self.record.history.push(event);
    }

    /// Notes that the next attempt is sent, and returns its number.
    pub(crate) fn begin_attempt(&mut self) -> u32 {
        self.attempt = self.attempt.saturating_add(1);
        self.attempt
    }

    /// Notes that the attempt that had begun never left.
    pub(crate) fn was_not_sent(&mut self) {
        self.attempt = self.attempt.saturating_sub(1);
    }

    /// The last moment at which a retry may begin, as far as `max_elapsed` says.
    pub(crate) fn latest_begin(&self) -> Option<Instant> {
        self.started?.checked_add(self.terms.policy.max_elapsed?)
    }

    /// Whether another attempt may follow the next one.
    pub(crate) fn may_follow_next(&self) -> bool {
        self.attempt.saturating_add(1) < self.terms.policy.max_attempts
    }

    pub(crate) fn max_attempts(&self) -> u32 {
        self.terms.policy.max_attempts
    }

    pub(crate) fn close(self, stop: StopReason) -> RetryReport {
        self.record.close(self.origin, self.attempt, stop)
    }

    /// Whether, and after which delay, the next attempt may begin.
    fn plan(
        &mut self,
        effect: Effect,
        after: Option<Duration>,
        hint: Option<Duration>,
        now: Instant,
    ) -> Result<(Duration, DelaySource), StopReason> {
        if !self.may_replay(effect) {
            return Err(StopReason::NotReplayable);
        }
        if self.attempt >= self.terms.policy.max_attempts {
            return Err(StopReason::AttemptsExhausted);
        }
        let (delay, source) = self.delay(after, hint)?;
        if self.ends_too_late(delay, now) {
            return Err(StopReason::ElapsedExhausted);
        }
        Ok((delay, source))
    }

    fn may_replay(&self, effect: Effect) -> bool {
        let is_harmless = match self.terms.policy.replay {
            Replay::IdempotentOnly => self.replay.is_idempotent,
            Replay::WhenUnprocessed => self.replay.is_idempotent || effect == Effect::None,
            Replay::Always => true,
        };
        self.replay.has_replayable_body && is_harmless
    }

    /// The delay as it will be slept and reported: it is computed once.
    fn delay(
        &mut self,
        after: Option<Duration>,
        hint: Option<Duration>,
    ) -> Result<(Duration, DelaySource), StopReason> {
        let was_told_now = std::mem::replace(&mut self.was_told_now, hint == Some(Duration::ZERO));
        let (asked, source) = match (after, hint) {
            (Some(after), _) => (after, DelaySource::Classifier),
            // A server that always says "now" must meet a backoff, not a burst.
            (None, Some(Duration::ZERO)) if was_told_now => {
                return Ok((self.computed(), DelaySource::Computed));
            }
            (None, Some(hint)) => (hint, DelaySource::Hint),
            (None, None) => return Ok((self.computed(), DelaySource::Computed)),
        };
        if asked > self.terms.policy.max_retry_after {
            return Err(StopReason::RetryAfterTooLong { retry_after: asked });
        }
        let delay = match source {
            DelaySource::Hint => asked.saturating_add(self.spread()),
            _ => whole_milliseconds(asked),
        };
        Ok((delay, source))
    }

    fn computed(&mut self) -> Duration {
        // Retry n follows attempt n. A hint uses up a retry's number, too, but not the memory of the last delay.
        self.schedule
            .next(self.terms.policy.backoff, self.attempt, &mut self.dice)
    }

    fn spread(&mut self) -> Duration {
        crate::backoff::spread(self.terms.policy.hint_spread, &mut self.dice)
    }

    fn ends_too_late(&self, delay: Duration, now: Instant) -> bool {
        let policy = &self.terms.policy;
        let elapsed = self.started.map_or(Duration::ZERO, |started| {
            now.saturating_duration_since(started)
        });
        let exceeds_elapsed = policy
            .max_elapsed
            .is_some_and(|max_elapsed| elapsed.saturating_add(delay) > max_elapsed);
        // A deadline that has passed leaves no time for a retry without a delay either.
        let exceeds_deadline = self.terms.deadline.is_some_and(|deadline| {
            deadline < now || deadline.saturating_duration_since(now) < delay
        });
        exceeds_elapsed || exceeds_deadline
    }

    fn event(
        &self,
        cause: Cause,
        status: Option<StatusCode>,
        delay: Duration,
        source: DelaySource,
    ) -> RetryEvent {
        RetryEvent {
            retry: self.attempt,
            cause,
            status,
            delay,
            source,
            origin: self.origin.clone(),
        }
    }
}

impl Replayability {
    pub(crate) fn of(request: &Request, assume_idempotent: Option<bool>) -> Self {
        Self {
            is_idempotent: assume_idempotent.unwrap_or_else(|| {
                is_idempotent(request.method()) || request.headers().contains_key("idempotency-key")
            }),
            // A stream can be read only once.
            has_replayable_body: request.body().is_none_or(|body| body.as_bytes().is_some()),
        }
    }
}

/// RFC 9110 section 9.2.2, QUERY, and the safe methods of `WebDAV`.
fn is_idempotent(method: &Method) -> bool {
    matches!(
        method.as_str(),
        "GET"
            | "HEAD"
            | "OPTIONS"
            | "TRACE"
            | "PUT"
            | "DELETE"
            | "QUERY"
            | "PROPFIND"
            | "REPORT"
            | "SEARCH"
    )
}

fn whole_milliseconds(asked: Duration) -> Duration {
    Duration::from_millis(crate::backoff::whole_milliseconds(asked))
}
