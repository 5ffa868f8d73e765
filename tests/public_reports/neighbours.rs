//! Reports about the company that a retry layer is in: budgets, other layers, other retries, cancellation, logs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http::{Extensions, HeaderMap};
use reqwest::{Method, Request, Response};
use reqwest_jitter::{
    Classifier, DefaultClassifier, JitteredRetryMiddleware, RetryAttempt, RetryBudget,
    RetryOverride, RetryPolicy, RetryReport, StopReason, classify_fn,
};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Error, Middleware, Next};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::case::{curve, get};
use crate::support::{ScriptedOrigin, URL, fixed, ms, secs, status, unreachable};
use crate::wire::{Wire, answer, plain};

/// At most one retry for each call, and no wait before it.
fn eager() -> RetryPolicy {
    fixed(Duration::ZERO).with_max_attempts(2)
}

/// A budget that nothing but its calls refills.
fn budget(burst: u32, percent: u32) -> RetryBudget {
    RetryBudget::new()
        .with_burst(burst)
        .with_reserve_per_sec(0)
        .with_extra_load_percent(percent)
}

/// A middleware that changes the request of each attempt.
struct Each<F>(F);

#[async_trait::async_trait]
impl<F> Middleware for Each<F>
where
    F: Fn(&mut Request, &mut Extensions) + Send + Sync + 'static,
{
    async fn handle(
        &self,
        mut request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response, Error> {
        (self.0)(&mut request, extensions);
        next.run(request, extensions).await
    }
}

/// The retry layer, below it something that changes each attempt, and the origin.
fn stack(
    retry: JitteredRetryMiddleware,
    each: impl Fn(&mut Request, &mut Extensions) + Send + Sync + 'static,
    origin: &ScriptedOrigin,
) -> ClientWithMiddleware {
    ClientBuilder::new(reqwest::Client::new())
        .with(retry)
        .with(Each(each))
        .with(origin.clone())
        .build()
}

fn failing_once() -> ScriptedOrigin {
    ScriptedOrigin::new([status(503), status(200)])
}

fn headers(origin: &ScriptedOrigin) -> Vec<HeaderMap> {
    let arrivals = origin.arrivals();
    arrivals
        .into_iter()
        .map(|arrival| arrival.headers)
        .collect()
}

/// `astral-sh/uv#17267`: how often something was tried got lost with the error, and two loops multiplied.
#[tokio::test(start_paused = true)]
pub(crate) async fn ns_01_an_outer_loop_can_see_what_was_tried() {
    let origin = ScriptedOrigin::new([unreachable()]);
    let policy = fixed(ms(1)).with_max_attempts(4);
    let client = origin.client(JitteredRetryMiddleware::new(policy));
    let mut left = 4;
    while left > 0 {
        let mut extensions = Extensions::new();
        let request = Request::new(Method::GET, URL.parse().unwrap());
        let error = client
            .execute_with_extensions(request, &mut extensions)
            .await
            .unwrap_err();
        assert!(error.is_connect());
        left -= RetryReport::from_extensions(&extensions)
            .unwrap()
            .attempts();
    }
    assert_eq!(origin.count(), 4);
}

/// `NousResearch/hermes-agent#26311`: hidden retries within a library used the attempts of those who waited.
#[tokio::test]
pub(crate) async fn ns_03_reqwests_own_retries_multiply_ours_unless_they_are_off() {
    let within = reqwest::retry::for_host("127.0.0.1")
        .no_budget()
        .max_retries_per_request(2)
        .classify_fn(|attempt| match attempt.status() {
            Some(status) if status == 429 => attempt.retryable(),
            _ => attempt.success(),
        });
    for (within, sent) in [(within, 6), (reqwest::retry::never(), 2)] {
        let server = Wire::serve(|_| answer(429, "retry-after: 0\r\n", b"")).await;
        let inner = plain().retry(within).build().unwrap();
        let retry = JitteredRetryMiddleware::new(eager());
        let client = ClientBuilder::new(inner).with(retry).build();
        let response = client.get(server.url("/")).send().await.unwrap();
        assert_eq!(RetryReport::of(&response).unwrap().attempts(), 2);
        assert_eq!(server.count(), sent);
    }
}

/// `prefix-dev/pixi#5257`: the mirror was chosen above the retries, and each went to the one that failed.
#[tokio::test(start_paused = true)]
pub(crate) async fn ns_04_what_chooses_a_host_below_chooses_for_each_attempt() {
    let choose = |request: &mut Request, extensions: &mut Extensions| {
        let retries = extensions
            .get::<RetryAttempt>()
            .map_or(0, RetryAttempt::resend_count);
        let mirror = ["mirror-a.test", "mirror-b.test"][retries as usize % 2];
        request.url_mut().set_host(Some(mirror)).unwrap();
    };
    let origin = failing_once();
    let client = stack(JitteredRetryMiddleware::new(eager()), choose, &origin);
    let response = client.get(URL).send().await.unwrap();
    assert_eq!(response.status(), 200);
    let hosts: Vec<_> = origin
        .arrivals()
        .iter()
        .map(|arrival| arrival.url.host_str().unwrap().to_owned())
        .collect();
    assert_eq!(hosts, ["mirror-a.test", "mirror-b.test"]);
    // Budget and report go by the host that was asked for.
    let report = RetryReport::of(&response).unwrap();
    assert_eq!(report.history()[0].origin(), "http://origin.test");

    // The other way round all attempts are alike.
    let origin = failing_once();
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(Each(choose))
        .with(JitteredRetryMiddleware::new(eager()))
        .with(origin.clone())
        .build();
    client.get(URL).send().await.unwrap();
    for arrival in origin.arrivals() {
        assert_eq!(arrival.url.host_str(), Some("mirror-a.test"));
    }
}

/// `tower-rs/tower#857`: 60 % were granted as a whole retry for each call.
#[tokio::test(start_paused = true)]
pub(crate) async fn bg_01_a_share_grants_what_it_says() {
    for (percent, granted) in [(60, 6), (30, 3), (40, 4), (90, 9), (100, 10), (0, 0)] {
        let origin = ScriptedOrigin::new([status(503)]);
        let budget = budget(100, percent);
        let client =
            origin.client(JitteredRetryMiddleware::new(eager()).with_budget(budget.clone()));
        spend(&budget, 100).await;
        for _ in 0..10 {
            client.get(URL).send().await.unwrap();
        }
        assert_eq!(origin.count(), 10 + granted, "{percent} %");
    }
}

/// Takes so many retries out of a budget with a single call.
async fn spend(budget: &RetryBudget, retries: u32) {
    let policy = fixed(Duration::ZERO).with_max_attempts(retries + 1);
    let origin = ScriptedOrigin::new([status(503)]);
    let client = origin.client(JitteredRetryMiddleware::new(policy).with_budget(budget.clone()));
    let response = client.get(URL).send().await.unwrap();
    let report = RetryReport::of(&response).unwrap();
    assert_eq!(report.retries(), retries, "{:?}", report.stop());
}

/// `envoyproxy/envoy-mobile#811`: a share of what is in flight shrinks with each call that fails.
#[tokio::test(start_paused = true)]
pub(crate) async fn bg_03_a_share_is_of_the_calls_that_were_begun() {
    // All at once, or one after another.
    for pause in [Duration::ZERO, ms(100)] {
        let origin = ScriptedOrigin::new([unreachable().after(ms(10))]);
        let budget = budget(100, 50);
        let client =
            origin.client(JitteredRetryMiddleware::new(eager()).with_budget(budget.clone()));
        spend(&budget, 100).await;
        let mut calls = JoinSet::new();
        for _ in 0..6 {
            calls.spawn(client.get(URL).send());
            sleep(pause).await;
        }
        assert!(calls.join_all().await.iter().all(Result::is_err));
        assert_eq!(origin.count(), 6 + 3, "{pause:?}");
    }
}

/// `aws/aws-sdk-java-v2#5345`: what succeeded at once paid nothing in, and after an outage no retry was made any more.
#[tokio::test(start_paused = true)]
pub(crate) async fn bg_04_calls_that_succeed_fill_the_budget_again() {
    // An outage of 30 calls has 10 retries, and a hundred calls that succeed pay for one.
    let outage = std::iter::repeat_with(|| status(503)).take(30 + 10);
    let fine = std::iter::repeat_with(|| status(200)).take(100);
    let after = [status(503), status(200), status(503)];
    let origin = ScriptedOrigin::new(outage.chain(fine).chain(after));
    let client = origin.client(JitteredRetryMiddleware::new(eager()).with_budget(budget(10, 1)));
    let mut outcomes = Vec::new();
    for _ in 0..30 + 100 + 2 {
        let response = client.get(URL).send().await.unwrap();
        let report = RetryReport::of(&response).map(|report| (report.retries(), report.stop()));
        outcomes.push((response.status().as_u16(), report));
    }
    let exhausted = (1, StopReason::AttemptsExhausted);
    let refused = (0, StopReason::BudgetExhausted);
    assert_eq!(outcomes[..10], [(503, Some(exhausted)); 10]);
    assert_eq!(outcomes[10..30], [(503, Some(refused)); 20]);
    assert_eq!(outcomes[30..130], [(200, None); 100]);
    let accepted = (1, StopReason::Accepted);
    assert_eq!(
        outcomes[130..],
        [(200, Some(accepted)), (503, Some(refused))]
    );
}

/// `awslabs/aws-sdk-rust#1234`: the budget was configured and connected to nothing, for months.
#[tokio::test(start_paused = true)]
pub(crate) async fn bg_05_a_client_that_sets_nothing_has_a_budget() {
    let origin = ScriptedOrigin::new([status(503)]);
    let retry = || JitteredRetryMiddleware::new(fixed(Duration::ZERO).with_max_attempts(3));
    let client = origin.client(retry());
    for _ in 0..500 {
        client.get(URL).send().await.unwrap();
    }
    // 100 that it starts with, and a fifth of the calls.
    assert_eq!(origin.count(), 500 + 100 + 100);

    let origin = ScriptedOrigin::new([status(503)]);
    let client = origin.client(retry().without_budget());
    for _ in 0..500 {
        client.get(URL).send().await.unwrap();
    }
    assert_eq!(origin.count(), 1500);
}

/// `seanmonstar/reqwest#2888`: one setting for one host, and a client for each of them.
#[tokio::test(start_paused = true)]
pub(crate) async fn bg_07_each_host_has_a_budget_of_its_own() {
    let origin = ScriptedOrigin::new([status(503)]);
    let client = origin.client(JitteredRetryMiddleware::new(eager()).with_budget(budget(2, 0)));
    let retries = |url: &'static str| {
        let call = client.get(url).send();
        async move { RetryReport::of(&call.await.unwrap()).unwrap().retries() }
    };
    for (url, granted) in [
        ("http://a.test/1", 1),
        ("http://a.test/2", 1),
        ("http://a.test/3", 0),
        ("HTTP://A.test:80/4", 0),
        ("http://b.test/", 1),
        ("http://a.test:8080/", 1),
        ("https://a.test/", 1),
        ("http://bücher.test/", 1),
        ("http://xn--bcher-kva.test/", 1),
        ("http://BÜCHER.test/", 0),
    ] {
        assert_eq!(retries(url).await, granted, "{url}");
    }
}

