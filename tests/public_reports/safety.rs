//! Reports about what may be sent again: which method after which answer, and which errors mend.

use std::io;
use std::time::Duration;

use http::Extensions;
use reqwest::{Method, Request, Response};
use reqwest_jitter::{
    Attempt, Cause, Classifier, DefaultClassifier, Effect, JitteredRetryMiddleware, Replay,
    RetryOverride, RetryReport, StopReason, Verdict, classify_fn,
};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Error, Middleware, Next};

use crate::case::{get, post, send};
use crate::h2::{self, H2};
use crate::marking::Marking;
use crate::support::{ScriptedOrigin, URL, fixed, ms, secs, status, unreachable};
use crate::wire::{Reply, Wire, answer, client, plain};

fn hasty() -> JitteredRetryMiddleware {
    JitteredRetryMiddleware::new(fixed(ms(1)).with_max_attempts(3))
}

/// First this, then 200.
async fn once(reply: Reply) -> Wire {
    Wire::serve(move |number| match number {
        0 => reply.clone(),
        _ => answer(200, "", b""),
    })
    .await
}

async fn order(client: &ClientWithMiddleware, server: &Wire) -> Result<Response, Error> {
    client
        .post(server.url("/orders"))
        .body("an order")
        .send()
        .await
}

/// `KittyCAD/kittycad.rs#1042`: a POST was repeated after 502, and what it ordered was made up to four times.
#[tokio::test(start_paused = true)]
pub(crate) async fn id_01_a_post_is_not_repeated_after_a_failure_that_may_have_had_an_effect() {
    let script = || [status(502), status(502), status(200)];
    for method in [Method::POST, Method::PATCH] {
        send(method, script()).body("an order").run().await.stops(
            502,
            [],
            StopReason::NotReplayable,
        );
    }
    // What the caller knows to be harmless is repeated.
    post(script())
        .extension(RetryOverride::new().assume_idempotent(true))
        .run()
        .await
        .answers(200, [100, 200]);
    post(script())
        .header("idempotency-key", "\"8e03978e\"")
        .run()
        .await
        .answers(200, [100, 200]);
    for method in [Method::PUT, Method::DELETE, Method::GET] {
        send(method, script()).run().await.answers(200, [100, 200]);
    }
}

/// `softonic/axios-retry#146`: a POST that the server clearly turned away was not sent again either.
#[tokio::test(start_paused = true)]
pub(crate) async fn id_03_a_post_is_sent_again_where_the_server_turned_it_away() {
    let turned_away = |code| status(code).header("retry-after", "1");
    for code in [429, 503] {
        post([turned_away(code), status(200)])
            .run()
            .await
            .answers(200, [1000]);
        post([turned_away(code)])
            .policy(fixed(ms(1)).with_replay(Replay::IdempotentOnly))
            .run()
            .await
            .stops(code, [], StopReason::NotReplayable);
    }
    post([status(429), status(200)])
        .run()
        .await
        .answers(200, [100]);
    post([status(503)])
        .run()
        .await
        .stops(503, [], StopReason::NotReplayable);
}

/// `juspay/hyperswitch#4366`: a connection that never came about has had no effect, whatever was to be sent on it.
#[tokio::test(start_paused = true)]
pub(crate) async fn id_04_a_post_that_never_left_is_sent_again() {
    let done = post([unreachable(), status(200)]).run().await;
    done.answers(200, [100]);
    for arrival in done.origin.arrivals() {
        assert_eq!(arrival.body.unwrap(), b"an order");
    }
    post([unreachable()])
        .policy(fixed(ms(1)).with_replay(Replay::IdempotentOnly))
        .run()
        .await
        .fails([], StopReason::NotReplayable);
}

/// A key of its own for each call, as an application would give.
struct Keys(std::sync::atomic::AtomicU32);

