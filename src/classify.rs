//! What an outcome means: whether it may be tried again, why, and whether the server may have acted on it.

pub(crate) mod transport;

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, Method, StatusCode};
use reqwest::{Response, Url};
use reqwest_middleware::Error;

use crate::hint::{DelayHints, Hint};
use crate::origin::Origin;

/// Decides what the outcome of an attempt means.
///
/// It sees every outcome, the successes, too, so it should be quick; whether the method and the body allow another
/// attempt is asked afterwards, and is none of its business. [`classify_fn`] makes one of a closure.
pub trait Classifier: Send + Sync + 'static {
    /// Returns what this outcome means.
    fn classify(&self, attempt: &Attempt<'_>) -> Verdict;
}

impl<C: Classifier + ?Sized> Classifier for Arc<C> {
    fn classify(&self, attempt: &Attempt<'_>) -> Verdict {
        (**self).classify(attempt)
    }
}

/// Makes a classifier of a closure.
///
/// ```
/// use reqwest_jitter::{Cause, Classifier, DefaultClassifier, Effect, Verdict, classify_fn};
///
/// // 425 Too Early: the server refused to look at the request, so that it can be sent again whatever its method.
/// let classifier = classify_fn(|attempt| match attempt.status() {
///     Some(status) if status == 425 => Verdict::retry(Cause::Other("too_early"), Effect::None),
///     _ => DefaultClassifier::new().classify(attempt),
/// });
/// # let _ = classifier;
/// ```
pub fn classify_fn<F>(classify: F) -> ClassifyFn<F>
where
    F: Fn(&Attempt<'_>) -> Verdict + Send + Sync + 'static,
{
    ClassifyFn { classify }
}

/// A classifier made of a closure by [`classify_fn`].
// Not a blanket implementation for closures: with one, the type of a closure's argument can't be inferred.
#[derive(Clone, Copy)]
pub struct ClassifyFn<F> {
    classify: F,
}

impl<F> Classifier for ClassifyFn<F>
where
    F: Fn(&Attempt<'_>) -> Verdict + Send + Sync + 'static,
{
    fn classify(&self, attempt: &Attempt<'_>) -> Verdict {
        (self.classify)(attempt)
    }
}

impl<F> fmt::Debug for ClassifyFn<F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ClassifyFn").finish_non_exhaustive()
    }
}

/// The classifier that is used unless another one is set.
///
/// | outcome | verdict |
/// |---|---|
/// | 429 | retry, effect none |
/// | 503 with a wait that the server asked for | retry, effect none |
/// | 5xx otherwise, but 501, 505, 506, 508, 510, 511 | retry, effect unknown |
/// | one of these from another URL than was asked: a redirect was followed | retry, effect unknown |
/// | one of these with a signal to stop ([`DelayHints::vendors`]) | reject |
/// | anything else from 400 on with a signal to go on | retry, effect unknown |
/// | below 400 | accept |
/// | everything else that a server answered | reject |
/// | no connection, or a request handed back unsent | retry, effect none |
/// | HTTP/2 `REFUSED_STREAM`, or `GOAWAY` that leaves our stream out (feature `http2`) | retry, effect none |
/// | a timeout, a reset or an end of the connection | retry, effect unknown |
/// | a bad URL, a redirect loop, garbage instead of HTTP, a TLS failure that will not mend | reject |
///
/// Sources: RFC 9110 section 15, RFC 6585 section 4, RFC 9113 section 8.7.
///
/// A 503 that only says when a quota is refilled has an unknown effect: servers say that with every answer.
///
/// 408, 425 and a 403 that carries a hint are final by default, since servers mean too many things by them; where
/// yours means "try again", [`with_status`](Self::with_status) says so.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct DefaultClassifier {
    statuses: BTreeMap<u16, Option<Effect>>,
}

impl DefaultClassifier {
    /// Creates the classifier with the table above.
    pub const fn new() -> Self {
        Self {
            statuses: BTreeMap::new(),
        }
    }