/// `browserbase/sdk-node#205`: whoever gave a call up waited until its wait was over.
#[tokio::test(start_paused = true)]
pub(crate) async fn cx_01_a_call_that_is_dropped_in_its_wait_is_over() {
    let origin = ScriptedOrigin::new([status(429).header("retry-after", "30")]);
    let budget = budget(1, 0);
    let client = origin.client(JitteredRetryMiddleware::new(eager()).with_budget(budget.clone()));
    let start = Instant::now();
    assert!(timeout(ms(50), client.get(URL).send()).await.is_err());
    assert_eq!(start.elapsed(), ms(50));
    let call = tokio::spawn(client.get(URL).send());
    sleep(ms(50)).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    assert_eq!(start.elapsed(), ms(100));
    sleep(secs(31)).await;
    assert_eq!(origin.count(), 2, "one for each call");
    let tasks = tokio::runtime::Handle::current().metrics();
    assert_eq!(tasks.num_alive_tasks(), 0);
    // Nor is a retry paid for that was never sent.
    spend(&budget, 1).await;
}

/// `aws/aws-sdk-go#486`: requests were signed before the wait, and late ones were refused.
#[tokio::test(start_paused = true)]
pub(crate) async fn au_01_each_attempt_is_signed_at_its_own_time() {
    let start = Instant::now();
    let origin = ScriptedOrigin::new([status(503).header("retry-after", "2"), status(200)]);
    let sign = move |request: &mut Request, _: &mut Extensions| {
        let at = start.elapsed().as_millis().to_string();
        let headers = request.headers_mut();
        // Were there one from an earlier attempt, there would be two.
        headers.append("authorization", at.parse().unwrap());
        headers.append("date", at.parse().unwrap());
    };
    let client = stack(JitteredRetryMiddleware::default(), sign, &origin);
    assert_eq!(client.get(URL).send().await.unwrap().status(), 200);
    for name in ["authorization", "date"] {
        let signed: Vec<Vec<_>> = headers(&origin)
            .iter()
            .map(|headers| headers.get_all(name).iter().cloned().collect())
            .collect();
        assert_eq!(signed, [["0"], ["2000"]]);
    }
}

