//! Many calls at once, under virtual time: what a host in trouble gets to see of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Extensions;
use reqwest::{Method, Request, Response, Url};
use reqwest_middleware::{Error, Middleware, Next};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::contender::{Client, Contender, Plan};
use crate::host::Host;
use crate::median;
use crate::server::Server;
use crate::wire::answer;

const SECOND: Duration = Duration::from_secs(1);
const SEEDS: u64 = 5;

/// Turns everybody away until the moment that it names.
#[derive(Clone)]
struct Closed {
    until: Instant,
    early: Arc<AtomicUsize>,
    count: Arc<AtomicUsize>,
}

#[async_trait::async_trait]
impl Middleware for Closed {
    async fn handle(
        &self,
        _request: Request,
        _extensions: &mut Extensions,
        _next: Next<'_>,
    ) -> Result<Response, Error> {
        self.count.fetch_add(1, Ordering::Relaxed);
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(http::Response::new("").into());
        }
        self.early.fetch_add(1, Ordering::Relaxed);
        let response = http::Response::builder()
            .status(429)
            .header("retry-after", left.as_secs_f64().ceil().to_string());
        Ok(response.body("").expect("a response").into())
    }
}

/// The share of the retries that come before the moment which `Retry-After` named: 1000 calls, 5 seconds, a backoff
/// from 1 second on with jitter, 4 retries.
pub(crate) fn early_retries(contender: Contender) -> String {
    const CALLS: usize = 1000;
    let plan = Plan::exponential(SECOND, 30 * SECOND, 4);
    let (retries, early) = if contender == Contender::Own {
        // In real time, which is over before a second has passed.
        let server = Server::new(|_| answer(429, "retry-after: 5\r\n", b""));
        let client = contender.client(plan);
        let url = server.url();
        let start = Instant::now();
        runtime(false).block_on(async {
            for _ in 0..CALLS {
                is_served(&client, url.clone()).await;
            }
        });
        assert!(start.elapsed() < 5 * SECOND);
        (server.requests() - CALLS, server.requests() - CALLS)
    } else {
        runtime(true).block_on(async {
            let host = Closed {
                until: Instant::now() + 5 * SECOND,
                early: Arc::default(),
                count: Arc::default(),
            };
            let client = contender.client_to(host.clone(), plan, 1);
            crowd(&client, vec![Duration::ZERO; CALLS]).await;
            let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed) - CALLS;
            (count(&host.count), count(&host.early))
        })
    };
    #[allow(clippy::cast_precision_loss)]
    let percent = 100.0 * early as f64 / retries as f64;
    format!("{percent:.0} %")
}

/// Requests per call where every answer is a 503: 10 000 calls within 10 seconds, 3 retries.
pub(crate) fn requests_in_an_outage(contender: Contender) -> String {
    const CALLS: u32 = 10_000;
    let plan = Plan::exponential(SECOND / 10, 10 * SECOND, 3);
    let requests = if contender == Contender::Own {
        let server = Server::new(|_| answer(503, "", b""));
        let client = contender.client(plan);
        let url = server.url();
        runtime(false).block_on(async {
            for _ in 0..CALLS {
                is_served(&client, url.clone()).await;
            }
        });
        server.requests()
    } else {
        runtime(true).block_on(async {
            let host = Host::new(1).down(Duration::ZERO..3600 * SECOND);
            let client = contender.client_to(host.clone(), plan, 1);
            crowd(&client, evenly(CALLS, 10 * SECOND)).await;
            host.count()
        })
    };
    #[allow(clippy::cast_precision_loss)]
    let per_call = requests as f64 / f64::from(CALLS);
    format!("{per_call:.2}")
}

/// What a crowd does to a host that bears less than everybody at once: requests per call, the time over the ideal
/// one, and how many gave up. Medians of five seeds.
pub(crate) fn overload(contender: Contender, calls: u32, per_second: u32) -> String {
    let mut runs = runs(|seed| {
        let host = Host::new(seed).serving(f64::from(per_second));
        let starts = vec![Duration::ZERO; calls as usize];
        Run::of(contender, &host, starts, seed)
    });
    let ideal = f64::from(calls) / f64::from(per_second);
    let requests = median(
        &mut runs
            .iter_mut()
            .map(|run| run.requests / f64::from(calls))
            .collect::<Vec<_>>(),
    );
    let time = median(&mut runs.iter().map(|run| run.time / ideal).collect::<Vec<_>>());
    let gave_up = median(&mut runs.iter().map(|run| run.gave_up).collect::<Vec<_>>());
    format!("{requests:.2} / {time:.2} / {gave_up}")
}

/// The time that calls take with a gate, over the time without one: at 500 per second with 5 % random 500s, and for
/// 1000 that a pause of 2 seconds made wait. Medians of five seeds.
pub(crate) fn gate_over_none(is_paused: bool) -> String {
    let pause = if is_paused {
        2 * SECOND
    } else {
        Duration::ZERO
    };
    let timed = |contender| {
        runs(move |seed| {
            let mut host = Host::new(seed).pausing(SECOND..SECOND + pause);
            if !is_paused {
                host = host.failing_at_random(0.05);
            }
            let starts = evenly(5000, 10 * SECOND);
            Run::of(contender, &host, starts, seed)
        })
    };
    let (with, without) = (
        timed(Contender::HereWithGate),
        timed(Contender::HereWithoutBudget),
    );
    let mut ratios: Vec<_> = with
        .iter()
        .zip(&without)
        .map(|(with, without)| with.time / without.time)
        .collect();
    format!("{:.2}", median(&mut ratios))
}

struct Run {
    requests: f64,
    time: f64,
    gave_up: f64,
}

impl Run {
    #[allow(clippy::cast_precision_loss)]
    fn of(
        contender: Contender,
        host: &Host,
        starts: Vec<Duration>,
        seed: u64,
    ) -> impl Future<Output = Self> + use<> {
        let plan = Plan::exponential(SECOND / 10, 10 * SECOND, 5);
        let client = contender.client_to(host.clone(), plan, seed);
        let host = host.clone();
        async move {
            let start = Instant::now();
            let gave_up = crowd(&client, starts).await;
            Self {
                requests: host.count() as f64,
                time: start.elapsed().as_secs_f64(),
                gave_up: gave_up as f64,
            }
        }
    }
}

fn runs<F: Future<Output = Run>>(run: impl Fn(u64) -> F) -> Vec<Run> {
    (1..=SEEDS)
        // The clock of a paused runtime is that of its own.
        .map(|seed| runtime(true).block_on(async { run(seed).await }))
        .collect()
}

/// Sends calls at their moments; returns how many were given up.
async fn crowd(client: &Client, starts: Vec<Duration>) -> usize {
    let now = Instant::now();
    let mut calls = JoinSet::new();
    for at in starts {
        let client = client.clone();
        calls.spawn(async move {
            sleep_until(now + at).await;
            is_served(&client, "http://origin.test/".parse().expect("a URL")).await
        });
    }
    let served = calls.join_all().await;
    served.into_iter().filter(|is_served| !is_served).count()
}

async fn is_served(client: &Client, url: Url) -> bool {
    let request = Request::new(Method::GET, url);
    let response = client.send(request, &mut Extensions::new()).await;
    response.is_ok_and(|response| response.status() == 200)
}

fn evenly(calls: u32, within: Duration) -> Vec<Duration> {
    (0..calls).map(|number| within * number / calls).collect()
}

fn runtime(is_paused: bool) -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(is_paused)
        .build()
        .expect("a runtime")
}
