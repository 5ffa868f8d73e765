//! The gate in front of a host: what one request has learned from it holds for all of them.

pub(crate) mod closed;
pub(crate) mod state;

use std::collections::HashMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use http::{Extensions, StatusCode};
use reqwest::{Request, Response, Url};
use reqwest_middleware::{Error, Middleware, Next};
use tokio::time::{Instant, Sleep, sleep_until};

use self::closed::GateClosed;
use self::state::{Arrival, Outcome, State, Ticket, Turn, Waiter};
use crate::backoff::{Backoff, Schedule};
use crate::budget::Spent;
use crate::classify::{Attempt, Classifier, DefaultClassifier, Verdict};
use crate::entropy::Entropy;
use crate::hint::DelayHints;
use crate::jitter::{Dice, Jitter};
use crate::origin::{Origin, OriginKey, OriginMap};
use crate::overrides;

/// Holds requests back while their host can't serve, and lets them go again at the pace that it bears.
///
/// No jitter alone keeps a crowd of retries from a host that is down: each of them has to find out for itself. The gate
/// tells them. It sits *below* the retry layer, so that every attempt of every request passes it:
///
/// ```
/// use reqwest_jitter::{HostGate, JitteredRetryMiddleware};
/// use reqwest_middleware::ClientBuilder;
///
/// let client = ClientBuilder::new(reqwest::Client::new())
///     .with(JitteredRetryMiddleware::default())
///     .with(HostGate::default())
///     .build();
/// # let _ = client;
/// ```
///
/// | the gate is | when | and does |
/// |---|---|---|
/// | open | nothing is wrong | let everybody pass |
/// | closed until T | a 429 or 503 named a wait, or failures came one after another | let nobody pass |
/// | half-open | from T on | let one request through, the probe; if it fails, the gate is closed again, for longer |
/// | recovering | the probe succeeded | let the others go in order, at a pace that it learns from the answers |
///
/// Failures are what the classifier would retry. Some that come at any pace, a few random 500s, slow nothing down.
/// Waiting costs no attempt. A request that would have to wait longer than [`with_max_wait`](Self::with_max_wait), or
/// past the deadline of its [`RetryOverride`](crate::RetryOverride), gets a [`GateClosed`] at once.
///
/// Clones share their state. There is one gate per origin, which is scheme, host and port, or per key; at most 10 000
/// are kept, and one that is closed is never forgotten for one that is open.
///
/// # Default
///
/// Trips after five failures in a row; stays closed for 100 ms at first and for 10 s at the most, exponentially and
/// with equal jitter; `max_wait` is 60 s; [`DelayHints::standard`]; [`DefaultClassifier::new`].
///
/// # Cancel safety
///
/// A request can be dropped at any moment. One that waited leaves the queue, and a probe hands its place to the next in
/// line; a request that panics is dropped like any other.
#[derive(Clone)]
#[must_use]
pub struct HostGate {
    trip_after: u32,
    open_backoff: Backoff,
    max_wait: Duration,
    hints: DelayHints,
    classifier: Arc<dyn Classifier>,
    key: Option<MakeKey>,
    entropy: Entropy,
    gates: Arc<OriginMap<Gate>>,
}

type MakeKey = Arc<dyn Fn(&Request) -> String + Send + Sync>;

impl HostGate {
    /// Creates a gate with the defaults above, and a state of its own.
    pub fn new() -> Self {
        let (shortest, longest) = (Duration::from_millis(100), Duration::from_secs(10));
        Self {
            trip_after: 5,
            open_backoff: Backoff::exponential(shortest, longest).with_jitter(Jitter::Equal),
            max_wait: Duration::from_secs(60),
            hints: DelayHints::standard(),
            classifier: Arc::new(DefaultClassifier::new()),
            key: None,
            entropy: Entropy::of_process(),
            gates: Arc::default(),
        }
    }