/// `hashicorp/go-retryablehttp#216`: a token was to be renewed before each attempt.
#[tokio::test(start_paused = true)]
pub(crate) async fn au_03_a_middleware_below_renews_what_each_attempt_carries() {
    let origin = failing_once();
    let tokens = AtomicU32::new(1);
    let renew = move |request: &mut Request, _: &mut Extensions| {
        let token = tokens.fetch_add(1, Ordering::SeqCst);
        request.headers_mut().append("authorization", token.into());
        request
            .url_mut()
            .query_pairs_mut()
            .append_pair("token", "x");
    };
    let client = stack(JitteredRetryMiddleware::new(eager()), renew, &origin);
    client
        .get(URL)
        .header("x-own", "kept")
        .send()
        .await
        .unwrap();
    let arrivals = origin.arrivals();
    for (number, arrival) in (1..).zip(&arrivals) {
        let tokens: Vec<_> = arrival.headers.get_all("authorization").iter().collect();
        assert_eq!(tokens, [&format!("{number}")]);
        assert_eq!(arrival.headers["x-own"], "kept");
        assert_eq!(arrival.url.query(), Some("token=x"));
    }
    assert_eq!(arrivals.len(), 2);
}

/// `TrueLayer/reqwest-middleware#1`: what one attempt left in the extensions was there for the next.
#[tokio::test(start_paused = true)]
pub(crate) async fn xt_01_each_attempt_starts_afresh_and_the_last_extensions_come_back() {
    #[derive(Clone, Debug, PartialEq)]
    struct Callers;
    #[derive(Clone, Debug, PartialEq)]
    struct Mark(u32);
    let origin = failing_once();
    let marks = AtomicU32::new(1);
    let mark = move |_: &mut Request, extensions: &mut Extensions| {
        assert_eq!(extensions.get(), Some(&Callers));
        assert!(extensions.get::<Mark>().is_none(), "of another attempt");
        extensions.insert(Mark(marks.fetch_add(1, Ordering::SeqCst)));
    };
    let client = stack(JitteredRetryMiddleware::new(eager()), mark, &origin);
    let mut extensions = Extensions::new();
    extensions.insert(Callers);
    let request = Request::new(Method::GET, URL.parse().unwrap());
    client
        .execute_with_extensions(request, &mut extensions)
        .await
        .unwrap();
    assert_eq!(origin.count(), 2);
    assert_eq!(extensions.get(), Some(&Mark(2)));
    assert_eq!(extensions.get(), Some(&Callers));
}

