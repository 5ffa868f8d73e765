//! The middleware itself. It sends, asks and sleeps; what to do is decided below.

use std::convert::identity;
use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use http::{Extensions, Method, StatusCode};
use reqwest::{Request, Response, Url};
use reqwest_middleware::{Error, Middleware, Next};
use tokio::time::Instant;

use crate::body::{KeptRequest, ReplayableBody};
use crate::budget::{RetryBudget, Spent};
use crate::classify::{Attempt, Classifier, DefaultClassifier, Verdict};
use crate::drain::{step_aside, wait_and_drain};
use crate::entropy::Entropy;
use crate::gate::closed::GateClosed;
use crate::hint::DelayHints;
use crate::origin::Origin;
use crate::overrides::{self, LatestBegin};
use crate::policy::{RetryPolicy, Terms};
use crate::report::{RetryAttempt, RetryEvent, RetryReport, StopReason};
use crate::session::{Decision, Outcome, Replayability, Session};
use crate::telemetry::Subject;

/// Retries what fails, in the right places and after the right waits.
///
/// It belongs *above* everything that should happen once per attempt (authentication, tracing spans, a
/// [`HostGate`](crate::HostGate)) and *below* everything that should happen once per call (a cache, for example).
///
/// # Default
///
/// [`RetryPolicy::default`], [`DelayHints::standard`], [`DefaultClassifier::new`], [`RetryBudget::new`].
///
/// # Cost
///
/// A call that succeeds at once pays for one boxed future and one clone of the request; a request whose body can't be
/// cloned for the boxed future alone; one whose retries are disabled for nothing.
///
/// # Cancel safety
///
/// A call can be dropped at any moment: the response that is being drained, its connection and the wait go with it, and
/// no task stays behind.
///
/// ```
/// use std::time::Duration;
/// use reqwest_jitter::{Backoff, Jitter, JitteredRetryMiddleware, RetryPolicy};
/// use reqwest_middleware::ClientBuilder;
///
/// const POLICY: RetryPolicy =
///     RetryPolicy::new(Backoff::exponential(Duration::from_millis(200), Duration::from_secs(10)))
///         .with_jitter(Jitter::Equal)
///         .with_max_attempts(4);
///
/// let client = ClientBuilder::new(reqwest::Client::new())
///     .with(JitteredRetryMiddleware::new(POLICY).on_retry(|event| {
///         eprintln!("retry {} of {} in {:?}: {}", event.retry(), event.origin(), event.delay(), event.cause());
///     }))
///     .build();
/// # let _ = client;
/// ```
#[derive(Clone)]
#[must_use]
pub struct JitteredRetryMiddleware {
    policy: RetryPolicy,
    hints: DelayHints,
    classifier: Arc<dyn Classifier>,
    budget: Option<RetryBudget>,
    entropy: Entropy,
    on_retry: Vec<Hook<RetryEvent>>,
    on_give_up: Vec<Hook<RetryReport>>,
}

type Hook<T> = Arc<dyn Fn(&T) + Send + Sync>;

impl JitteredRetryMiddleware {
    /// Creates a middleware with this policy, and the defaults for everything else.
    pub fn new(policy: RetryPolicy) -> Self {
        Self {
            policy,
            hints: DelayHints::standard(),
            classifier: Arc::new(DefaultClassifier::new()),
            budget: Some(RetryBudget::new()),
            entropy: Entropy::of_process(),
            on_retry: Vec::new(),
            on_give_up: Vec::new(),
        }
    }

    /// Sets which headers are read for the wait that a server asks for. Default: [`DelayHints::standard`].
    pub fn with_hints(self, hints: DelayHints) -> Self {
        Self { hints, ..self }
    }

    /// Sets what decides about each outcome. Default: [`DefaultClassifier::new`].
    pub fn with_classifier(self, classifier: impl Classifier) -> Self {
        Self {
            classifier: Arc::new(classifier),
            ..self
        }
    }

    /// Sets how much retrying an origin can bear, all calls together. Default: [`RetryBudget::new`].
    pub fn with_budget(self, budget: RetryBudget) -> Self {
        Self {
            budget: Some(budget),
            ..self
        }
    }

    /// Leaves retries limited by nothing but each call's own policy.
    pub fn without_budget(self) -> Self {
        Self {
            budget: None,
            ..self
        }
    }

    /// Adds a hook that is called for every retry, before its wait begins. Hooks are called in the order they came.
    ///
    /// It runs within the call and should be quick; a panic in it ends the call.
    pub fn on_retry(mut self, hook: impl Fn(&RetryEvent) + Send + Sync + 'static) -> Self {
        self.on_retry.push(Arc::new(hook));
        self
    }

    /// Adds a hook that is called when a failure that was worth another attempt goes back to the caller.
    ///
    /// That is every [`StopReason`] but [`Accepted`](StopReason::Accepted) and [`Rejected`](StopReason::Rejected): a
    /// 404 is an answer, not a failure to get one.
    pub fn on_give_up(mut self, hook: impl Fn(&RetryReport) + Send + Sync + 'static) -> Self {
        self.on_give_up.push(Arc::new(hook));
        self
    }

