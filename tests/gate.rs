//! Owns the rules of the gate: nobody passes before its time, one probe at a time, then a pace that the host bears.

#[path = "support/host.rs"]
mod host;
mod support;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use host::Host;
use http::Extensions;
use reqwest::{Request, Response};
use reqwest_jitter::{
    Backoff, Cause, DefaultClassifier, DelayHints, Effect, GateClosed, HostGate,
    JitteredRetryMiddleware, RetryBudget, RetryOverride, RetryPolicy, RetryReport, StopReason,
    Verdict, classify_fn,
};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Error, Middleware, Next};
use support::{ScriptedOrigin, URL, status};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

const SECOND: Duration = Duration::from_secs(1);

fn policy() -> RetryPolicy {
    RetryPolicy::new(Backoff::exponential(
        Duration::from_millis(100),
        Duration::from_secs(10),
    ))
    .with_max_attempts(6)
}

fn gated(gate: HostGate, origin: impl Middleware) -> ClientWithMiddleware {
    ClientBuilder::new(reqwest::Client::new())
        .with(gate)
        .with(origin)
        .build()
}

fn closed(error: &Error) -> &GateClosed {
    GateClosed::of(error).unwrap_or_else(|| panic!("{error:?}"))
}

#[tokio::test(start_paused = true)]
async fn everybody_waits_for_the_moment_the_server_named_and_then_for_the_probe() {
    let host = Host::new(1).pausing(Duration::ZERO..30 * SECOND);
    let client = gated(HostGate::new(), host.clone());
    let start = Instant::now();
    assert_eq!(client.get(URL).send().await.unwrap().status(), 429);
    let mut others = JoinSet::new();
    for number in 1..50_u32 {
        let request = client.get(URL);
        others.spawn(async move {
            sleep_until(start + number * 30 * SECOND / 50).await;
            request.send().await.unwrap().status()
        });
    }
    let statuses = others.join_all().await;
    assert!(statuses.iter().all(|status| *status == 200));
    let arrivals = host.arrivals();
    assert_eq!(arrivals.len(), 50);
    assert!(
        arrivals[1..]
            .iter()
            .all(|arrival| arrival.at >= 30 * SECOND)
    );
    // The probe is answered before the next one leaves.
    assert!(arrivals[2].at >= arrivals[1].at + Duration::from_millis(10));
}