#[async_trait::async_trait]
impl Middleware for Keys {
    async fn handle(
        &self,
        mut request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response, Error> {
        let key = self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        request.headers_mut().insert("idempotency-key", key.into());
        next.run(request, extensions).await
    }
}

/// `square/square-mcp-server#31`: each attempt had a key of its own, and was a payment of its own.
#[tokio::test(start_paused = true)]
pub(crate) async fn id_05_all_attempts_carry_the_key_of_their_call() {
    let origin = ScriptedOrigin::new([503, 200, 503, 200].map(status));
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(Keys(7.into()))
        .with(hasty())
        .with(origin.clone())
        .build();
    check_keys(&client, &origin, ["7", "7", "8", "8"]).await;
}

async fn check_keys(client: &ClientWithMiddleware, origin: &ScriptedOrigin, expected: [&str; 4]) {
    for _ in 0..2 {
        let response = client.post(URL).body("pay").send().await.unwrap();
        assert_eq!(response.status(), 200);
    }
    let arrivals = origin.arrivals();
    let keys = arrivals
        .iter()
        .map(|arrival| arrival.headers["idempotency-key"].to_str().unwrap());
    assert_eq!(keys.collect::<Vec<_>>(), expected);
}

/// The same with the keys that the layer makes.
#[cfg(feature = "idempotency-keys")]
#[tokio::test(start_paused = true)]
async fn id_05_keys_that_the_layer_makes_are_no_different() {
    let origin = ScriptedOrigin::new([503, 200, 503, 200].map(status));
    let client = origin.client(JitteredRetryMiddleware::new(
        fixed(ms(1)).with_idempotency_keys(),
    ));
    for _ in 0..2 {
        let response = client.post(URL).body("pay").send().await.unwrap();
        assert_eq!(response.status(), 200);
    }
    let arrivals = origin.arrivals();
    let keys: Vec<_> = arrivals
        .iter()
        .map(|arrival| &arrival.headers["idempotency-key"])
        .collect();
    assert_eq!(keys.len(), 4);
    assert_eq!((keys[0], keys[2]), (keys[1], keys[3]));
    assert_ne!(keys[0], keys[2]);
}

/// `TrueLayer/reqwest-middleware#14`: a connection that ended before its answer was an error of no known kind.
#[tokio::test]
pub(crate) async fn tr_01_a_connection_that_ends_before_its_answer_is_retried_for_a_get() {
    let server = once(Reply::SendAndClose(vec![])).await;
    let response = client(hasty()).get(server.url("/")).send().await.unwrap();
    let report = RetryReport::of(&response).unwrap();
    assert_eq!((response.status().as_u16(), server.count()), (200, 2));
    assert_eq!(report.last_cause(), Some(Cause::Transport));

    // The server has read it all, and may have acted on it.
    let server = once(Reply::SendAndClose(vec![])).await;
    let error = order(&client(hasty()), &server).await.unwrap_err();
    assert!(error.is_request());
    assert_eq!(server.count(), 1);
}

/// `seanmonstar/reqwest#2325`: requests that queued for an HTTP/2 connection failed when it closed.
#[tokio::test]
pub(crate) async fn tr_03_what_queued_for_a_connection_that_closes_is_sent_on_another() {
    let server = H2::serve(|number| h2::Reply {
        frames: if number == 0 {
            vec![]
        } else {
            vec![h2::fine()]
        },
        is_closing: number == 0,
    })
    .await;
    let inner = plain().http2_prior_knowledge().build().unwrap();
    let client = ClientBuilder::new(inner).with(hasty()).build();
    let calls: Vec<_> = (0..50)
        .map(|_| tokio::spawn(client.get(&server.url).send()))
        .collect();
    let mut retried = 0;
    for call in calls {
        let response = call.await.unwrap().unwrap();
        assert_eq!(response.status(), 200);
        retried += usize::from(RetryReport::of(&response).is_some());
    }
    assert!(retried > 0, "somebody was on the connection");
    assert_eq!(server.count(), 51, "one was read twice");
}

/// What a middleware adds that wants to say where it was.
struct Context;

#[async_trait::async_trait]
impl Middleware for Context {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response, Error> {
        let result = next.run(request, extensions).await;
        result.map_err(|error| {
            let error = match error {
                Error::Reqwest(error) => anyhow::Error::new(error),
                Error::Middleware(error) => error,
            };
            Error::Middleware(error.context("behind the proxy").context("in the shop"))
        })
    }
}

/// `astral-sh/uv#14171`: a reset lay so deep in the chain of an error that nobody found it.
#[tokio::test]
pub(crate) async fn tr_04_an_error_is_recognised_however_deep_it_lies() {
    for reply in [Reply::SendAndReset(vec![]), Reply::SendAndClose(vec![])] {
        let wrapped = || {
            ClientBuilder::new(plain().build().unwrap())
                .with(hasty())
                .with(Context)
                .build()
        };
        let server = once(reply.clone()).await;
        let response = wrapped().get(server.url("/")).send().await.unwrap();
        assert_eq!((response.status().as_u16(), server.count()), (200, 2));
        let server = once(reply).await;
        assert!(order(&wrapped(), &server).await.is_err());
        assert_eq!(server.count(), 1);
    }
    // Not everything that is wrapped is worth another attempt.
    let server = once(Reply::SendAndClose(b"garbage\r\n\r\n".to_vec())).await;
    let client = ClientBuilder::new(plain().build().unwrap())
        .with(hasty())
        .with(Context)
        .build();
    assert!(client.get(server.url("/")).send().await.is_err());
    assert_eq!(server.count(), 1);
}

/// `apache/arrow-rs-object-store#15`: a body broke off behind the layer's back, and a retry was expected.
#[tokio::test]
pub(crate) async fn tr_05_a_body_that_breaks_off_is_the_readers_error_and_no_retry() {
    let half = [
        b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n".to_vec(),
        vec![b'x'; 400],
    ];
    let server = once(Reply::SendAndClose(half.concat())).await;
    let response = client(hasty()).get(server.url("/")).send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(RetryReport::of(&response).is_none());
    assert!(response.bytes().await.is_err(), "nothing is cut in silence");
    assert_eq!(server.count(), 1);
}

/// Reads the body where its errors can still be answered.
struct Reading;

#[async_trait::async_trait]
impl Middleware for Reading {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response, Error> {
        let response = next.run(request, extensions).await?;
        let whole = http::Response::builder().status(response.status());
        Ok(whole.body(response.bytes().await?).unwrap().into())
    }
}

/// What the documentation recommends to those who need it: the body read below.
#[tokio::test]
async fn tr_05_a_body_that_is_read_below_is_retried() {
    let half = b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nhalf".to_vec();
    let server = Wire::serve(move |number| match number {
        0 => Reply::SendAndClose(half.clone()),
        _ => answer(200, "", b"whole"),
    })
    .await;
    let client = ClientBuilder::new(plain().build().unwrap())
        .with(hasty())
        .with(Reading)
        .build();
    let response = client.get(server.url("/")).send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "whole");
    assert_eq!(server.count(), 2);
}

