//! The contention model of Marc Brooker's "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015): clients that
//! read a row and write it back, where a write counts only if nobody else has written in between.
//!
//! All clients begin at once, so that in each round one of them succeeds and the others have to come again. Messages
//! take a normally distributed time. A call through the retry layer is one read and one write.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Extensions;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use reqwest::{Request, Response};
use reqwest_jitter::{Backoff, Jitter, JitteredRetryMiddleware, RetryPolicy};
use reqwest_middleware::{ClientBuilder, Error, Middleware, Next};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::crowd::answer;

/// One row of the published table: calls, and the time until the last client was done.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) backoff: Backoff,
    pub(crate) published_calls: f64,
    pub(crate) published_ms: f64,
}

/// A millisecond of the model is a second here: the timer's resolution is a whole millisecond, and who comes first in
/// the model is a matter of microseconds.
const MILLISECOND: Duration = Duration::from_secs(1);
const CLIENTS: u32 = 100;

/// The published simulator doubles before its first delay, so that its base of 5 ms is our base of 10 ms.
pub(crate) fn rows() -> [Row; 5] {
    let backoff =
        |jitter| Backoff::exponential(10 * MILLISECOND, 2000 * MILLISECOND).with_jitter(jitter);
    let decorrelated =
        Backoff::exponential(5 * MILLISECOND, 2000 * MILLISECOND).with_jitter(Jitter::Decorrelated);
    let row = |name, backoff, published_calls, published_ms| Row {
        name,
        backoff,
        published_calls,
        published_ms,
    };
    [
        row("no backoff", Backoff::fixed(Duration::ZERO), 2424.0, 2032.0),
        row("no jitter", backoff(Jitter::None), 1849.0, 63_127.0),
        row("equal", backoff(Jitter::Equal), 812.0, 6667.0),
        row("full", backoff(Jitter::Full), 795.0, 4795.0),
        row("decorrelated", decorrelated, 1005.0, 4630.0),
    ]
}

/// Calls and milliseconds until the last client is done, as the mean of so many runs.
pub(crate) fn simulate(backoff: Backoff, runs: u32) -> (f64, f64) {
    let (mut calls, mut milliseconds) = (0.0, 0.0);
    for seed in 0..runs {
        let (run_calls, run_milliseconds) = run(backoff, u64::from(seed));
        calls += run_calls;
        milliseconds += run_milliseconds;
    }
    (calls / f64::from(runs), milliseconds / f64::from(runs))
}

fn run(backoff: Backoff, seed: u64) -> (f64, f64) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let row = Contended::new(seed);
        let policy = RetryPolicy::new(backoff).with_max_attempts(u32::MAX);
        let retry = JitteredRetryMiddleware::new(policy)
            .without_budget()
            .with_seed(seed);
        let client = ClientBuilder::new(reqwest::Client::new())
            .with(retry)
            .with(row.clone())
            .build();
        let start = Instant::now();
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            clients.spawn(client.get("http://row.test/").send());
        }
        clients.join_all().await;
        let calls = row.with(|state| state.calls);
        let milliseconds = start.elapsed().as_secs_f64() / MILLISECOND.as_secs_f64();
        (f64::from(calls), milliseconds)
    })
}

/// The row that everybody writes.
#[derive(Clone)]
struct Contended {
    state: Arc<Mutex<State>>,
}

struct State {
    version: u32,
    calls: u32,
    dice: Xoshiro256PlusPlus,
}

impl Contended {
    fn new(seed: u64) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                version: 0,
                calls: 0,
                dice: Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x5eed),
            })),
        }
    }

    fn with<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn message(&self) {
        sleep(self.with(State::travel_time)).await;
    }

    async fn read_and_write(&self) -> bool {
        self.message().await;
        let read = self.with(|state| state.version);
        self.message().await;
        self.message().await;
        let is_written = self.with(|state| state.write(read));
        self.message().await;
        is_written
    }
}

impl State {
    /// Normally distributed, with a mean of 10 ms and a deviation of 2 ms (Box and Muller, 1958).
    fn travel_time(&mut self) -> Duration {
        let radius = (-2.0 * (1.0 - self.dice.random::<f64>()).ln()).sqrt();
        let angle = std::f64::consts::TAU * self.dice.random::<f64>();
        MILLISECOND.mul_f64((10.0 + 2.0 * radius * angle.cos()).abs())
    }

    fn write(&mut self, read: u32) -> bool {
        self.calls += 1;
        let is_current = read == self.version;
        self.version += u32::from(is_current);
        is_current
    }
}

#[async_trait::async_trait]
impl Middleware for Contended {
    async fn handle(
        &self,
        request: Request,
        _extensions: &mut Extensions,
        _next: Next<'_>,
    ) -> Result<Response, Error> {
        let status = if self.read_and_write().await {
            200
        } else {
            503
        };
        answer(status, request.url().clone())
    }
}