/// `apache/opendal#4685`: a panic elsewhere poisoned a lock, and every later retry panicked as well.
#[tokio::test(start_paused = true)]
pub(crate) async fn xt_03_a_panic_in_what_a_user_wrote_ends_its_own_call_only() {
    let origin = ScriptedOrigin::new([503, 503, 503, 200].map(status));
    let budget = budget(1, 0);
    let (asked, hooked) = (AtomicU32::new(0), AtomicU32::new(0));
    let classifier = classify_fn(move |attempt| {
        assert_ne!(asked.fetch_add(1, Ordering::SeqCst), 0, "the first time");
        DefaultClassifier::new().classify(attempt)
    });
    let retry = JitteredRetryMiddleware::new(eager())
        .with_budget(budget)
        .with_classifier(classifier)
        .on_retry(move |_| {
            assert_ne!(hooked.fetch_add(1, Ordering::SeqCst), 0, "the first time");
        });
    let client = origin.client(retry);
    for _ in 0..2 {
        let call = tokio::spawn(client.get(URL).send());
        assert!(call.await.unwrap_err().is_panic());
    }
    // The only token there is was given back by the call that panicked in its hook.
    let response = client.get(URL).send().await.unwrap();
    assert_eq!((response.status().as_u16(), origin.count()), (200, 4));
}

