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
    // Kept for as long as it is asked.
    _server: Option<Server>,
}

impl Place {
    /// reqwest's own retry is found below the middlewares, in front of a server; the others in front of an origin.
    fn of(contender: Contender) -> Self {
        let server = (contender == Contender::Own).then(|| Server::new(|_| answer(200, "", b"")));
        Self {
            url: url_of(server.as_ref()),
            _server: server,
        }
    }

    fn client(&self, contender: Contender) -> Client {
        client(contender, self._server.is_none(), PLAN, 200)
    }
}

fn url_of(server: Option<&Server>) -> Url {
    match server {
        Some(server) => server.url(),
        None => URL.parse().expect("a URL"),
    }
}

fn client(contender: Contender, is_in_process: bool, plan: Plan, others: u16) -> Client {
    if is_in_process {
        contender.client_to(Origin::new(others), plan, 1)
    } else {
        contender.client(plan)
    }
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
) -> Option<f64> {
    let place = Place::of(contender);
    let request = || request(&place.url);
    let alone = allocations(&place.client(Contender::Alone), request, &Extensions::new())?;
    Some(allocations(&place.client(contender), request, extensions)? - alone)
}

pub(crate) fn allocations_added_to_a_get(contender: Contender) -> String {
    added(contender, get, &Extensions::new())
        .map_or_else(|| "fails the call".into(), |added| added.to_string())
}

pub(crate) fn allocations_added_to_a_stream(contender: Contender) -> String {
    added(contender, upload, &Extensions::new())
        .map_or_else(|| "fails the call".into(), |added| added.to_string())
}

pub(crate) fn allocations_added_when_disabled(contender: Contender) -> String {
    let mut extensions = Extensions::new();
    extensions.insert(RetryOverride::disabled());
    match contender {
        Contender::Here => added(contender, get, &extensions)
            .map_or_else(|| "fails the call".into(), |added| added.to_string()),
        Contender::Backon => "0, by not calling it".into(),
        _ => "no such switch".into(),
    }
}

/// The instructions that a contender adds to a call that succeeds, or why they can't be counted.
pub(crate) fn instructions_added(contender: Contender) -> Result<i64, String> {
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
        if place._server.is_some() {
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

/// The time that one retry without a delay takes, over the time of an attempt alone: within the process, where an
/// attempt takes half a microsecond, and against a server.
pub(crate) fn retries_at_once(contenders: &[Contender]) -> Vec<(Option<f64>, f64)> {
    let in_process: Vec<_> = contenders
        .iter()
        .copied()
        .filter(|contender| *contender != Contender::Own)
        .collect();
    let near = ratios(&in_process, true);
    let far = ratios(contenders, false);
    contenders
        .iter()
        .zip(far)
        .map(|(contender, far)| {
            let at = in_process.iter().position(|other| other == contender);
            (at.map(|at| near[at]), far)
        })
        .collect()
}

fn ratios(contenders: &[Contender], is_in_process: bool) -> Vec<f64> {
    const ROUNDS: usize = 41;
    let runtime = runtime();
    let (failing, healthy) = if is_in_process {
        (None, None)
    } else {
        let failing =
            |number: usize| answer(if number.is_multiple_of(2) { 503 } else { 200 }, "", b"");
        (
            Some(Server::new(failing)),
            Some(Server::new(|_| answer(200, "", b""))),
        )
    };
    let (failing, healthy) = (url_of(failing.as_ref()), url_of(healthy.as_ref()));
    let alone = client(Contender::Alone, is_in_process, AT_ONCE, 200);
    let clients: Vec<_> = contenders
        .iter()
        .map(|contender| {
            [200, 503].map(|others| client(*contender, is_in_process, AT_ONCE, others))
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
    ratios.iter_mut().map(|ratios| median(ratios)).collect()
}

fn time_per_call(runtime: &Runtime, client: &Client, url: &Url) -> f64 {
    const LONG_ENOUGH: Duration = Duration::from_millis(10);
    runtime.block_on(async {
        let start = Instant::now();
        let mut calls = 0.0;
        while start.elapsed() < LONG_ENOUGH {
            for _ in 0..8 {
                let response = client.send(get(url), &mut Extensions::new()).await;
                let response = response.expect("an answer");
                assert_eq!(response.status(), 200);
                assert!(response.text().await.is_ok());
                calls += 1.0;
            }
        }
        start.elapsed().as_secs_f64() / calls
    })
}