    /// Makes a status retryable, and says whether the server may have acted on a request that it answers so.
    ///
    /// It replaces what the table says. A response that was reached by a redirect has an unknown effect all the same.
    ///
    /// ```
    /// use reqwest_jitter::{DefaultClassifier, Effect};
    ///
    /// // A server that times out while it still reads, and one that limits its rate with 403.
    /// let classifier = DefaultClassifier::new().with_status(408, Effect::Unknown).with_status(403, Effect::None);
    /// # let _ = classifier;
    /// ```
    pub fn with_status(mut self, status: u16, effect: Effect) -> Self {
        self.statuses.insert(status, Some(effect));
        self
    }

    /// Makes a status final, whatever hint or signal comes with it.
    pub fn without_status(mut self, status: u16) -> Self {
        self.statuses.insert(status, None);
        self
    }

    fn answered(&self, status: StatusCode, attempt: &Attempt<'_>) -> Verdict {
        let verdict = match self.statuses.get(&status.as_u16()) {
            Some(Some(effect)) => Verdict::retry(Cause::of_status(status), *effect),
            Some(None) => return final_answer(status),
            None => answered_by_default(status, attempt),
        };
        match verdict {
            Verdict::Retry { .. } if attempt.should_retry() == Some(false) => Verdict::Reject,
            // That another attempt is worth it does not say that this one has had no effect.
            Verdict::Reject if attempt.should_retry() == Some(true) => {
                Verdict::retry(Cause::Other("should_retry"), Effect::Unknown)
            }
            // What answered is not what the request was sent to: a POST that was redirected has been acted on, and the
            // refusal belongs to the request that followed it.
            Verdict::Retry { cause, after, .. } if attempt.was_redirected() => Verdict::Retry {
                cause,
                effect: Effect::Unknown,
                after,
            },
            verdict => verdict,
        }
    }
}

impl Classifier for DefaultClassifier {
    fn classify(&self, attempt: &Attempt<'_>) -> Verdict {
        match (attempt.status(), attempt.error()) {
            (Some(status), _) => self.answered(status, attempt),
            (None, Some(error)) => transport::verdict(error),
            (None, None) => Verdict::Reject,
        }
    }
}

fn answered_by_default(status: StatusCode, attempt: &Attempt<'_>) -> Verdict {
    match status.as_u16() {
        429 => Verdict::retry(Cause::Throttled, Effect::None),
        // Whoever names the moment to come back has turned the request away, not half done it.
        503 if attempt.was_asked_to_wait() => Verdict::retry(Cause::ServerError, Effect::None),
        // Not implemented, unsupported version, misconfigured, loop, not extended, captive portal: none of them mends.
        501 | 505 | 506 | 508 | 510 | 511 => Verdict::Reject,
        500..=599 => Verdict::retry(Cause::ServerError, Effect::Unknown),
        _ => final_answer(status),
    }
}

fn final_answer(status: StatusCode) -> Verdict {
    if status.as_u16() < 400 {
        Verdict::Accept
    } else {
        Verdict::Reject
    }
}

/// One attempt and its outcome, as a [`Classifier`] sees it.
pub struct Attempt<'a> {
    number: u32,
    method: &'a Method,
    url: &'a Url,
    outcome: Result<&'a Response, &'a Error>,
    hints: &'a DelayHints,
    wall_clock: fn() -> SystemTime,
    // Only a retry needs the headers read, and most attempts succeed.
    hint: OnceCell<Option<Hint>>,
    should_retry: OnceCell<Option<bool>>,
}

impl<'a> Attempt<'a> {
    pub(crate) fn new(
        number: u32,
        method: &'a Method,
        url: &'a Url,
        outcome: Result<&'a Response, &'a Error>,
        hints: &'a DelayHints,
        wall_clock: fn() -> SystemTime,
    ) -> Self {
        Self {
            number,
            method,
            url,
            outcome,
            hints,
            wall_clock,
            hint: OnceCell::new(),
            should_retry: OnceCell::new(),
        }
    }

    /// Returns the number of this attempt; the first is 1.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the method of the request.
    #[must_use]
    pub fn method(&self) -> &Method {
        self.method
    }

    /// Returns the URL that was asked. Of a request that can't be sent again it is the URL that answered.
    #[must_use]
    pub fn url(&self) -> &Url {
        self.url
    }

    /// Returns the status, if the server answered.
    #[must_use]
    pub fn status(&self) -> Option<StatusCode> {
        self.outcome.ok().map(Response::status)
    }