    /// Creates a gate that never lets a request wait: what can't pass gets a [`GateClosed`] at once.
    ///
    /// That is the classical circuit breaker. It is for callers who have something better to do than to wait, another
    /// host to ask or a cached answer to give; everybody else is better off in the queue.
    pub fn fail_fast() -> Self {
        Self::new().with_max_wait(Duration::ZERO)
    }

    /// Sets after how many failures in a row the gate closes. Default: 5. Zero: it never does, but for a hint.
    ///
    /// Like every setter it gives the gate a new state, which it does not share with its clones from before.
    pub fn with_trip_after(self, failures: u32) -> Self {
        Self {
            trip_after: failures,
            ..self.anew()
        }
    }

    /// Sets how long the gate stays closed when failures close it, from the first time on. Default: exponential, 100 ms
    /// to 10 s, equal jitter. A wait that the server named counts where it is longer.
    pub fn with_open_backoff(self, backoff: Backoff) -> Self {
        Self {
            open_backoff: backoff,
            ..self.anew()
        }
    }

    /// Sets how long a request may wait. Default: 60 s. Zero: not at all.
    pub fn with_max_wait(self, max_wait: Duration) -> Self {
        Self {
            max_wait,
            ..self.anew()
        }
    }

    /// Sets which headers are read for the wait that a server asks for. Default: [`DelayHints::standard`].
    pub fn with_hints(self, hints: DelayHints) -> Self {
        Self {
            hints,
            ..self.anew()
        }
    }

    /// Sets what decides which outcomes are failures: those that it would retry. Default: [`DefaultClassifier::new`].
    pub fn with_classifier(self, classifier: impl Classifier) -> Self {
        Self {
            classifier: Arc::new(classifier),
            ..self.anew()
        }
    }

    /// Sets what shares a gate. Default: the origin.
    ///
    /// For hosts that limit each route or each tenant on its own. There are as many gates as there are keys, so a key
    /// should be made of few values.
    ///
    /// ```
    /// use reqwest_jitter::HostGate;
    ///
    /// let gate = HostGate::new().with_key(|request| request.url().path().split('/').take(2).collect());
    /// # let _ = gate;
    /// ```
    pub fn with_key(self, key: impl Fn(&Request) -> String + Send + Sync + 'static) -> Self {
        Self {
            key: Some(Arc::new(key)),
            ..self.anew()
        }
    }

    /// Draws how long the gate stays closed from a seed, so that it can be repeated. For tests and simulations.
    pub fn with_seed(self, seed: u64) -> Self {
        Self {
            entropy: Entropy::seeded(seed),
            ..self.anew()
        }
    }

    fn anew(self) -> Self {
        Self {
            gates: Arc::default(),
            ..self
        }
    }

    /// Not an `async fn`, which would keep two places for each argument: a crowd waits in these futures.
    #[allow(clippy::manual_async_fn)] // For the reason above.
    fn pass_through<'call>(
        &'call self,
        request: Request,
        extensions: &'call mut Extensions,
        next: Next<'call>,
    ) -> impl Future<Output = Result<Response, Error>> + Send + 'call {
        async move {
            let key = self.key.as_ref().map(|key| key(&request));
            let gate = self.gate(key.as_deref(), request.url());
            let retry = UnsentRetry(extensions.get::<Spent>().cloned());
            let pass = gate
                .admit(self.latest(extensions))
                .await
                .map_err(|retry_at| turned_away(key, request.url(), retry_at))?;
            retry.sent();
            let (method, url) = (request.method().clone(), request.url().clone());
            let result = next.run(request, extensions).await;
            let attempt = Attempt::new(
                1,
                &method,
                &url,
                result.as_ref(),
                &self.hints,
                SystemTime::now,
            );
            let outcome = outcome(&attempt, self.classifier.classify(&attempt));
            pass.answered(outcome, self.open_backoff);
            result
        }
    }

    /// How many requests wait at all gates together.
    fn waiting(&self) -> usize {
        self.gates
            .fold(0, |sum, gate| gate.waiting().saturating_add(sum))
    }

    fn gate(&self, key: Option<&str>, url: &Url) -> Arc<Gate> {
        let now = Instant::now();
        self.gates.get_or_insert(
            key.map_or_else(|| OriginKey::of(url), OriginKey::named),
            || Gate::new(self.trip_after, self.entropy.dice()),
            |gate| gate.worth(now),
        )
    }

    /// The last moment at which it makes sense to pass; `None` where any does.
    fn latest(&self, extensions: &Extensions) -> Option<Instant> {
        let patience = Instant::now().checked_add(self.max_wait);
        overrides::earliest(patience, overrides::latest_begin(extensions))
    }
}

