//! What happened to a call: beside its response, never in it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{Extensions, StatusCode};
use reqwest::Response;

use crate::classify::Cause;
use crate::origin::Origin;

/// Tells what the retry layer did about one call.
///
/// It lies in the extensions of the response and, through
/// [`execute_with_extensions`](reqwest_middleware::ClientWithMiddleware::execute_with_extensions), in the caller's own,
/// where it is found after an error, too. There is none for a call that was accepted at its first attempt, or whose
/// retries were disabled.
///
/// ```no_run
/// # async fn run(client: reqwest_middleware::ClientWithMiddleware) -> reqwest_middleware::Result<()> {
/// use reqwest_jitter::RetryReport;
///
/// let response = client.get("https://example.com/").send().await?;
/// if let Some(report) = RetryReport::of(&response) {
///     println!("{} attempts, {:?} asleep, ended by {:?}", report.attempts(), report.slept(), report.stop());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RetryReport {
    // Shared, since it goes into two places and extensions are cloned freely.
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    origin: Origin,
    attempts: u32,
    slept: Duration,
    last_cause: Option<Cause>,
    stop: StopReason,
    history: Vec<RetryEvent>,
}

impl RetryReport {
    /// Returns the report that lies in a response, if there is one.
    #[must_use]
    pub fn of(response: &Response) -> Option<&Self> {
        response.extensions().get()
    }

    /// Returns the report that lies in the extensions a call was made with, if there is one.
    #[must_use]
    pub fn from_extensions(extensions: &Extensions) -> Option<&Self> {
        extensions.get()
    }

    /// Returns where the request went: scheme, host and port, as in `https://example.com`.
    ///
    /// Of a request that could be sent only once, a stream or with one attempt, nothing is kept. What is known of it then
    /// is where the response came from, after redirects, or the URL in an error; `null` if there is none.
    #[must_use]
    pub fn origin(&self) -> &str {
        self.inner.origin.as_str()
    }

    /// Returns how often the request was sent; zero if a gate turned it away at once.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.inner.attempts
    }

    /// Returns how often the request was sent again: one less than [`attempts`](Self::attempts).
    #[must_use]
    pub fn retries(&self) -> u32 {
        self.inner.attempts.saturating_sub(1)
    }

    /// Returns the sum of the delays that were waited.
    #[must_use]
    pub fn slept(&self) -> Duration {
        self.inner.slept
    }

    /// Returns why the last attempt that was worth another one failed; `None` if there was no such attempt.
    #[must_use]
    pub fn last_cause(&self) -> Option<Cause> {
        self.inner.last_cause
    }

    /// Returns why there was no further attempt.
    #[must_use]
    pub fn stop(&self) -> StopReason {
        self.inner.stop
    }

    /// Returns the retries that were waited for, in their order.
    ///
    /// All of them were sent, except for the last one where the call ended at a gate, or with a body that could not be
    /// made.
    #[must_use]
    pub fn history(&self) -> &[RetryEvent] {
        &self.inner.history
    }
}

/// One retry: what failed before it, and how long it waits.
#[derive(Clone, Debug)]
pub struct RetryEvent {
    pub(crate) retry: u32,
    pub(crate) cause: Cause,
    pub(crate) status: Option<StatusCode>,
    pub(crate) delay: Duration,
    pub(crate) source: DelaySource,
    pub(crate) origin: Origin,
}

impl RetryEvent {
    /// Returns the number of the retry; the first is 1, and is attempt 2.
    #[must_use]
    pub fn retry(&self) -> u32 {
        self.retry
    }

    /// Returns why the attempt before it failed.
    #[must_use]
    pub fn cause(&self) -> Cause {
        self.cause
    }

    /// Returns the status of the attempt before it, if the server answered.
    #[must_use]
    pub fn status(&self) -> Option<StatusCode> {
        self.status
    }

    /// Returns how long the retry waits, in whole milliseconds.
    #[must_use]
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// Returns who named the delay.
    #[must_use]
    pub fn source(&self) -> DelaySource {
        self.source
    }

    /// Returns where the request goes: scheme, host and port, as in `https://example.com`.
    #[must_use]
    pub fn origin(&self) -> &str {
        self.origin.as_str()
    }
}

/// Says who named a delay. Its `Display` is one word, fit for a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DelaySource {
    /// The backoff and its jitter (`computed`).
    Computed,
    /// The server (`hint`).
    Hint,
    /// The classifier, with [`Verdict::Retry`](crate::Verdict::Retry)'s `after` (`classifier`).
    Classifier,
}

impl DelaySource {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Computed => "computed",
            Self::Hint => "hint",
            Self::Classifier => "classifier",
        }
    }
}

impl fmt::Display for DelaySource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

/// Says why a call was not tried again. Its `Display` is one word, fit for a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StopReason {
    /// The last attempt succeeded (`accepted`).
    Accepted,
    /// The last outcome is final; another attempt would end the same way (`rejected`).
    Rejected,
    /// `max_attempts` were made (`attempts_exhausted`).
    AttemptsExhausted,
    /// The next attempt would have begun after `max_elapsed` or the deadline (`elapsed_exhausted`).
    ElapsedExhausted,
    /// The origin's retry budget is spent (`budget_exhausted`).
    BudgetExhausted,
    /// The server asked for a longer wait than `max_retry_after` (`retry_after_too_long`).
    RetryAfterTooLong {
        /// The wait that it asked for.
        retry_after: Duration,
    },
    /// The body can't be sent again, or the method must not be (`not_replayable`).
    NotReplayable,
    /// A [`HostGate`](crate::HostGate) below kept the attempt from being sent (`gate_closed`).
    GateClosed,
}

impl StopReason {
    /// Whether a failure that was worth another attempt goes back to the caller.
    pub(crate) fn is_giving_up(self) -> bool {
        !matches!(self, Self::Accepted | Self::Rejected)
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Rejected => "rejected",
            Self::AttemptsExhausted => "attempts_exhausted",
            Self::ElapsedExhausted => "elapsed_exhausted",
            Self::BudgetExhausted => "budget_exhausted",
            Self::RetryAfterTooLong { .. } => "retry_after_too_long",
            Self::NotReplayable => "not_replayable",
            Self::GateClosed => "gate_closed",
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

/// Lies in the extensions of every attempt after the first, for the middlewares below the retry layer.
///
/// A first attempt has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryAttempt {
    pub(crate) number: u32,
}

impl RetryAttempt {
    /// Returns the number of this attempt: 2 for the first retry.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns how often the request has been sent again, this time included: 1 for the first retry.
    ///
    /// This is OpenTelemetry's `http.request.resend_count`.
    #[must_use]
    pub fn resend_count(&self) -> u32 {
        self.number.saturating_sub(1)
    }
}

/// What is written down while a call goes on.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) slept: Duration,
    pub(crate) last_cause: Option<Cause>,
    pub(crate) history: Vec<RetryEvent>,
}

impl Record {
    pub(crate) fn close(self, origin: Origin, attempts: u32, stop: StopReason) -> RetryReport {
        RetryReport {
            inner: Arc::new(Inner {
                origin,
                attempts,
                slept: self.slept,
                last_cause: self.last_cause,
                stop,
                history: self.history,
            }),
        }
    }
}