    /// Returns the response's headers, if the server answered.
    #[must_use]
    pub fn headers(&self) -> Option<&HeaderMap> {
        self.outcome.ok().map(Response::headers)
    }

    /// Returns the error, if the server did not answer.
    #[must_use]
    pub fn error(&self) -> Option<&Error> {
        self.outcome.err()
    }

    /// Returns the wait that the server asked for, as far as the configured [`DelayHints`] can read it.
    #[must_use]
    pub fn hint(&self) -> Option<Duration> {
        self.read_hint().map(|hint| hint.wait)
    }

    /// Returns whether the server says outright that another attempt is worth it, as far as the configured
    /// [`DelayHints`] can read it; most servers never do.
    ///
    /// [`DefaultClassifier`] heeds it. A classifier of one's own decides for itself.
    #[must_use]
    pub fn should_retry(&self) -> Option<bool> {
        *self.should_retry.get_or_init(|| {
            let response = self.outcome.ok()?;
            self.hints.should_retry(response.headers())
        })
    }

    fn read_hint(&self) -> Option<Hint> {
        *self.hint.get_or_init(|| {
            let response = self.outcome.ok()?;
            let now = (self.wall_clock)();
            self.hints.read(response.status(), response.headers(), now)
        })
    }

    /// Whether the wait is one that the server asked for; a quota's reset time is none.
    fn was_asked_to_wait(&self) -> bool {
        self.read_hint().is_some_and(|hint| hint.is_asked_for)
    }

    fn was_redirected(&self) -> bool {
        self.outcome
            .is_ok_and(|response| without_fragment(response.url()) != without_fragment(self.url))
    }
}

/// By hand: a URL and headers hold what belongs into no log.
impl fmt::Debug for Attempt<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Attempt")
            .field("number", &self.number)
            .field("method", &self.method)
            .field("origin", &Origin::of(self.url).as_str())
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

/// A fragment is never sent, and the response's URL has lost it.
fn without_fragment(url: &Url) -> &str {
    let url = url.as_str();
    url.split_once('#').map_or(url, |(sent, _)| sent)
}

/// What is to be done about an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The outcome is what was asked for.
    Accept,
    /// The outcome is final: another attempt would end the same way.
    Reject,
    /// Another attempt may end better, if the method and the body allow one.
    Retry {
        /// Why, for the report.
        cause: Cause,
        /// Whether the server may have acted on this attempt.
        effect: Effect,
        /// How long to wait, where the classifier knows it, in a body for example. It goes before the server's hint
        /// and is waited as it is; `None` leaves the hint or the computed delay in force.
        after: Option<Duration>,
    },
}

impl Verdict {
    /// Creates a [`Retry`](Self::Retry) without a wait of its own.
    #[must_use]
    pub const fn retry(cause: Cause, effect: Effect) -> Self {
        Self::Retry {
            cause,
            effect,
            after: None,
        }
    }
}

/// Says whether the server may have acted on a failed attempt.
// Exhaustive on purpose: there is no third answer, and a classifier must be able to match on both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Certainly not: the request never left, or the server said that it turned it away.
    None,
    /// It may have. Only a request that can be repeated without harm is sent again.
    Unknown,
}

/// Says why an attempt is worth another one. Few values, and none that depends on the request: fit for a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// No connection came about (`connect`).
    Connect,
    /// The host's name could not be resolved (`dns`).
    Dns,
    /// The attempt's own timeout passed (`timeout`).
    Timeout,
    /// The connection broke (`transport`).
    Transport,
    /// An HTTP/2 server refused the stream without looking at it (`stream_refused`).
    StreamRefused,
    /// 429 (`throttled`).
    Throttled,
    /// 5xx (`server_error`).
    ServerError,
    /// A classifier's own reason.
    Other(&'static str),
}

impl Cause {
    fn of_status(status: StatusCode) -> Self {
        match status.as_u16() {
            429 => Self::Throttled,
            500..=599 => Self::ServerError,
            _ => Self::Other("status"),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Connect => "connect",
            Self::Dns => "dns",
            Self::Timeout => "timeout",
            Self::Transport => "transport",
            Self::StreamRefused => "stream_refused",
            Self::Throttled => "throttled",
            Self::ServerError => "server_error",
            Self::Other(reason) => reason,
        })
    }
}