    /// Draws the delays from a seed, so that calls made one after another wait the same in every run.
    ///
    /// For tests and demonstrations. Processes that share a seed retry in lockstep.
    pub fn with_seed(self, seed: u64) -> Self {
        Self {
            entropy: Entropy::seeded(seed),
            ..self
        }
    }

    /// Sends a request for the first time. What follows a failure lives in a future of its own, so that a call that
    /// succeeds does not pay for it.
    ///
    /// Not an `async fn`, which would keep two places for each argument: this future is allocated for every call, and
    /// up to a kilobyte that is cheap.
    #[allow(clippy::manual_async_fn)] // For the reason above.
    fn first_attempt<'call>(
        &'call self,
        mut kept: KeptRequest,
        extensions: &'call mut Extensions,
        next: Next<'call>,
        start: Start,
    ) -> impl Future<Output = Result<Response, Error>> + Send + 'call {
        async move {
            let may_be_followed =
                start.terms.policy.max_attempts > 1 && start.replay.has_replayable_body;
            // A request that is sent once needs no copy of its extensions either.
            let mut sent_with = may_be_followed.then(|| extensions.clone());
            // In a block, so that nothing of it has a place in this future while the other one runs.
            let going_on = {
                let result = kept
                    .next(may_be_followed, |request| {
                        let extensions = sent_with.as_mut().unwrap_or(&mut *extensions);
                        next.clone().run(request, extensions)
                    })?
                    .await;
                let url = kept.request().map_or_else(|| url_of(&result), Request::url);
                let outcome = self.classify(1, &start.method, url, &result);
                if outcome.verdict == Verdict::Accept {
                    if let Some(sent_with) = sent_with {
                        *extensions = sent_with;
                    }
                    return result;
                }
                let (origin, dice) = (Origin::of(url), self.entropy.dice());
                let call = Call {
                    session: Session::new(start.terms, origin, start.replay, start.at, dice),
                    method: start.method,
                    url: url.clone(),
                    kept,
                    extensions,
                    sent_with,
                    next,
                };
                Box::pin(self.go_on(call, result, outcome))
            };
            going_on.await
        }
    }

    /// Sends a request again, for as long as that is worth it. A function like [`first_attempt`](Self::first_attempt).
    #[allow(clippy::manual_async_fn)] // For the same reason.
    fn go_on<'call>(
        &'call self,
        mut call: Call<'call>,
        mut result: Result<Response, Error>,
        mut outcome: Outcome,
    ) -> impl Future<Output = Result<Response, Error>> + Send + 'call {
        async move {
            let stop = loop {
                if was_turned_away(&result) {
                    call.session.was_not_sent();
                    break StopReason::GateClosed;
                }
                let now = Instant::now();
                let event = match call.session.decide(outcome, now) {
                    Decision::Retry(event) => event,
                    Decision::Stop(stop) => break stop,
                };
                // Asked last, so that no token goes to a retry that something else forbids; and before the wait.
                let permit = match &self.budget {
                    Some(budget) => match budget.withdraw(&call.url, now) {
                        Some(permit) => Some(permit),
                        None => break StopReason::BudgetExhausted,
                    },
                    None => None,
                };
                if call.kept.request().is_none() {
                    break StopReason::NotReplayable;
                }
                let subject = Subject {
                    method: &call.method,
                    url: &call.url,
                    max_attempts: call.session.max_attempts(),
                };
                subject.retries(&event);
                self.on_retry.iter().for_each(|hook| hook(&event));
                wait_and_drain(result.ok(), event.delay()).await;
                // Where an origin answers at once, and always the same, nothing else would ever run on this thread, a
                // timeout around the call included.
                if event.delay().is_zero() && event.retry() > 1 {
                    step_aside().await;
                }
                call.session.waited(event);
                let may_be_followed = call.session.may_follow_next();
                let request = match call.kept.next(may_be_followed, identity) {
                    Ok(request) => request,
                    Err(error) => {
                        result = Err(error);
                        break StopReason::NotReplayable;
                    }
                };
                let number = call.session.begin_attempt();
                let mut sent_with = call.extensions.clone();
                sent_with.insert(RetryAttempt { number });
                if let Some(latest) = call.session.latest_begin() {
                    sent_with.insert(LatestBegin(latest));
                }
                if let Some(permit) = permit {
                    sent_with.insert(permit.spend());
                }
                result = call.next.clone().run(request, &mut sent_with).await;
                call.sent_with = Some(sent_with);
                outcome = self.classify(number, &call.method, &call.url, &result);
            };
            self.close(call, stop, result, outcome.status)
        }
    }

    fn classify(
        &self,
        number: u32,
        method: &Method,
        url: &Url,
        result: &Result<Response, Error>,
    ) -> Outcome {
        let attempt = Attempt::new(
            number,
            method,
            url,
            result.as_ref(),
            &self.hints,
            SystemTime::now,
        );
        let verdict = match result {
            // Whoever was told to come back later by the gate would only be told so again.
            Err(_) if was_turned_away(result) => Verdict::Reject,
            _ => self.classifier.classify(&attempt),
        };
        let is_retry = matches!(verdict, Verdict::Retry { .. });
        Outcome {
            verdict,
            hint: if is_retry { attempt.hint() } else { None },
            status: attempt.status(),
        }
    }

    fn close(
        &self,
        call: Call<'_>,
        stop: StopReason,
        mut result: Result<Response, Error>,
        status: Option<StatusCode>,
    ) -> Result<Response, Error> {
        let max_attempts = call.session.max_attempts();
        let report = call.session.close(stop);
        if stop.is_giving_up() {
            let subject = Subject {
                method: &call.method,
                url: &call.url,
                max_attempts,
            };
            subject.gives_up(&report, status);
            self.on_give_up.iter().for_each(|hook| hook(&report));
        }
        if let Some(sent_with) = call.sent_with {
            *call.extensions = sent_with;
        }
        if let Ok(response) = &mut result {
            response.extensions_mut().insert(report.clone());
        }
        call.extensions.insert(report);
        result
    }
}

