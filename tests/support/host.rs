//! A host under virtual time: it bears so much and no more, is down for a while, or fails at random.

#![allow(dead_code)] // Every test binary uses its own part of this.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Extensions;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use reqwest::{Request, Response, ResponseBuilderExt};
use reqwest_middleware::{Error, Middleware, Next};
use tokio::time::{Instant, sleep};

const LATENCY: Duration = Duration::from_millis(10);

/// A terminal middleware that answers like a host of limited strength.
#[derive(Clone)]
pub(crate) struct Host {
    state: Arc<Mutex<State>>,
}

struct State {
    start: Instant,
    limit: Option<Limit>,
    /// Answers 503 without a hint while it lasts, counted from the start.
    down: Range<Duration>,
    /// Answers 429 and names its end while it lasts.
    pause: Range<Duration>,
    random_failures: f64,
    /// Whoever is more than it bears gets 429 and this `Retry-After`, not 503.
    names: Option<&'static str>,
    dice: Xoshiro256PlusPlus,
    arrivals: Vec<Arrival>,
}

/// A token bucket.
struct Limit {
    per_second: f64,
    burst: f64,
    tokens: f64,
    filled_at: Instant,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// Since the start.
    pub(crate) at: Duration,
    pub(crate) status: u16,
}

impl Host {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                start: Instant::now(),
                limit: None,
                down: Duration::ZERO..Duration::ZERO,
                pause: Duration::ZERO..Duration::ZERO,
                random_failures: 0.0,
                names: None,
                dice: Xoshiro256PlusPlus::seed_from_u64(seed),
                arrivals: Vec::new(),
            })),
        }
    }

    fn with(self, change: impl FnOnce(&mut State)) -> Self {
        change(&mut self.state.lock().unwrap());
        self
    }

    /// Serves so many per second, with a tenth of a second's worth in hand, and one at least.
    pub(crate) fn serving(self, per_second: f64) -> Self {
        let burst = (per_second / 10.0).max(1.0);
        self.with(|state| {
            state.limit = Some(Limit {
                per_second,
                burst,
                tokens: burst,
                filled_at: Instant::now(),
            });
        })
    }

    pub(crate) fn down(self, down: Range<Duration>) -> Self {
        self.with(|state| state.down = down)
    }

    pub(crate) fn pausing(self, pause: Range<Duration>) -> Self {
        self.with(|state| state.pause = pause)
    }

    pub(crate) fn failing_at_random(self, share: f64) -> Self {
        self.with(|state| state.random_failures = share)
    }

    pub(crate) fn naming(self, retry_after: &'static str) -> Self {
        self.with(|state| state.names = Some(retry_after))
    }

    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        self.state.lock().unwrap().arrivals.clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.state.lock().unwrap().arrivals.len()
    }
}

impl State {
    fn answer(&mut self) -> http::response::Builder {
        let now = Instant::now();
        let at = now - self.start;
        let builder = http::Response::builder();
        let (status, builder) = if self.pause.contains(&at) {
            let wait = self.pause.end.saturating_sub(at).as_secs_f64();
            (429, builder.header("retry-after", format!("{wait:.3}")))
        } else if self.down.contains(&at)
            || !self.limit.as_mut().is_none_or(|limit| limit.takes(now))
        {
            match self.names {
                Some(retry_after) => (429, builder.header("retry-after", retry_after)),
                None => (503, builder),
            }
        } else if self.dice.random::<f64>() < self.random_failures {
            (500, builder)
        } else {
            (200, builder)
        };
        self.arrivals.push(Arrival { at, status });
        builder.status(status)
    }
}

impl Limit {
    fn takes(&mut self, now: Instant) -> bool {
        let elapsed = (now - self.filled_at).as_secs_f64();
        self.filled_at = now;
        self.tokens = (self.tokens + elapsed * self.per_second).min(self.burst);
        // Tokens are whole in principle; a sum of binary fractions need not be.
        let is_taken = self.tokens > 1.0 - 1e-6;
        if is_taken {
            self.tokens -= 1.0;
        }
        is_taken
    }
}

#[async_trait::async_trait]
impl Middleware for Host {
    async fn handle(
        &self,
        request: Request,
        _: &mut Extensions,
        _: Next<'_>,
    ) -> Result<Response, Error> {
        let answer = self.state.lock().unwrap().answer();
        sleep(LATENCY).await;
        Ok(answer.url(request.url().clone()).body("").unwrap().into())
    }
}
