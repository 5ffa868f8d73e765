//! Owns the rule that nothing is left over: an hour of traffic to a thousand hosts that fail, with callers that give up,
//! panic or ask for something of their own; and then half a minute of it on real sockets.

mod support;
#[path = "support/wire.rs"]
mod wire;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Extensions;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use reqwest::{Method, Request, Response, ResponseBuilderExt, Url};
use reqwest_jitter::{
    Backoff, GateClosed, HostGate, JitteredRetryMiddleware, RetryAttempt, RetryBudget,
    RetryOverride, RetryPolicy, RetryReport, StopReason,
};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Error, Middleware, Next};
use support::{ScriptedOrigin, status};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use wire::{Reply, Wire, answer, plain, response};

const HOSTS: u32 = 1000;
const CALLS: u32 = 30_000;
const BURST: u32 = 40;
const HOUR: Duration = Duration::from_secs(3600);

/// All hosts at once. Each has good and bad minutes, answers at random, and now and then kills the task that asks.
#[derive(Clone)]
struct World {
    state: Arc<Mutex<WorldState>>,
}

struct WorldState {
    dice: Xoshiro256PlusPlus,
    start: Instant,
    /// The attempts of each call, as the hosts saw them: number, status.
    calls: HashMap<String, Vec<(u32, u16)>>,
    /// Retries per host.
    retries: HashMap<String, u32>,
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            state: Arc::new(Mutex::new(WorldState {
                dice: Xoshiro256PlusPlus::seed_from_u64(seed),
                start: Instant::now(),
                calls: HashMap::new(),
                retries: HashMap::new(),
            })),
        }
    }
}

impl WorldState {
    fn answer(
        &mut self,
        request: &Request,
        attempt: Option<&RetryAttempt>,
    ) -> (u16, Option<u32>, Duration) {
        let host = request.url().host_str().unwrap().to_owned();
        let minute = self.start.elapsed().as_secs() / 60;
        let is_bad_minute = (minute + hash(&host)) % 3 == 0;
        let status = match (is_bad_minute, self.dice.random_range(0..100_u32)) {
            (true, 0..40) => 503,
            (true, 40..60) => 429,
            (true, 60..70) | (false, 0..2) => 500,
            (false, 2..4) => 404,
            _ => 200,
        };
        let hint = (status == 429).then(|| self.dice.random_range(0..20_u32));
        let takes = Duration::from_millis(self.dice.random_range(1..500));
        let number = attempt.map_or(1, RetryAttempt::number);
        let id = request.headers()["x-call"].to_str().unwrap().to_owned();
        self.calls.entry(id).or_default().push((number, status));
        if number > 1 {
            *self.retries.entry(host).or_default() += 1;
        }
        (status, hint, takes)
    }
}

fn hash(text: &str) -> u64 {
    text.bytes().map(u64::from).sum()
}

#[async_trait::async_trait]
impl Middleware for World {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        _: Next<'_>,
    ) -> Result<Response, Error> {
        let (status, hint, takes) = self
            .state
            .lock()
            .unwrap()
            .answer(&request, extensions.get());
        sleep(takes).await;
        if request.headers().contains_key("x-panic") {
            // As a panic, but without a message for each on the terminal.
            std::panic::resume_unwind(Box::new(()));
        }
        let mut builder = http::Response::builder()
            .status(status)
            .url(request.url().clone());
        if let Some(hint) = hint {
            builder = builder.header("retry-after", hint);
        }
        Ok(builder.body("").unwrap().into())
    }
}

/// How a call ended, as its caller saw it.
enum End {
    Response(u16, Option<u32>),
    Closed,
    GaveUp,
}

struct Plan {
    at: Duration,
    request: Request,
    settings: Option<RetryOverride>,
    patience: Option<Duration>,
}

fn plan(number: u32, dice: &mut Xoshiro256PlusPlus) -> Plan {
    let methods = [Method::GET, Method::PUT, Method::POST];
    let url: Url = format!("http://host-{}.test/", dice.random_range(0..HOSTS))
        .parse()
        .unwrap();
    let mut request = Request::new(methods[dice.random_range(0..3_usize)].clone(), url);
    let headers = request.headers_mut();
    headers.insert("x-call", number.to_string().parse().unwrap());
    if dice.random_range(0..500_u32) == 0 {
        headers.insert("x-panic", "1".parse().unwrap());
    }
    let settings = match dice.random_range(0..10_u32) {
        0 => Some(RetryOverride::disabled()),
        1 => Some(RetryOverride::new().with_max_attempts(2)),
        2 => Some(RetryOverride::new().with_max_elapsed(Duration::from_secs(5))),
        3 => Some(RetryOverride::new().with_backoff(Backoff::fixed(Duration::ZERO))),
        _ => None,
    };
    Plan {
        at: dice.random_range(Duration::ZERO..HOUR),
        request,
        settings,
        patience: (dice.random_range(0..4_u32) == 0)
            .then(|| Duration::from_millis(dice.random_range(0..20_000))),
    }
}

