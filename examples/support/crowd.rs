//! A crowd of clients that all call one host in the same instant, in virtual time.
//!
//! The clients are real ones, retry layer and all; only the host below them is a model. It answers after 10 ms, serves
//! a limited number of requests per second and refuses the others with a 503 that names no wait.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Extensions;
use reqwest::{Method, Request, Response, ResponseBuilderExt, Url};
use reqwest_jitter::RetryAttempt;
use reqwest_middleware::{ClientWithMiddleware, Error, Middleware, Next};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// The width of a bin.
pub(crate) const BIN: Duration = Duration::from_millis(100);

const LATENCY: Duration = Duration::from_millis(10);

/// What became of a crowd.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) bins: Vec<Bin>,
    pub(crate) requests: u64,
    /// The most retries that arrived within one bin.
    pub(crate) peak: u64,
    pub(crate) calls: u64,
    pub(crate) given_up: u64,
    /// When the last call came to its end, well or not.
    pub(crate) done: Duration,
}

/// What arrived within [`BIN`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Bin {
    pub(crate) served: u64,
    pub(crate) refused: u64,
    /// How many of both were not the first attempt of their call.
    pub(crate) retries: u64,
}

/// Sends `clients` calls at once through the client that `build` makes, and waits for the end of the last one.
///
/// `watch` is called now and then, with what has happened so far.
pub(crate) fn gather(
    clients: u32,
    rate: u32,
    build: impl FnOnce(Host) -> ClientWithMiddleware,
    watch: impl Fn(&Outcome) + Send + 'static,
) -> anyhow::Result<Outcome> {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()?
        .block_on(async {
            let host = Host::new(rate, Box::new(watch));
            let client = Arc::new(build(host.clone()));
            let url: Arc<Url> = Arc::new("http://host.test/".parse()?);
            let mut calls = JoinSet::new();
            for _ in 0..clients {
                calls.spawn(call(client.clone(), url.clone(), host.clone()));
            }
            while let Some(call) = calls.join_next().await {
                call?;
            }
            Ok(host.into_outcome())
        })
}

/// One call. Not an `async fn`, which would hold its arguments twice: there may be a million of them.
#[allow(clippy::manual_async_fn)] // For the reason above.
fn call(
    client: Arc<ClientWithMiddleware>,
    url: Arc<Url>,
    host: Host,
) -> impl Future<Output = ()> + Send {
    async move {
        let request = Request::new(Method::GET, Url::clone(&url));
        let answer = client
            .execute_with_extensions(request, &mut Extensions::new())
            .await;
        host.end(answer.is_ok_and(|answer| answer.status().is_success()));
    }
}

/// A host that serves a limited number of requests per second; clones are the same host.
#[derive(Clone)]
pub(crate) struct Host {
    state: Arc<Mutex<State>>,
}

struct State {
    opened: Instant,
    meter: Meter,
    outcome: Outcome,
    watch: Box<dyn Fn(&Outcome) + Send>,
}

impl Host {
    fn new(rate: u32, watch: Box<dyn Fn(&Outcome) + Send>) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                opened: Instant::now(),
                meter: Meter::new(rate),
                outcome: Outcome::default(),
                watch,
            })),
        }
    }

    /// Whether a request that arrives now is served.
    fn arrive(&self, is_retry: bool) -> bool {
        let mut state = self.state();
        let elapsed = state.opened.elapsed();
        let is_served = state.meter.take(elapsed);
        state.outcome.note(elapsed, is_served, is_retry);
        if state.outcome.requests % 4096 == 0 {
            (state.watch)(&state.outcome);
        }
        is_served
    }

    fn end(&self, is_success: bool) {
        let mut state = self.state();
        state.outcome.calls += 1;
        state.outcome.given_up += u64::from(!is_success);
        state.outcome.done = state.opened.elapsed();
    }

    fn into_outcome(self) -> Outcome {
        std::mem::take(&mut self.state().outcome)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// By hand instead of by `async_trait`, so that what waits for an answer is small: there may be a million of them.
impl Middleware for Host {
    fn handle<'this, 'extensions, 'next, 'call>(
        &'this self,
        request: Request,
        extensions: &'extensions mut Extensions,
        _next: Next<'next>,
    ) -> Pin<Box<dyn Future<Output = Result<Response, Error>> + Send + 'call>>
    where
        'this: 'call,
        'extensions: 'call,
        'next: 'call,
        Self: 'call,
    {
        let is_retry = extensions.get::<RetryAttempt>().is_some();
        let status = if self.arrive(is_retry) { 200 } else { 503 };
        let url = Box::new(request.url().clone());
        Box::pin(async move {
            sleep(LATENCY).await;
            answer(status, *url)
        })
    }
}

/// What a model of a host says.
pub(crate) fn answer(status: u16, url: Url) -> Result<Response, Error> {
    http::Response::builder()
        .status(status)
        .url(url)
        .body("")
        .map(Response::from)
        .map_err(Error::middleware)
}

#[allow(clippy::cast_precision_loss)] // Counts that a person reads, or sees in a plot.
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}

impl Outcome {
    pub(crate) fn requests_per_call(&self) -> f64 {
        float(self.requests) / float(self.calls.max(1))
    }

    fn note(&mut self, elapsed: Duration, is_served: bool, is_retry: bool) {
        let index = usize::try_from(elapsed.as_millis() / BIN.as_millis()).unwrap_or(usize::MAX);
        if self.bins.len() <= index {
            self.bins.resize(index + 1, Bin::default());
        }
        let bin = &mut self.bins[index];
        bin.served += u64::from(is_served);
        bin.refused += u64::from(!is_served);
        bin.retries += u64::from(is_retry);
        self.peak = self.peak.max(bin.retries);
        self.requests += 1;
    }
}

/// What a host can bear: so many requests per second, and at once what it serves within its 10 ms.
struct Meter {
    rate: u64,
    /// In thousandths of a request.
    room: u64,
    most: u64,
    read: Duration,
}

impl Meter {
    fn new(rate: u32) -> Self {
        let rate = u64::from(rate);
        let most = (rate * 10).max(1000);
        Self {
            rate,
            room: most,
            most,
            read: Duration::ZERO,
        }
    }

    fn take(&mut self, elapsed: Duration) -> bool {
        // The virtual clock stands still but on whole milliseconds.
        let passed = elapsed.saturating_sub(self.read).as_millis();
        let earned = self
            .rate
            .saturating_mul(u64::try_from(passed).unwrap_or(u64::MAX));
        self.room = self.room.saturating_add(earned).min(self.most);
        self.read = elapsed;
        let is_free = self.room >= 1000;
        if is_free {
            self.room -= 1000;
        }
        is_free
    }
}