#[tokio::test(start_paused = true)]
async fn a_failing_probe_lets_nobody_through_and_a_dropped_one_hands_its_place_on() {
    let origin = ScriptedOrigin::new([
        status(429).header("retry-after", "10"),
        status(503).after(SECOND),
        status(200).after(SECOND),
    ]);
    let gate = HostGate::new().with_open_backoff(Backoff::fixed(5 * SECOND));
    let client = gated(gate, origin.clone());
    let start = Instant::now();
    client.get(URL).send().await.unwrap();
    let calls: Vec<_> = (0..4)
        .map(|_| tokio::spawn(client.get(URL).send()))
        .collect();

    sleep_until(start + 10 * SECOND + SECOND / 2).await;
    assert_eq!(origin.count(), 2, "the probe alone");
    sleep_until(start + 15 * SECOND).await;
    assert_eq!(
        origin.count(),
        2,
        "it failed after eleven seconds, and five more have not passed"
    );
    sleep_until(start + 16 * SECOND + SECOND / 2).await;
    assert_eq!(origin.count(), 3, "the second probe alone");
    calls[1].abort();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(origin.count(), 4, "the next in line is the probe now");
    for (number, call) in calls.into_iter().enumerate() {
        match call.await {
            Ok(response) => assert_eq!(
                response.unwrap().status(),
                if number == 0 { 503 } else { 200 }
            ),
            Err(error) => assert!(error.is_cancelled() && number == 1),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn failures_in_a_row_close_the_gate_and_others_do_not() {
    for (trip_after, failures, is_closed) in
        [(5, 4, false), (5, 5, true), (1, 1, true), (0, 100, false)]
    {
        for failure in [500, 502, 503, 429] {
            let origin = ScriptedOrigin::new([status(failure)]);
            let client = gated(HostGate::fail_fast().with_trip_after(trip_after), origin);
            for _ in 0..failures {
                client.get(URL).send().await.unwrap();
            }
            assert_eq!(
                client.get(URL).send().await.is_err(),
                is_closed,
                "{failures} x {failure}"
            );
        }
    }
    for answer in [200, 301, 400, 404, 409, 501] {
        let origin = ScriptedOrigin::new([status(answer)]);
        let client = gated(HostGate::fail_fast().with_trip_after(1), origin);
        for _ in 0..3 {
            assert_eq!(client.get(URL).send().await.unwrap().status(), answer);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_hint_closes_the_gate_where_the_server_names_a_moment() {
    for (answer, hint, is_closed) in [
        (429, "1", true),
        (503, "0.001", true),
        (429, "0", false),
        (429, "soon", false),
        (500, "1", false),
        (200, "1", false),
        (429, "3155760000", true),
        (429, "9999999999999999999999", true),
    ] {
        let origin = ScriptedOrigin::new([status(answer).header("retry-after", hint)]);
        let client = gated(HostGate::fail_fast(), origin);
        client.get(URL).send().await.unwrap();
        assert_eq!(
            client.get(URL).send().await.is_err(),
            is_closed,
            "{answer}, {hint}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_hint_holds_for_the_others_where_the_request_itself_is_not_to_come_back() {
    let answer = status(429)
        .header("retry-after", "30")
        .header("x-should-retry", "false");
    let gate = HostGate::fail_fast().with_hints(DelayHints::vendors());
    let client = gated(gate, ScriptedOrigin::new([answer]));
    client.get(URL).send().await.unwrap();
    assert!(client.get(URL).send().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn who_would_wait_too_long_is_told_at_once_where_and_when() {
    let origin = ScriptedOrigin::new([status(429).header("retry-after", "30")]);
    let gate = HostGate::new().with_max_wait(29 * SECOND);
    let retry = JitteredRetryMiddleware::new(policy());
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(gate)
        .with(origin.clone())
        .build();
    let start = Instant::now();
    client.get(URL).send().await.unwrap();

    let error = client.get(URL).send().await.unwrap_err();
    assert_eq!(Instant::now(), start);
    assert_eq!(closed(&error).origin(), "http://origin.test");
    assert_eq!(closed(&error).retry_at(), start + 30 * SECOND);
    assert_eq!(
        error.to_string(),
        "the gate for http://origin.test is closed"
    );
    assert!(!error.to_string().contains("resource"));

    // With a second less to wait for, it fits.
    sleep(SECOND).await;
    let call = tokio::spawn(client.get(URL).send());
    sleep(SECOND).await;
    assert!(!call.is_finished());

    // A deadline is kept, too, of the request and of the task.
    let deadline = RetryOverride::new().with_deadline(start + 10 * SECOND);
    let of_request = client
        .get(URL)
        .with_extension(deadline)
        .send()
        .await
        .unwrap_err();
    let of_task = deadline.scope(client.get(URL).send()).await.unwrap_err();
    for error in [of_request, of_task] {
        assert_eq!(closed(&error).retry_at(), start + 30 * SECOND);
    }
    assert_eq!(Instant::now(), start + 2 * SECOND);
    drop(retry);
}

#[tokio::test(start_paused = true)]
async fn of_a_call_without_a_copy_that_never_left_no_origin_is_known() {
    let origin = ScriptedOrigin::new([status(503)]);
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(JitteredRetryMiddleware::new(policy().with_max_attempts(1)))
        .with(HostGate::fail_fast().with_trip_after(1))
        .with(origin.clone())
        .build();
    for known in ["http://origin.test", "null"] {
        let mut extensions = Extensions::new();
        let request = client.get(URL).build().unwrap();
        let _ = client
            .execute_with_extensions(request, &mut extensions)
            .await;
        let report = RetryReport::from_extensions(&extensions).unwrap();
        assert_eq!(report.origin(), known);
    }
    assert_eq!(origin.count(), 1);
}

/// The first retry fits, and waits; what comes after the last moment is told so, and nothing is sent too late.
#[tokio::test(start_paused = true)]
async fn a_retry_does_not_wait_beyond_max_elapsed() {
    for (max_elapsed, attempts) in [(29, 1), (31, 2)] {
        let origin = ScriptedOrigin::new([status(503), status(200)]);
        let gate = HostGate::new()
            .with_trip_after(1)
            .with_open_backoff(Backoff::fixed(30 * SECOND));
        let retry = JitteredRetryMiddleware::new(
            RetryPolicy::new(Backoff::fixed(SECOND)).with_max_elapsed(max_elapsed * SECOND),
        );
        let client = ClientBuilder::new(reqwest::Client::new())
            .with(retry)
            .with(gate)
            .with(origin.clone())
            .build();
        let start = Instant::now();
        let mut extensions = Extensions::new();
        // What an earlier call left in the extensions does not hold for this one.
        for round in 0..2 {
            let request = client.get(URL).build().unwrap();
            let result = client
                .execute_with_extensions(request, &mut extensions)
                .await;
            let report = RetryReport::from_extensions(&extensions);
            if round == 0 {
                assert_eq!(report.unwrap().attempts(), attempts);
                assert_eq!(report.unwrap().slept(), SECOND);
            }
            assert_eq!(result.is_ok(), round == 1 || attempts == 2, "{max_elapsed}");
            if result.is_err() {
                assert_eq!(report.unwrap().stop(), StopReason::GateClosed);
                assert_eq!(Instant::now(), start + SECOND);
            }
        }
        assert_eq!(Instant::now(), start + 30 * SECOND);
    }
}

#[tokio::test(start_paused = true)]
async fn while_a_probe_is_out_the_moment_is_one_round_trip_away() {
    let origin = ScriptedOrigin::new([
        status(200).after(SECOND / 4),
        status(429).header("retry-after", "5"),
        status(200).after(SECOND),
    ]);
    let client = gated(HostGate::fail_fast(), origin);
    for _ in 0..2 {
        client.get(URL).send().await.unwrap();
    }
    sleep(5 * SECOND).await;
    let probe = tokio::spawn(client.get(URL).send());
    sleep(SECOND / 2).await;
    let error = client.get(URL).send().await.unwrap_err();
    assert_eq!(closed(&error).retry_at(), Instant::now() + SECOND / 4);
    assert_eq!(probe.await.unwrap().unwrap().status(), 200);
    assert_eq!(client.get(URL).send().await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn the_retry_layer_does_not_retry_it_and_the_budget_gets_its_token_back() {
    let origin = ScriptedOrigin::new([status(503)]);
    let gate = HostGate::fail_fast()
        .with_trip_after(1)
        .with_open_backoff(Backoff::fixed(60 * SECOND));
    let budget = RetryBudget::new()
        .with_burst(1)
        .with_reserve_per_sec(0)
        .with_extra_load_percent(0);
    let always = classify_fn(|_| Verdict::retry(Cause::Other("always"), Effect::None));
    let given_up = Arc::new(std::sync::Mutex::new(Vec::new()));
    let reports = Arc::clone(&given_up);
    let retry =
        JitteredRetryMiddleware::new(RetryPolicy::new(Backoff::fixed(SECOND)).with_max_attempts(9))
            .with_classifier(always)
            .with_budget(budget)
            .on_give_up(move |report| reports.lock().unwrap().push(report.stop()));
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(retry)
        .with(gate)
        .with(origin.clone())
        .build();
    for round in 0..3 {
        let mut extensions = Extensions::new();
        let request = client.get(URL).build().unwrap();
        let error = client
            .execute_with_extensions(request, &mut extensions)
            .await
            .unwrap_err();
        assert_eq!(closed(&error).origin(), "http://origin.test");
        // The first call is let through and asks for the one retry there is; had it been kept, none would be left.
        let report = RetryReport::from_extensions(&extensions).unwrap();
        assert_eq!(report.stop(), StopReason::GateClosed);
        assert_eq!(origin.count(), 1, "round {round}");
        assert_eq!(report.attempts(), u32::from(round == 0));
        assert_eq!(report.retries(), 0);
        assert_eq!(given_up.lock().unwrap().len(), round + 1);
    }
    sleep(60 * SECOND).await;
    let mut extensions = Extensions::new();
    let request = client.get(URL).build().unwrap();
    client
        .execute_with_extensions(request, &mut extensions)
        .await
        .unwrap_err();
    let report = RetryReport::from_extensions(&extensions).unwrap();
    assert_eq!(
        report.history().len(),
        1,
        "the token was there again: {:?}",
        report.stop()
    );
    assert_eq!(origin.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn waiting_costs_no_attempt_and_nobody_overtakes() {
    let host = Host::new(7).pausing(Duration::ZERO..10 * SECOND);
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(JitteredRetryMiddleware::new(policy().with_max_attempts(2)))
        .with(HostGate::new())
        .with(host.clone())
        .build();
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut calls = JoinSet::new();
    for number in 0..50_u32 {
        let (client, order) = (client.clone(), Arc::clone(&order));
        calls.spawn(async move {
            sleep(number * Duration::from_millis(50)).await;
            let response = client.get(URL).send().await.unwrap();
            order.lock().unwrap().push(number);
            (
                number,
                response.status(),
                RetryReport::of(&response).map(RetryReport::attempts),
            )
        });
    }
    for (number, status, attempts) in calls.join_all().await {
        assert_eq!(status, 200);
        assert_eq!(attempts, (number == 0).then_some(2));
    }
    let order = order.lock().unwrap();
    let others: Vec<_> = order.iter().filter(|number| **number > 0).collect();
    assert!(others.is_sorted(), "{others:?}");
}

#[tokio::test(start_paused = true)]
async fn a_panic_within_leaves_the_gate_working() {
    #[derive(Clone, Default)]
    struct Panicking(Arc<AtomicUsize>);

    #[async_trait::async_trait]
    impl Middleware for Panicking {
        async fn handle(
            &self,
            request: Request,
            extensions: &mut Extensions,
            next: Next<'_>,
        ) -> Result<Response, Error> {
            // The probe, which is the second that comes here.
            assert_ne!(self.0.fetch_add(1, Ordering::SeqCst), 1, "the probe panics");
            next.run(request, extensions).await
        }
    }

    let origin = ScriptedOrigin::new([status(429).header("retry-after", "1"), status(200)]);
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(HostGate::new())
        .with(Panicking::default())
        .with(origin.clone())
        .build();
    client.get(URL).send().await.unwrap();
    let calls: Vec<_> = (0..10)
        .map(|_| tokio::spawn(client.get(URL).send()))
        .collect();
    let mut panics = 0;
    for call in calls {
        match call.await {
            Ok(response) => assert_eq!(response.unwrap().status(), 200),
            Err(error) => panics += u32::from(error.is_panic()),
        }
    }
    assert_eq!((panics, origin.count()), (1, 10));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_goes_away_is_not_waited_for() {
    let origin = ScriptedOrigin::new([status(429).header("retry-after", "1"), status(200)]);
    let client = gated(HostGate::new(), origin.clone());
    client.get(URL).send().await.unwrap();
    {
        let mut front = pin!(client.get(URL).send());
        poll_fn(|context| {
            assert!(front.as_mut().poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
    }
    let start = Instant::now();
    assert_eq!(client.get(URL).send().await.unwrap().status(), 200);
    assert_eq!((start.elapsed(), origin.count()), (SECOND, 2));
}

/// A waker may own the task that it wakes, and dropping that one may come back to the gate.
#[tokio::test(start_paused = true)]
async fn a_waker_is_dropped_outside_of_the_gate() {
    struct Owner(HostGate);

    impl Wake for Owner {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for Owner {
        fn drop(&mut self) {
            assert!(format!("{:?}", self.0).contains("waiting: 2"));
        }
    }

    let origin = ScriptedOrigin::new([status(429).header("retry-after", "1"), status(200)]);
    let gate = HostGate::new().with_max_wait(Duration::MAX);
    let client = gated(gate.clone(), origin);
    client.get(URL).send().await.unwrap();
    let mut front = pin!(client.get(URL).send());
    let mut second = pin!(client.get(URL).send());
    let mut idle = Context::from_waker(Waker::noop());
    assert!(front.as_mut().poll(&mut idle).is_pending());
    {
        let owner = Waker::from(Arc::new(Owner(gate)));
        let mut context_of_owner = Context::from_waker(&owner);
        assert!(second.as_mut().poll(&mut context_of_owner).is_pending());
    }
    assert!(second.as_mut().poll(&mut idle).is_pending());
    assert_eq!(front.await.unwrap().status(), 200);
    assert_eq!(second.await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn one_host_does_not_slow_another_and_a_key_can_part_one_host() {
    let origin = ScriptedOrigin::new([status(429).header("retry-after", "30")]);
    let is_closed = |client: ClientWithMiddleware, url: &'static str| async move {
        client.get(url).send().await.is_err()
    };
    let by_origin = gated(HostGate::fail_fast(), origin.clone());
    assert!(!is_closed(by_origin.clone(), "http://one.test/a").await);
    assert!(is_closed(by_origin.clone(), "http://one.test/b").await);
    for other in [
        "http://two.test/a",
        "http://one.test:81/a",
        "https://one.test/a",
    ] {
        assert!(!is_closed(by_origin.clone(), other).await, "{other}");
    }
    let by_route = gated(
        HostGate::fail_fast().with_key(|request| request.url().path().to_owned()),
        origin,
    );
    assert!(!is_closed(by_route.clone(), "http://one.test/a").await);
    assert!(!is_closed(by_route.clone(), "http://one.test/b").await);
    let error = by_route.get("http://two.test/a").send().await.unwrap_err();
    assert_eq!(closed(&error).origin(), "/a");
}

#[tokio::test(start_paused = true)]
async fn clones_share_their_state_and_settings_begin_a_new_one() {
    let origin = ScriptedOrigin::new([status(429).header("retry-after", "30")]);
    let gate = HostGate::fail_fast();
    gated(gate.clone(), origin.clone())
        .get(URL)
        .send()
        .await
        .unwrap();
    assert!(
        gated(gate.clone(), origin.clone())
            .get(URL)
            .send()
            .await
            .is_err()
    );
    assert!(
        gated(gate.with_trip_after(7), origin)
            .get(URL)
            .send()
            .await
            .is_ok()
    );
}

#[tokio::test(start_paused = true)]
async fn a_classifier_of_ones_own_says_what_a_failure_is() {
    let origin = ScriptedOrigin::new([status(404)]);
    let gate = HostGate::fail_fast()
        .with_trip_after(2)
        .with_classifier(DefaultClassifier::new().with_status(404, Effect::None));
    let client = gated(gate, origin);
    for is_closed in [false, false, true] {
        assert_eq!(client.get(URL).send().await.is_err(), is_closed);
    }
}

#[tokio::test(start_paused = true)]
async fn closed_gates_outlast_any_number_of_open_ones() {
    let origin =
        ScriptedOrigin::new([status(429).header("retry-after", "3600"), status(200)]).forgetting();
    let gate = HostGate::fail_fast();
    let client = gated(gate.clone(), origin);
    client.get("http://first.test/").send().await.unwrap();
    for port in 1..=30_000 {
        client
            .get(format!("http://other.test:{port}/"))
            .send()
            .await
            .unwrap();
    }
    assert!(client.get("http://first.test/").send().await.is_err());
    let kept = format!("{gate:?}");
    let (_, kept) = kept.split_once("origins: ").unwrap();
    let kept: u32 = kept.split(',').next().unwrap().parse().unwrap();
    assert!(kept <= 10_000, "{kept}");
}

/// Requests per call, and the time until the last one was done.
struct Figures {
    per_call: f64,
    time: Duration,
    gave_up: usize,
}

/// Sends calls at their moments through a retry layer, a gate if there is one, and to the host.
async fn run(
    host: &Host,
    gate: Option<HostGate>,
    policy: RetryPolicy,
    starts: Vec<Duration>,
    seed: u64,
) -> Figures {
    let retry = JitteredRetryMiddleware::new(policy)
        .without_budget()
        .with_seed(seed);
    let mut builder = ClientBuilder::new(reqwest::Client::new()).with(retry);
    if let Some(gate) = gate {
        builder = builder.with(gate.with_seed(seed));
    }
    let client = builder.with(host.clone()).build();
    let start = Instant::now();
    let calls = starts.len();
    let mut running = JoinSet::new();
    for at in starts {
        let request = client.get(URL);
        running.spawn(async move {
            sleep_until(start + at).await;
            request
                .send()
                .await
                .is_ok_and(|response| response.status() == 200)
        });
    }
    let successes = running
        .join_all()
        .await
        .into_iter()
        .filter(|is_success| *is_success)
        .count();
    Figures {
        per_call: f64::from(u32::try_from(host.count()).unwrap())
            / f64::from(u32::try_from(calls).unwrap()),
        time: start.elapsed(),
        gave_up: calls - successes,
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn offered(per_second: u32, seconds: u32) -> Vec<Duration> {
    (0..per_second * seconds)
        .map(|number| number * SECOND / per_second)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_crowd_meets_the_pace_that_the_host_bears() {
    // At the last pace, a timer's tick lets as many through as judge a slow one; and within two seconds, the waits of
    // those who came first weigh more.
    for (calls, per_second, longest) in [
        (500_u32, 100.0, 1.15),
        (10_000, 1000.0, 1.15),
        (40_000, 20_000.0, 1.5),
    ] {
        let (mut per_call, mut time) = (vec![], vec![]);
        // Five for the smallest crowd; the larger ones hardly differ from seed to seed.
        for seed in 1..=if calls > 1000 { 1 } else { 5 } {
            let host = Host::new(seed).serving(per_second);
            let starts = vec![Duration::ZERO; calls as usize];
            let figures = run(&host, Some(HostGate::new()), policy(), starts, seed).await;
            assert_eq!(figures.gave_up, 0);
            per_call.push(figures.per_call);
            time.push(figures.time.as_secs_f64() / (f64::from(calls) / per_second));
        }
        let (per_call, time) = (median(per_call), median(time));
        assert!(per_call <= 2.25, "{per_call} at {per_second}");
        assert!(time <= longest, "{time} at {per_second}");
    }
}

/// It bears less than one request per round trip: the recovery's first pace is too fast by far, and nothing is accepted
/// at it but the probe.
#[tokio::test(start_paused = true)]
async fn a_slow_host_is_paced_like_a_fast_one() {
    for (calls, per_second) in [(50, 10.0), (200, 10.0), (200, 1.0)] {
        for seed in 1..=3 {
            let host = Host::new(seed).serving(per_second);
            let starts = vec![Duration::ZERO; calls];
            let gate = HostGate::new().with_max_wait(Duration::MAX);
            let figures = run(
                &host,
                Some(gate),
                policy().with_max_attempts(5),
                starts,
                seed,
            )
            .await;
            assert_eq!(figures.gave_up, 0, "{calls} at {per_second}");
            assert!(
                figures.per_call <= 2.5,
                "{} at {per_second}",
                figures.per_call
            );
        }
    }
}

/// Each overshoot costs a whole wait here, so that what one recovery finds out must not be lost on the next.
#[tokio::test(start_paused = true)]
async fn a_host_that_names_a_wait_whenever_it_is_overrun_is_not_overrun_in_the_same_way_again() {
    let host = Host::new(1).serving(100.0).naming("1");
    let starts = vec![Duration::ZERO; 500];
    let figures = run(&host, Some(HostGate::new()), policy(), starts, 1).await;
    assert_eq!(figures.gave_up, 0);
    assert!(figures.per_call <= 2.1, "{}", figures.per_call);
    assert!(figures.time <= 20 * SECOND, "{:?}", figures.time);
}

#[tokio::test(start_paused = true)]
async fn failures_at_random_are_not_overload() {
    for pause in [Duration::ZERO, 2 * SECOND] {
        let mut ratios = vec![];
        for seed in 1..=3 {
            let mut times = vec![];
            for gate in [None, Some(HostGate::new())] {
                let host = Host::new(seed)
                    .pausing(SECOND..SECOND + pause)
                    .failing_at_random(0.05);
                let figures = run(&host, gate, policy(), offered(500, 10), seed).await;
                assert_eq!(figures.gave_up, 0);
                times.push(figures.time.as_secs_f64());
            }
            ratios.push(times[1] / times[0]);
        }
        assert!(median(ratios) <= 1.1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_down_is_left_in_peace_and_served_again_soon() {
    for seed in 1..=5 {
        let host = Host::new(seed).down(10 * SECOND..70 * SECOND);
        run(
            &host,
            Some(HostGate::new()),
            policy().with_max_attempts(5),
            offered(50, 100),
            seed,
        )
        .await;
        let arrivals = host.arrivals();
        let down = arrivals
            .iter()
            .filter(|arrival| arrival.status == 503)
            .count();
        assert!(down < 50, "{down}");
        let back = arrivals
            .iter()
            .find(|arrival| arrival.at >= 70 * SECOND && arrival.status == 200)
            .unwrap();
        assert!(
            back.at <= 80 * SECOND + Duration::from_millis(20),
            "{:?}",
            back.at
        );
    }
}
