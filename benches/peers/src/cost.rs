//! What a way of retrying costs a call that needs none, and a call that needs one: allocations, instructions, and
//! ratios of times that were taken in turns.

use std::process::Command;
use std::time::{Duration, Instant};

use http::Extensions;
use reqwest::{Body, Method, Request, Url};
use reqwest_jitter::RetryOverride;
use reqwest_middleware::Error;
use tokio::runtime::Runtime;

use crate::contender::{Client, Contender, Plan};
use crate::median;
use crate::origin::{Origin, URL};
use crate::server::Server;
use crate::wire::answer;

const PLAN: Plan = Plan::exponential(Duration::from_secs(1), Duration::from_secs(30), 4);
const AT_ONCE: Plan = Plan::fixed(Duration::ZERO, 1);

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

fn get(url: &Url) -> Request {
    Request::new(Method::GET, url.clone())
}

fn upload(url: &Url) -> Request {
    let mut request = Request::new(Method::PUT, url.clone());
    let pieces = [Ok::<_, std::io::Error>("streamed")];
    *request.body_mut() = Some(Body::wrap_stream(futures_util::stream::iter(pieces)));
    request
}

/// Where a contender's requests end, and what it is measured against there.
struct Place {
    url: Url,
    server: Option<Server>,
}

impl Place {
    /// reqwest's own retry is found below the middlewares, in front of a server; the others in front of an origin.
    fn of(contender: Contender) -> Self {
        let server = (contender == Contender::Own).then(|| Server::new(|_| answer(200, "", b"")));
        Self {
            url: url_of(server.as_ref()),
            server,
        }
    }

    fn client(&self, contender: Contender) -> Client {
        client(contender, self.server.is_none(), PLAN, never)
    }
}

fn url_of(server: Option<&Server>) -> Url {
    match server {
        Some(server) => server.url(),
        None => URL.parse().expect("a URL"),
    }
}

fn client(contender: Contender, is_in_process: bool, plan: Plan, fails: fn(u64) -> bool) -> Client {
    if is_in_process {
        contender.client_to(Origin::new(fails), plan, 1)
    } else {
        contender.client(plan)
    }
}

fn never(_: u64) -> bool {
    false
}

fn every_other(number: u64) -> bool {
    number % 2 == 0
}

/// The median number of allocations of a call in this thread; none if the call fails.
fn allocations(
    client: &Client,
    request: impl Fn() -> Request,
    extensions: &Extensions,
) -> Option<f64> {
    let runtime = runtime();
    let mut counts = Vec::new();
    for call in 0..101 {
        let (request, mut extensions) = (request(), extensions.clone());
        let mut is_success = false;
        let counted = allocation_counter::measure(|| {
            is_success = runtime
                .block_on(async {
                    client
                        .send(request, &mut extensions)
                        .await?
                        .text()
                        .await
                        .map_err(Error::from)
                })
                .is_ok();
        });
        if !is_success {
            return None;
        }
        // The first call opens the connection and fills what is made once for each thread.
        if call > 0 {
            #[allow(clippy::cast_precision_loss)]
            counts.push(counted.count_total as f64);
        }
    }
    Some(median(&mut counts))
}

fn added(
    contender: Contender,
    request: impl Fn(&Url) -> Request,
    extensions: &Extensions,
) -> String {
    let place = Place::of(contender);
    let count = |contender| {
        let client = place.client(contender);
        allocations(&client, || request(&place.url), extensions)
    };
    match (count(Contender::Alone), count(contender)) {
        (Some(alone), Some(with)) => (with - alone).to_string(),
        _ => "fails the call".into(),
    }
}

pub(crate) fn allocations_of_a_get(contender: Contender) -> String {
    added(contender, get, &Extensions::new())
}

pub(crate) fn allocations_of_a_stream(contender: Contender) -> String {
    added(contender, upload, &Extensions::new())
}

pub(crate) fn allocations_when_disabled(contender: Contender) -> String {
    match contender {
        Contender::Here => {
            let mut extensions = Extensions::new();
            extensions.insert(RetryOverride::disabled());
            added(contender, get, &extensions)
        }
        Contender::Backon => "0, by not calling it".into(),
        _ => "no such switch".into(),
    }
}

/// The instructions that a contender adds to a call that succeeds, or why they can't be counted.
pub(crate) fn instructions(contender: Contender) -> Result<i64, String> {
    let place = Place::of(contender);
    let per_call = |contender| instructions_per_call(contender, &place);
    Ok(per_call(contender)? - per_call(Contender::Alone)?)
}