/// `apache/arrow-rs#6508`: an error came as the body of a 200.
#[tokio::test(start_paused = true)]
pub(crate) async fn tr_06_a_classifier_can_find_fault_with_a_200() {
    let script = || {
        [
            status(200).body("<Error><Code>SlowDown</Code></Error>"),
            status(200).body("ok"),
        ]
    };
    let done = post(script()).run().await;
    done.answers(200, []);

    let classifier = classify_fn(|attempt: &Attempt<'_>| {
        let marked = attempt
            .headers()
            .is_some_and(|headers| headers.contains_key("x-slow-down"));
        if marked {
            Verdict::retry(Cause::Throttled, Effect::None)
        } else {
            DefaultClassifier::new().classify(attempt)
        }
    });
    let origin = ScriptedOrigin::new(script());
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(hasty().with_classifier(classifier))
        .with(Marking::new("<Code>SlowDown</Code>", "x-slow-down"))
        .with(origin.clone())
        .build();
    let response = client.post(URL).body("a part").send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "ok");
    assert_eq!(origin.gaps(), [ms(1)]);
}

/// `gatling/gatling#3609`: any connection that closed was taken for one that had grown old in the pool.
#[tokio::test]
pub(crate) async fn tr_09_a_new_connection_that_closes_is_retried_within_the_rules_only() {
    let retry = || JitteredRetryMiddleware::new(fixed(ms(1)).with_max_attempts(5));
    let server = Wire::serve(|_| Reply::SendAndClose(vec![])).await;
    assert!(order(&client(retry()), &server).await.is_err());
    assert_eq!(server.count(), 1);
    assert!(client(retry()).get(server.url("/")).send().await.is_err());
    assert_eq!(server.count(), 1 + 5);
}

/// `JuliaWeb/HTTP.jl#1294`: a stream that the server guarantees not to have touched was an error like any other.
#[tokio::test]
pub(crate) async fn h2_01_a_stream_that_was_refused_is_sent_again_whatever_its_method() {
    const REFUSED_STREAM: u32 = 7;
    const CANCEL: u32 = 8;
    // The frame can be read with the feature only; without it, the safe answer stands in.
    let read = if cfg!(feature = "http2") { 2 } else { 1 };
    for (frame, sent) in [
        (h2::reset(REFUSED_STREAM), read),
        (h2::go_away(0, 0), read),
        (h2::reset(CANCEL), 1),
    ] {
        let server = H2::serve(move |number| h2::Reply {
            frames: vec![if number == 0 {
                frame.clone()
            } else {
                h2::fine()
            }],
            is_closing: false,
        })
        .await;
        let inner = plain().http2_prior_knowledge().build().unwrap();
        let client = ClientBuilder::new(inner).with(hasty()).build();
        let result = client.post(&server.url).body("an order").send().await;
        assert_eq!((server.count(), result.is_ok()), (sent, sent == 2));
    }
}

