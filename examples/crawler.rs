//! One client, three hosts, 300 URLs: what a budget and a gate change, side by side.
//!
//! ```sh
//! cargo run --example crawler
//! ```
//!
//! All hosts live in this process. One is healthy, one limits its rate and says with `Retry-After` when to come back, and
//! one collapses: turning a request away costs it a fifth of what serving it would have cost.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use reqwest_jitter::{Backoff, HostGate, JitteredRetryMiddleware, RetryPolicy};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use tokio::task::JoinSet;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

const URLS_PER_HOST: u32 = 100;
/// As if the hosts were somewhere else.
const ROUND_TRIP: Duration = Duration::from_millis(40);
const POLICY: RetryPolicy = RetryPolicy::new(Backoff::exponential(
    Duration::from_millis(100),
    Duration::from_secs(2),
))
.with_max_attempts(8);

#[tokio::main]
async fn main() {
    println!("300 URLs on three hosts, 100 each, all at once; at most 8 attempts per URL\n");
    println!("                   requests per URL             last answer after, in s");
    println!(
        "                 healthy limited collapsing   healthy limited collapsing   fetched   per s"
    );
    let retry = || JitteredRetryMiddleware::new(POLICY);
    crawl("jitter alone", |client| {
        client.with(retry().without_budget())
    })
    .await;
    crawl("budget", |client| client.with(retry())).await;
    crawl("gate", |client| {
        client.with(retry().without_budget()).with(HostGate::new())
    })
    .await;
    crawl("budget and gate", |client| {
        client.with(retry()).with(HostGate::new())
    })
    .await;
    println!(
        "\nWithout a gate, each URL finds out for itself that a host is busy. A budget ends the asking"
    );
    println!(
        "early, at the price of URLs that are not fetched; with a gate they wait for their turn."
    );
}

/// Crawls fresh hosts with a client, and prints a row about it.
async fn crawl(name: &str, layers: impl FnOnce(ClientBuilder) -> ClientBuilder) {
    let hosts = [
        Host::healthy().await,
        Host::limited().await,
        Host::collapsing().await,
    ];
    // The hosts are on this machine.
    let http = reqwest::Client::builder()
        .no_proxy()
        .build()
        .expect("a client");
    let client = layers(ClientBuilder::new(http)).build();
    let started = Instant::now();
    let mut pages = JoinSet::new();
    for (index, host) in hosts.iter().enumerate() {
        for page in 0..URLS_PER_HOST {
            let url = format!("{}/page/{page}", host.server.uri());
            pages.spawn(fetch(client.clone(), url, index));
        }
    }
    let (mut fetched, mut last) = (0_u32, [Duration::ZERO; 3]);
    while let Some(page) = pages.join_next().await {
        let (host, is_fetched) = page.expect("a page that does not panic");
        fetched += u32::from(is_fetched);
        last[host] = started.elapsed();
    }
    let seconds = started.elapsed().as_secs_f64();
    let asked = hosts.map(|host| {
        f64::from(host.load.lock().expect("no panics").asked) / f64::from(URLS_PER_HOST)
    });
    let last = last.map(|last| last.as_secs_f64());
    println!(
        "{name:<16} {:>7.2} {:>7.2} {:>10.2}   {:>7.2} {:>7.2} {:>10.2}   {fetched:>3}/300 {:>7.1}",
        asked[0],
        asked[1],
        asked[2],
        last[0],
        last[1],
        last[2],
        f64::from(fetched) / seconds,
    );
}

async fn fetch(client: ClientWithMiddleware, url: String, host: usize) -> (usize, bool) {
    let is_fetched = match client.get(url).send().await {
        Ok(response) => response.status().is_success(),
        Err(_) => false,
    };
    (host, is_fetched)
}

/// A server, and what it has been asked.
struct Host {
    server: MockServer,
    load: Arc<Mutex<Load>>,
}

/// How much a host can serve, as tokens: it gains some with time, and requests cost them.
struct Load {
    asked: u32,
    tokens: f64,
    per_second: f64,
    burst: f64,
    /// What it costs to turn a request away.
    refusal: f64,
    filled_at: Instant,
}

struct Answers {
    load: Arc<Mutex<Load>>,
    is_naming_time: bool,
}

impl Host {
    async fn healthy() -> Self {
        Self::start(10_000.0, 1_000.0, 0.0, false).await
    }

    async fn limited() -> Self {
        Self::start(50.0, 50.0, 0.0, true).await
    }

    async fn collapsing() -> Self {
        Self::start(50.0, 5.0, 0.2, false).await
    }

    async fn start(per_second: f64, burst: f64, refusal: f64, is_naming_time: bool) -> Self {
        let load = Arc::new(Mutex::new(Load {
            asked: 0,
            tokens: burst,
            per_second,
            burst,
            refusal,
            filled_at: Instant::now(),
        }));
        let answers = Answers {
            load: Arc::clone(&load),
            is_naming_time,
        };
        let server = MockServer::start().await;
        Mock::given(any())
            .respond_with(answers)
            .mount(&server)
            .await;
        Self { server, load }
    }
}

impl Respond for Answers {
    fn respond(&self, _: &Request) -> ResponseTemplate {
        let is_served = self.load.lock().expect("no panics").serve();
        match (is_served, self.is_naming_time) {
            (true, _) => ResponseTemplate::new(200),
            (false, true) => ResponseTemplate::new(429).insert_header("Retry-After", "1"),
            (false, false) => ResponseTemplate::new(503),
        }
        .set_delay(ROUND_TRIP)
    }
}

impl Load {
    fn serve(&mut self) -> bool {
        self.asked += 1;
        let gained = self.filled_at.elapsed().as_secs_f64() * self.per_second;
        self.filled_at = Instant::now();
        self.tokens = (self.tokens + gained).min(self.burst);
        let is_served = self.tokens >= 1.0;
        // Turning requests away can keep a host busy for longer than it has been idle.
        self.tokens = (self.tokens - if is_served { 1.0 } else { self.refusal }).max(-self.burst);
        is_served
    }
}