/// What is known of a call before its first attempt.
struct Start {
    terms: Terms,
    /// The time, if it is limited.
    at: Option<Instant>,
    method: Method,
    replay: Replayability,
}

/// A call whose first attempt did not succeed.
struct Call<'a> {
    session: Session,
    method: Method,
    url: Url,
    kept: KeptRequest,
    /// The caller's, as they were: every attempt gets a fresh copy.
    extensions: &'a mut Extensions,
    /// The copy that the last attempt was sent with, which goes back to the caller.
    sent_with: Option<Extensions>,
    next: Next<'a>,
}

// By hand instead of by `async_trait`, so that a call which is not to be retried costs nothing.
impl Middleware for JitteredRetryMiddleware {
    fn handle<'this, 'extensions, 'next, 'call>(
        &'this self,
        mut request: Request,
        extensions: &'extensions mut Extensions,
        next: Next<'next>,
    ) -> Pin<Box<dyn Future<Output = Result<Response, Error>> + Send + 'call>>
    where
        'this: 'call,
        'extensions: 'call,
        'next: 'call,
        Self: 'call,
    {
        // Extensions can be used for several calls; what an earlier one left there is not true of this one.
        if !extensions.is_empty() {
            extensions.remove::<RetryReport>();
            extensions.remove::<RetryAttempt>();
            extensions.remove::<Spent>();
            extensions.remove::<LatestBegin>();
        }
        let terms = overrides::terms(&self.policy, extensions);
        #[cfg(feature = "idempotency-keys")]
        if terms.policy.idempotency_keys && !terms.is_disabled {
            give_key(&mut request);
        }
        let body = ReplayableBody::of(&mut request, extensions);
        if terms.is_disabled {
            let sending = KeptRequest::new(request, body)
                .next(false, |request| next.run(request, extensions));
            return sending.unwrap_or_else(|error| Box::pin(ready(Err(error))));
        }
        if let Some(budget) = &self.budget {
            budget.deposit(request.url());
        }
        let start = Start {
            terms,
            at: terms.policy.max_elapsed.map(|_| Instant::now()),
            method: request.method().clone(),
            replay: Replayability::of(&request, terms.assume_idempotent),
        };
        let kept = KeptRequest::new(request, body);
        Box::pin(self.first_attempt(kept, extensions, next, start))
    }
}

impl Default for JitteredRetryMiddleware {
    fn default() -> Self {
        Self::new(RetryPolicy::default())
    }
}

impl fmt::Debug for JitteredRetryMiddleware {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("JitteredRetryMiddleware")
            .field("policy", &self.policy)
            .field("hints", &self.hints)
            .field("budget", &self.budget)
            .finish_non_exhaustive()
    }
}

/// Whether a gate below refused to send the request.
fn was_turned_away(result: &Result<Response, Error>) -> bool {
    result
        .as_ref()
        .is_err_and(|error| GateClosed::of(error).is_some())
}

/// Where an outcome comes from, for a request that was not kept: a copy of its URL would cost every stream that
/// succeeds. Where an error does not say it, nobody knows.
fn url_of(result: &Result<Response, Error>) -> &Url {
    static UNKNOWN: LazyLock<Url> = LazyLock::new(|| {
        let none = || Response::from(http::Response::new(String::new()));
        Url::parse("about:blank").unwrap_or_else(|_| none().url().clone())
    });
    match result {
        Ok(response) => response.url(),
        Err(error) => error.url().unwrap_or(&UNKNOWN),
    }
}

/// Before the first attempt, so that all of them carry the same key.
#[cfg(feature = "idempotency-keys")]
fn give_key(request: &mut Request) {
    let wants_key = matches!(*request.method(), Method::POST | Method::PATCH);
    if wants_key && !request.headers().contains_key("idempotency-key") {
        if let Some(key) = crate::entropy::idempotency_key() {
            request.headers_mut().insert("idempotency-key", key);
        }
    }
}