/// `opensearch-project/opensearch-go#1121`: every retry went to the connection that had died.
#[tokio::test]
pub(crate) async fn h2_03_a_connection_that_timed_out_is_not_used_again() {
    let server = once(Reply::SendAndStall(vec![])).await;
    let inner = plain().timeout(ms(500)).build().unwrap();
    let client = ClientBuilder::new(inner).with(hasty()).build();
    let response = client.get(server.url("/")).send().await.unwrap();
    assert_eq!(response.status(), 200);
    let connections: Vec<_> = server
        .requests()
        .iter()
        .map(|request| request.connection)
        .collect();
    assert_eq!(connections, [0, 1]);
}

/// `curl/curl#5462`: a retry after a redirect went to the first URL with the last method.
#[tokio::test]
pub(crate) async fn rd_01_a_retry_starts_again_at_the_first_url_with_the_first_method() {
    let poll = |number| match number {
        0 | 2 => answer(303, "location: /poll/1\r\n", b""),
        1 => answer(429, "", b""),
        _ => answer(200, "", b""),
    };
    let lines = |server: &Wire| -> Vec<String> {
        let requests = server.requests();
        let line = |head: &str| head.lines().next().unwrap().replace(" HTTP/1.1", "");
        requests.iter().map(|request| line(&request.head)).collect()
    };
    let server = Wire::serve(poll).await;
    let response = order(&client(hasty()), &server).await.unwrap();
    assert_eq!(response.status(), 429);
    assert_eq!(
        RetryReport::of(&response).unwrap().stop(),
        StopReason::NotReplayable
    );
    assert_eq!(lines(&server), ["POST /orders", "GET /poll/1"]);

    let server = Wire::serve(poll).await;
    let request = client(hasty()).put(server.url("/jobs")).body("a job");
    assert_eq!(request.send().await.unwrap().status(), 200);
    assert_eq!(
        lines(&server),
        ["PUT /jobs", "GET /poll/1", "PUT /jobs", "GET /poll/1"]
    );
    assert_eq!(server.requests()[2].body, b"a job");
}

/// `Gitlawb/zero#750`: a 429 behind a redirect sent the POST to its first address again, which had taken it.
#[tokio::test(start_paused = true)]
pub(crate) async fn rd_03_a_429_behind_a_redirect_says_nothing_about_the_post() {
    let throttled = || status(429).header("retry-after", "1");
    post([throttled().at("http://origin.test/b"), status(200)])
        .run()
        .await
        .stops(429, [], StopReason::NotReplayable);
    post([throttled(), status(200)])
        .run()
        .await
        .answers(200, [1000]);
    get([throttled().at("http://origin.test/b"), status(200)])
        .run()
        .await
        .answers(200, [1000]);
}

/// `hashicorp/go-retryablehttp#175`: servers that will never do it were asked again and again.
#[tokio::test(start_paused = true)]
pub(crate) async fn st_01_a_5xx_that_will_not_mend_is_final() {
    for code in [501, 505, 506, 508, 510, 511] {
        get([status(code), status(200)])
            .run()
            .await
            .stops(code, [], StopReason::Rejected);
    }
    for code in [500, 502, 503, 504].into_iter().chain(520..=527) {
        get([status(code), status(200)])
            .run()
            .await
            .answers(200, [100]);
    }
    let classifier = DefaultClassifier::new()
        .with_status(501, Effect::Unknown)
        .without_status(500);
    let retry = || hasty().with_classifier(classifier.clone());
    get([status(501), status(200)])
        .retry(retry())
        .run()
        .await
        .answers(200, [1]);
    get([status(500)])
        .retry(retry())
        .run()
        .await
        .stops(500, [], StopReason::Rejected);
}

/// `open-telemetry/opentelemetry-proto#806`: nobody wrote down which statuses are tried again.
#[tokio::test(start_paused = true)]
pub(crate) async fn st_03_429_is_retried_and_408_and_425_where_somebody_says_so() {
    for code in [408, 425] {
        get([status(code), status(200)])
            .run()
            .await
            .stops(code, [], StopReason::Rejected);
    }
    get([status(429), status(200)])
        .run()
        .await
        .answers(200, [100]);
    let classifier = DefaultClassifier::new()
        .with_status(408, Effect::Unknown)
        .with_status(425, Effect::None);
    let retry = || hasty().with_classifier(classifier.clone());
    get([status(408), status(425), status(200)])
        .retry(retry())
        .run()
        .await
        .answers(200, [1, 1]);
    post([status(425), status(408), status(200)])
        .retry(retry())
        .run()
        .await
        .stops(408, [1], StopReason::NotReplayable);
}