/// `will-ockmore/httpx-retries#75`: retries could not be changed or switched off for a single call.
#[tokio::test(start_paused = true)]
pub(crate) async fn ov_01_one_request_can_have_rules_of_its_own() {
    let origin = ScriptedOrigin::new([status(503)]);
    let client = origin.client(JitteredRetryMiddleware::new(
        fixed(ms(1)).with_max_attempts(3),
    ));
    let mut count = 0;
    for (settings, sent) in [
        (Some(RetryOverride::disabled()), 1),
        (None, 3),
        (Some(RetryOverride::new().with_max_attempts(2)), 2),
        (None, 3),
    ] {
        let mut request = client.get(URL);
        if let Some(settings) = settings {
            request = request.with_extension(settings);
        }
        request.send().await.unwrap();
        count += sent;
        assert_eq!(origin.count(), count);
    }
}

/// `constructorfabric/gears-rust#4510`: tracing sat above the retries and saw one long request.
#[tokio::test(start_paused = true)]
pub(crate) async fn lg_04_a_middleware_below_sees_each_attempt_and_its_number() {
    let origin = failing_once();
    let spans = AtomicU32::new(10);
    let trace = move |request: &mut Request, extensions: &mut Extensions| {
        let span = spans.fetch_add(1, Ordering::SeqCst);
        let headers = request.headers_mut();
        headers.append("traceparent", span.into());
        // The convention: absent on the first send.
        if let Some(attempt) = extensions.get::<RetryAttempt>() {
            headers.append("resend-count", attempt.resend_count().into());
        }
    };
    let client = stack(
        JitteredRetryMiddleware::new(curve(100, 800)),
        trace,
        &origin,
    );
    let response = client.get(URL).send().await.unwrap();
    let seen = headers(&origin);
    assert_eq!(seen[0]["traceparent"], "10");
    assert_eq!(seen[1]["traceparent"], "11");
    assert!(!seen[0].contains_key("resend-count"));
    assert_eq!(seen[1]["resend-count"], "1");
    let report = RetryReport::of(&response).unwrap();
    assert_eq!((report.attempts(), report.slept()), (2, ms(100)));
}

/// `jleinenbach/GoogleFindMy-HA#990`: every line said "1 of 6".
#[tokio::test(start_paused = true)]
pub(crate) async fn lg_05_retries_are_numbered_from_one_and_attempts_are_one_more() {
    let retries = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (seen, given_up) = (Arc::clone(&retries), Arc::new(AtomicU32::new(0)));
    let attempts = Arc::clone(&given_up);
    let retry = JitteredRetryMiddleware::new(fixed(ms(1)).with_max_attempts(3))
        .on_retry(move |event| seen.lock().unwrap().push(event.retry()))
        .on_give_up(move |report| {
            attempts.fetch_add(report.attempts(), Ordering::SeqCst);
        });
    let done = get([status(503)]).retry(retry).run().await;
    done.stops(503, [1, 1], StopReason::AttemptsExhausted);
    assert_eq!(*retries.lock().unwrap(), [1, 2]);
    assert_eq!(given_up.load(Ordering::SeqCst), 3, "told once");
    let numbers: Vec<_> = done
        .origin
        .arrivals()
        .iter()
        .map(|arrival| arrival.extensions.get().map(RetryAttempt::number))
        .collect();
    assert_eq!(numbers, [None, Some(2), Some(3)]);
}