impl Middleware for HostGate {
    fn handle<'this, 'extensions, 'next, 'call>(
        &'this self,
        request: Request,
        extensions: &'extensions mut Extensions,
        next: Next<'next>,
    ) -> Pin<Box<dyn Future<Output = Result<Response, Error>> + Send + 'call>>
    where
        'this: 'call,
        'extensions: 'call,
        'next: 'call,
        Self: 'call,
    {
        Box::pin(self.pass_through(request, extensions, next))
    }
}

impl Default for HostGate {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for HostGate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("HostGate")
            .field("trip_after", &self.trip_after)
            .field("open_backoff", &self.open_backoff)
            .field("max_wait", &self.max_wait)
            .field("hints", &self.hints)
            .field("origins", &self.gates.len())
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}

/// What an attempt says about its host.
fn outcome(attempt: &Attempt<'_>, verdict: Verdict) -> Outcome {
    let names_moment = matches!(
        attempt.status(),
        Some(StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
    );
    let hint = if names_moment { attempt.hint() } else { None };
    match verdict {
        Verdict::Retry { after, .. } => Outcome::Failure {
            hint: after.or(hint),
        },
        // This request is not to come back, but whoever names a moment wants peace until then from all others, too.
        Verdict::Reject if hint.is_some() => Outcome::Failure { hint },
        // Whatever it answered, it was able to. An error that is final is about the request, not about the host.
        _ if attempt.status().is_some() => Outcome::Success,
        _ => Outcome::Neutral,
    }
}

fn turned_away(key: Option<String>, url: &Url, retry_at: Instant) -> Error {
    Error::middleware(GateClosed {
        origin: key.map_or_else(|| Origin::of(url).as_str().into(), Into::into),
        retry_at,
    })
}

/// The gate of one origin: the state machine, and the tasks that wait for it.
#[derive(Debug)]
struct Gate {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: State,
    wakers: HashMap<Waiter, Waker>,
    schedule: Schedule,
    dice: Dice,
}

impl Gate {
    fn new(trip_after: u32, dice: Dice) -> Self {
        Self {
            inner: Mutex::new(Inner {
                state: State::new(trip_after),
                wakers: HashMap::new(),
                schedule: Schedule::default(),
                dice,
            }),
        }
    }

    /// Waits for the right to send one attempt. The error is when it is worth to come back.
    async fn admit(self: &Arc<Self>, latest: Option<Instant>) -> Result<Pass, Instant> {
        let now = Instant::now();
        match self.change(now, |inner| inner.state.arrive(now, latest)) {
            Arrival::Pass(ticket) => Ok(self.pass(ticket)),
            Arrival::Refused { retry_at } => Err(retry_at),
            Arrival::Wait(waiter) => self.wait(waiter).await,
        }
    }

    async fn wait(self: &Arc<Self>, waiter: Waiter) -> Result<Pass, Instant> {
        let _place = Place { gate: self, waiter };
        // Only who is next in line has a time to wait for, so that a crowd does not fill the timer.
        let mut timer = pin!(None::<Sleep>);
        poll_fn(|context| {
            loop {
                let until = match self.turn(waiter, context) {
                    Turn::Pass(ticket) => return Poll::Ready(Ok(self.pass(ticket))),
                    Turn::Refused { retry_at } => return Poll::Ready(Err(retry_at)),
                    Turn::Wait { until: None } => return Poll::Pending,
                    Turn::Wait { until: Some(until) } => until,
                };
                match timer.as_mut().as_pin_mut() {
                    Some(timer) if timer.deadline() == until => {}
                    Some(timer) => timer.reset(until),
                    None => timer.set(Some(sleep_until(until))),
                }
                let Some(timer) = timer.as_mut().as_pin_mut() else {
                    return Poll::Pending;
                };
                if timer.poll(context).is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    fn turn(&self, waiter: Waiter, context: &Context<'_>) -> Turn {
        let now = Instant::now();
        let waker = context.waker().clone();
        let (turn, _old_waker) = self.change(now, |inner| {
            let turn = inner.state.poll(waiter, now);
            let old_waker = match turn {
                Turn::Wait { .. } => inner.wakers.insert(waiter, waker),
                Turn::Pass(_) | Turn::Refused { .. } => inner.wakers.remove(&waiter),
            };
            (turn, old_waker)
        });
        turn
    }

    fn pass(self: &Arc<Self>, ticket: Ticket) -> Pass {
        Pass {
            gate: Arc::clone(self),
            ticket: Some(ticket),
        }
    }

    /// Changes the state, and wakes who has to learn of it.
    fn change<R>(&self, now: Instant, event: impl FnOnce(&mut Inner) -> R) -> R {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let result = event(&mut inner);
        let waker = match inner.state.wake(now) {
            Some(waiter) => inner.wakers.remove(&waiter),
            None => None,
        };
        // A waker runs foreign code, which may come back here: when it is woken, and when it is dropped.
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
        result
    }

    fn waiting(&self) -> usize {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.state.waiting()
    }

    /// What forgetting this gate would lose. A closed one is never forgotten: its host would be overrun.
    fn worth(&self, now: Instant) -> Option<u64> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        (!inner.state.is_closed(now)).then(|| u64::from(!inner.state.is_idle(now)))
    }
}

impl Inner {
    fn open_time(
        schedule: &mut Schedule,
        dice: &mut Dice,
        backoff: Backoff,
        retry: u32,
    ) -> Duration {
        if retry == 1 {
            *schedule = Schedule::default();
        }
        schedule.next(backoff, retry, dice)
    }
}

/// A retry that waits here, if it is one. Turned away or dropped, it goes back to the budget.
struct UnsentRetry(Option<Spent>);

impl UnsentRetry {
    fn sent(mut self) {
        self.0 = None;
    }
}

impl Drop for UnsentRetry {
    fn drop(&mut self) {
        if let Some(retry) = &self.0 {
            retry.give_back();
        }
    }
}

/// A place in the queue, left when it is dropped.
struct Place<'a> {
    gate: &'a Gate,
    waiter: Waiter,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let _waker = self.gate.change(Instant::now(), |inner| {
            inner.state.leave(self.waiter);
            inner.wakers.remove(&self.waiter)
        });
    }
}

/// The right to send one attempt, handed on when it is dropped without an answer.
struct Pass {
    gate: Arc<Gate>,
    ticket: Option<Ticket>,
}

impl Pass {
    fn answered(mut self, outcome: Outcome, backoff: Backoff) {
        let now = Instant::now();
        if let Some(ticket) = self.ticket.take() {
            self.gate.change(now, |inner| {
                let Inner {
                    state,
                    schedule,
                    dice,
                    ..
                } = inner;
                state.answered(ticket, outcome, now, &mut |retry| {
                    Inner::open_time(schedule, dice, backoff, retry)
                });
            });
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let now = Instant::now();
        if let Some(ticket) = self.ticket.take() {
            self.gate
                .change(now, |inner| inner.state.dropped(ticket, now));
        }
    }
}