/// What is spent once is in both counts, and leaves with the difference.
fn instructions_per_call(contender: Contender, place: &Place) -> Result<i64, String> {
    const CALLS: i64 = 2000;
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let program = program.with_file_name(format!("send{}", std::env::consts::EXE_SUFFIX));
    let count = |calls: i64| -> Result<i64, String> {
        let mut command = Command::new("valgrind");
        command
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(&program)
            .args([contender.name(), &calls.to_string()]);
        if place.server.is_some() {
            command.arg(place.url.as_str());
        }
        let output = command
            .output()
            .map_err(|error| format!("valgrind: {error}"))?;
        let log = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            return Err(format!(
                "valgrind: {}",
                log.lines().last().unwrap_or_default()
            ));
        }
        log.lines()
            .find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok())
            .ok_or_else(|| "valgrind says no count".into())
    };
    Ok((count(2 * CALLS)? - count(CALLS)?) / CALLS)
}

/// The time that one retry without a delay takes, over the time of an attempt alone: against a server, and within the
/// process, where an attempt takes a microsecond or two.
pub(crate) fn retries_at_once(contenders: &[Contender]) -> Vec<(Contender, String)> {
    let built = || {
        contenders
            .iter()
            .copied()
            .filter(|contender| contender.is_built())
    };
    let within = built().filter(|contender| *contender != Contender::Own);
    let near = ratios(within.collect(), true);
    ratios(built().collect(), false)
        .into_iter()
        .map(|(contender, far)| {
            let near = near.iter().find(|(other, _)| *other == contender);
            let near = near.map_or_else(|| "n/a".into(), |(_, near)| times(*near));
            (contender, format!("{} / {near}", times(far)))
        })
        .collect()
}

/// So precise that a second run says much the same.
fn times(ratio: f64) -> String {
    if ratio < 10.0 {
        format!("{ratio:.1} x")
    } else {
        let magnitude = 10_f64.powf(ratio.log10().floor());
        format!("{} x", (ratio / magnitude).round() * magnitude)
    }
}

fn ratios(contenders: Vec<Contender>, is_in_process: bool) -> Vec<(Contender, f64)> {
    const ROUNDS: usize = 41;
    let runtime = runtime();
    let (failing, healthy) = if is_in_process {
        (None, None)
    } else {
        let failing = |number: usize| answer(if number % 2 == 0 { 503 } else { 200 }, "", b"");
        (
            Some(Server::new(failing)),
            Some(Server::new(|_| answer(200, "", b""))),
        )
    };
    let (failing, healthy) = (url_of(failing.as_ref()), url_of(healthy.as_ref()));
    let alone = client(Contender::Alone, is_in_process, AT_ONCE, never);
    let clients: Vec<_> = contenders
        .iter()
        .map(|contender| {
            [never, every_other].map(|fails| client(*contender, is_in_process, AT_ONCE, fails))
        })
        .collect();
    let mut ratios = vec![Vec::new(); contenders.len()];
    for round in 0..ROUNDS {
        for ([never, once], ratios) in clients.iter().zip(&mut ratios) {
            let attempt = time_per_call(&runtime, &alone, &healthy);
            let without = time_per_call(&runtime, never, &healthy);
            let with = time_per_call(&runtime, once, &failing);
            // The first round opens connections.
            if round > 0 {
                ratios.push((with - without) / attempt);
            }
        }
    }
    let medians = ratios.iter_mut().map(|ratios| median(ratios));
    contenders.into_iter().zip(medians).collect()
}

fn time_per_call(runtime: &Runtime, client: &Client, url: &Url) -> f64 {
    const LONG_ENOUGH: Duration = Duration::from_millis(10);
    let (client, url) = (client.clone(), url.clone());
    // In a task, where requests are sent in earnest.
    let timed = runtime.spawn(async move {
        let start = Instant::now();
        let mut calls = 0.0;
        while start.elapsed() < LONG_ENOUGH {
            for _ in 0..8 {
                let response = client.send(get(&url), &mut Extensions::new()).await;
                let response = response.expect("an answer");
                assert_eq!(response.status(), 200);
                assert!(response.text().await.is_ok());
                calls += 1.0;
            }
        }
        start.elapsed().as_secs_f64() / calls
    });
    runtime.block_on(timed).expect("a time")
}