/// `microsoft/kiota-http-python#434`: a header with the number of the attempt came with every retry.
#[tokio::test(start_paused = true)]
pub(crate) async fn lg_07_no_header_tells_the_attempt_unless_somebody_adds_one() {
    let origin = failing_once();
    let client = stack(JitteredRetryMiddleware::new(eager()), |_, _| {}, &origin);
    client.get(URL).header("x-own", "1").send().await.unwrap();
    let seen = headers(&origin);
    assert_eq!((seen.len(), &seen[0]), (2, &seen[1]));

    let origin = failing_once();
    let tell = |request: &mut Request, extensions: &mut Extensions| {
        if let Some(attempt) = extensions.get::<RetryAttempt>() {
            let count = attempt.resend_count();
            request
                .headers_mut()
                .insert("x-retry-attempt", count.into());
        }
    };
    let client = stack(JitteredRetryMiddleware::new(eager()), tell, &origin);
    client.get(URL).send().await.unwrap();
    let seen = headers(&origin);
    assert!(!seen[0].contains_key("x-retry-attempt"));
    assert_eq!(seen[1]["x-retry-attempt"], "1");
}

#[cfg(feature = "tracing")]
pub(crate) mod logs {
    use std::fmt::Write;
    use std::sync::Mutex;

    use tracing::Level;

    use super::*;
    use crate::events::{Keeper, Value};

    const SECRETS: [&str; 4] = ["s3cr3t", "K3Y", "T0K", "user"];

    /// `xberg-io/liter-llm#205`: a warning printed the error, the error its URL, and the URL a key.
    #[tokio::test(start_paused = true)]
    pub(crate) async fn lg_01_nothing_that_is_told_holds_a_secret_of_the_url() {
        let told = Arc::new(Mutex::new(String::new()));
        let (retries, ends) = (Arc::clone(&told), Arc::clone(&told));
        let retry = JitteredRetryMiddleware::new(fixed(ms(1)).with_max_attempts(2))
            .on_retry(move |event| write!(retries.lock().unwrap(), "{event:?}").unwrap())
            .on_give_up(move |report| write!(ends.lock().unwrap(), "{report:?}").unwrap());
        write!(told.lock().unwrap(), "{retry:?}").unwrap();
        let origin = ScriptedOrigin::new([unreachable()]);
        Keeper::take();
        let client = origin.client(retry);
        let url = "http://user:s3cr3t@origin.test:81/v1/K3Y?token=T0K";
        assert!(client.get(url).send().await.is_err());
        let events = Keeper::take();
        assert_eq!(events.len(), 2, "a retry and a give-up");
        for event in &events {
            assert_eq!(event.fields["http.request.method"], "GET".into());
            assert_eq!(event.fields["server.address"], "origin.test".into());
            assert_eq!(event.fields["server.port"], 81.into());
        }
        let told = format!("{} {events:?}", told.lock().unwrap());
        for secret in SECRETS {
            assert!(!told.contains(secret), "{secret} in {told}");
        }
    }

    /// `wojtekmach/req#162`: retries were logged as errors, and woke somebody up; others were not logged at all.
    #[tokio::test(start_paused = true)]
    pub(crate) async fn lg_03_a_retry_is_told_quietly_and_giving_up_is_a_warning() {
        for (second, levels) in [
            (200, vec![Level::DEBUG]),
            (503, vec![Level::DEBUG, Level::WARN]),
        ] {
            Keeper::take();
            get([status(503), status(second)])
                .policy(fixed(ms(250)).with_max_attempts(2))
                .run()
                .await;
            let events = Keeper::take();
            let seen: Vec<_> = events.iter().map(|event| event.level).collect();
            assert_eq!(seen, levels);
            let fields = &events[0].fields;
            for (name, value) in [
                ("http.request.resend_count", Value::from(1)),
                ("http.response.status_code", 503.into()),
                ("retry.delay_ms", 250.into()),
                ("retry.max_attempts", 2.into()),
                ("server.address", "origin.test".into()),
            ] {
                assert_eq!(fields[name], value, "{name}");
            }
        }
        // What needs no retry is not told of.
        Keeper::take();
        get([status(404)]).run().await;
        assert!(Keeper::take().is_empty());
    }
}