/// `envoyproxy/envoy#4163`: 503 and 504 say different things about a POST.
#[tokio::test(start_paused = true)]
pub(crate) async fn cl_02_each_status_says_for_itself_whether_a_post_may_be_repeated() {
    let classifier = DefaultClassifier::new().with_status(503, Effect::None);
    for (code, is_repeated) in [(502, false), (503, true), (504, false), (429, true)] {
        let done = post([status(code), status(200)])
            .retry(hasty().with_classifier(classifier.clone()))
            .run()
            .await;
        if is_repeated {
            done.answers(200, [1]);
        } else {
            done.stops(code, [], StopReason::NotReplayable);
        }
    }
}

/// `Azure/azure-sdk-for-cpp#5680`: where a caller's own rule asked for the retry, the server's wait was lost.
#[tokio::test(start_paused = true)]
pub(crate) async fn cl_04_the_hint_is_waited_whoever_asked_for_the_retry() {
    let classifier = classify_fn(|attempt| match attempt.status() {
        Some(status) if status == 409 => Verdict::retry(Cause::Other("locked"), Effect::None),
        _ => DefaultClassifier::new().classify(attempt),
    });
    for classifier in [
        JitteredRetryMiddleware::new(fixed(ms(1))).with_classifier(classifier),
        JitteredRetryMiddleware::new(fixed(ms(1)))
            .with_classifier(DefaultClassifier::new().with_status(409, Effect::None)),
    ] {
        get([
            status(409).header("retry-after", "2"),
            status(409),
            status(200),
        ])
        .retry(classifier)
        .run()
        .await
        .answers(200, [2000, 1]);
    }
}

/// `immobiliare/RealHTTP#78`: all that came back was that the attempts were used up.
#[tokio::test]
pub(crate) async fn ex_03_the_last_error_comes_back_as_it_was_made() {
    let server = Wire::serve(|_| Reply::SendAndReset(vec![])).await;
    let mut extensions = Extensions::new();
    let request = Request::new(Method::GET, server.url("/path").parse().unwrap());
    let error = client(hasty())
        .execute_with_extensions(request, &mut extensions)
        .await
        .unwrap_err();
    let report = RetryReport::from_extensions(&extensions).unwrap();
    assert_eq!(
        (report.attempts(), report.stop()),
        (3, StopReason::AttemptsExhausted)
    );
    assert_eq!(report.last_cause(), Some(Cause::Transport));
    let Error::Reqwest(error) = error else {
        panic!("wrapped: {error:?}");
    };
    assert!(error.is_request() && !error.is_connect() && !error.is_timeout());
    assert_eq!(error.url().unwrap().path(), "/path");
    let mut chain = std::iter::successors(
        Some(&error as &(dyn std::error::Error + 'static)),
        |error| error.source(),
    );
    assert!(chain.any(|link| {
        link.downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::ConnectionReset)
    }));
}

/// The other kinds, without a socket.
#[tokio::test(start_paused = true)]
async fn ex_03_what_kind_of_error_it_was_can_still_be_asked() {
    let done = get([crate::support::timed_out(), unreachable()])
        .policy(fixed(secs(1)).with_max_attempts(2))
        .run()
        .await;
    done.fails([1000], StopReason::AttemptsExhausted);
    let error = done.result.unwrap_err();
    assert!(error.is_connect() && !error.is_timeout());
    let done = get([unreachable(), crate::support::timed_out()])
        .policy(fixed(secs(1)).with_max_attempts(2))
        .timeout(Duration::from_millis(20))
        .run()
        .await;
    done.fails([1000], StopReason::AttemptsExhausted);
    assert!(done.result.unwrap_err().is_timeout());
}

/// `TrueLayer/reqwest-middleware#271`: a client without TLS could never connect, and tried again and again.
#[tokio::test(start_paused = true)]
pub(crate) async fn tr_07_a_scheme_that_the_client_can_not_speak_is_final() {
    let mut extensions = Extensions::new();
    let request = Request::new(Method::GET, "https://origin.invalid/".parse().unwrap());
    let error = client(hasty())
        .execute_with_extensions(request, &mut extensions)
        .await
        .unwrap_err();
    let report = RetryReport::from_extensions(&extensions).unwrap();
    assert_eq!(
        (report.attempts(), report.stop()),
        (1, StopReason::Rejected),
        "{error:?}"
    );
}