async fn call(client: ClientWithMiddleware, start: Instant, plan: Plan) -> End {
    sleep_until(start + plan.at).await;
    let mut extensions = Extensions::new();
    if let Some(settings) = plan.settings {
        extensions.insert(settings);
    }
    let sent = client.execute_with_extensions(plan.request, &mut extensions);
    let result = match plan.patience {
        Some(patience) => match timeout(patience, sent).await {
            Ok(result) => result,
            Err(_) => return End::GaveUp,
        },
        None => sent.await,
    };
    match result {
        Ok(response) => End::Response(
            response.status().as_u16(),
            RetryReport::of(&response).map(RetryReport::attempts),
        ),
        Err(error) => {
            assert!(GateClosed::of(&error).is_some(), "{error:?}");
            End::Closed
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_hour_of_trouble_leaves_nothing_behind() {
    let (world, gate) = (
        World::new(1),
        HostGate::new().with_max_wait(Duration::from_secs(3)),
    );
    // Without a reserve, tokens can be counted: what was not spent must still be there.
    let budget = RetryBudget::new()
        .with_burst(BURST)
        .with_reserve_per_sec(0)
        .with_extra_load_percent(0);
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(JitteredRetryMiddleware::default().with_budget(budget.clone()))
        .with(gate.clone())
        .with(world.clone())
        .build();
    let mut dice = Xoshiro256PlusPlus::seed_from_u64(2);
    let start = Instant::now();
    let mut calls = HashMap::new();
    let mut running = JoinSet::new();
    for number in 0..CALLS {
        let plan = plan(number, &mut dice);
        let client = client.clone();
        let is_post = plan.request.method() == Method::POST;
        let is_panicking = plan.request.headers().contains_key("x-panic");
        calls.insert(number, (is_post, is_panicking));
        running.spawn(async move { (number, call(client, start, plan).await) });
    }

    let (mut ends, mut panics) = (HashMap::new(), 0);
    while let Some(end) = running.join_next().await {
        match end {
            Ok((number, end)) => drop(ends.insert(number, end)),
            Err(error) => panics += u32::from(error.is_panic()),
        }
    }

    assert!(panics > 10);
    assert_eq!(
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks(),
        0
    );
    assert!(format!("{gate:?}").contains("waiting: 0"), "{gate:?}");
    let met = check(&calls, &ends, &world);
    assert!(met.iter().all(|count| *count > 10), "{met:?}");

    // What each host has left of its tokens is what was not spent there.
    let retries = world.state.lock().unwrap().retries.clone();
    let mut hosts = 0;
    for (host, spent) in retries {
        hosts += 1;
        let left = left_over(&budget, &host).await;
        assert_eq!(spent + left, BURST, "{host}");
    }
    assert!(hosts > 500, "{hosts}");
}

/// Compares what the hosts saw of each call with what its caller was told, and counts the ways in which calls ended.
fn check(calls: &HashMap<u32, (bool, bool)>, ends: &HashMap<u32, End>, world: &World) -> [u32; 4] {
    let state = world.state.lock().unwrap();
    let mut met = [0; 4];
    for (number, (is_post, is_panicking)) in calls {
        let seen = state
            .calls
            .get(&number.to_string())
            .map_or(&[][..], Vec::as_slice);
        let numbers: Vec<_> = seen.iter().map(|(number, _)| *number).collect();
        let expected: Vec<_> = (1..).take(seen.len()).collect();
        assert_eq!(
            numbers, expected,
            "call {number}: no attempt twice, none left out"
        );
        let is_repeated_blindly = seen.iter().rev().skip(1).any(|(_, status)| *status != 429);
        assert!(!is_post || !is_repeated_blindly, "a POST, {seen:?}");
        match ends.get(number) {
            Some(End::Response(status, attempts)) => {
                met[0] += 1;
                assert_eq!(seen.len(), attempts.unwrap_or(1) as usize, "call {number}");
                assert_eq!(seen.last().unwrap().1, *status);
            }
            Some(End::Closed) => met[1] += 1,
            Some(End::GaveUp) => met[2] += 1,
            None => {
                met[3] += 1;
                assert!(is_panicking);
            }
        }
    }
    met
}

/// How many retries a budget still grants to a host: one call asks until there are none left.
async fn left_over(budget: &RetryBudget, host: &str) -> u32 {
    let origin = ScriptedOrigin::new([status(503)]);
    let policy = RetryPolicy::new(Backoff::fixed(Duration::ZERO)).with_max_attempts(u32::MAX);
    let client = origin.client(JitteredRetryMiddleware::new(policy).with_budget(budget.clone()));
    let response = client.get(format!("http://{host}/")).send().await.unwrap();
    let report = RetryReport::of(&response).unwrap();
    assert_eq!(report.stop(), StopReason::BudgetExhausted);
    report.retries()
}

/// The same, for half a minute and with sockets: half answers, resets and stalls, and callers that give up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes half a minute; .ci/run asks for it"]
async fn half_a_minute_on_the_wire_leaves_nothing_behind() {
    let budget = RetryBudget::new()
        .with_burst(100_000)
        .with_reserve_per_sec(0)
        .with_extra_load_percent(0);
    let gate = HostGate::new().with_open_backoff(Backoff::fixed(Duration::from_millis(5)));
    let policy = RetryPolicy::new(Backoff::exponential(
        Duration::from_millis(1),
        Duration::from_millis(20),
    ));
    let tasks_before = tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks();
    let mut dice = Xoshiro256PlusPlus::seed_from_u64(3);
    let faults = Arc::new(Mutex::new(Xoshiro256PlusPlus::seed_from_u64(4)));
    let server = Wire::serve(
        move |_| match faults.lock().unwrap().random_range(0..20_u32) {
            0 => answer(503, "", &[b'x'; 1024]),
            1 => answer(503, "retry-after: 0\r\n", &vec![b'x'; 70_000]),
            2 => answer(429, "retry-after: 0.003\r\n", b""),
            3 => Reply::SendAndClose(vec![]),
            4 => Reply::SendAndReset(b"HTTP/1.1 200".to_vec()),
            5 => {
                Reply::SendAndStall(b"HTTP/1.1 503 Busy\r\ncontent-length: 9\r\n\r\nhalf".to_vec())
            }
            6 => Reply::SendAndClose(response(500, "", b"bye")),
            _ => answer(200, "", b"fine"),
        },
    )
    .await;
    let inner = plain()
        .timeout(Duration::from_millis(100))
        .pool_max_idle_per_host(0)
        .build()
        .unwrap();
    let client = ClientBuilder::new(inner)
        .with(JitteredRetryMiddleware::new(policy).with_budget(budget.clone()))
        .with(gate.clone())
        .build();

    let (start, mut calls_made) = (Instant::now(), 0_usize);
    let attempts = Arc::new(AtomicUsize::new(0));
    while start.elapsed() < Duration::from_secs(30) {
        let mut calls = JoinSet::new();
        for _ in 0..50 {
            calls_made += 1;
            let patience = Duration::from_millis(dice.random_range(1..400));
            let request = client.get(server.url("/")).send();
            let attempts = Arc::clone(&attempts);
            calls.spawn(async move {
                if let Ok(Ok(response)) = timeout(patience, request).await {
                    let report = RetryReport::of(&response).map_or(1, RetryReport::attempts);
                    attempts.fetch_add(report as usize, Ordering::SeqCst);
                }
            });
        }
        calls.join_all().await;
    }
    drop(client);

    until(|| server.open() == 0).await;
    until(|| {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
            <= tasks_before + 1
    })
    .await;
    assert!(format!("{gate:?}").contains("waiting: 0"), "{gate:?}");
    assert!(server.count() >= attempts.load(Ordering::SeqCst));
    assert!(calls_made > 500, "{calls_made}");
    // Each request is a call or a retry, and each retry was paid for, but for those that were dropped on their way.
    let host = server.address.to_string();
    let spent = 100_000 - left_over(&budget, &host).await as usize;
    assert!(
        server.count() <= calls_made + spent,
        "{} of {calls_made} + {spent}",
        server.count()
    );
}

async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        sleep(Duration::from_millis(1)).await;
    }
}
