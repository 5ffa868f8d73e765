//! Owns the rule of what may be sent again, and of what comes back to the caller.

mod support;

use http::Extensions;
use reqwest::{Body, Method, Request};
use reqwest_jitter::{
    Cause, Effect, JitteredRetryMiddleware, Replay, ReplayableBody, RetryAttempt, RetryOverride,
    RetryPolicy, RetryReport, StopReason, Verdict, classify_fn,
};
use support::{ScriptedOrigin, URL, fixed, ms, report, status, timed_out, unreachable};

const LEVELS: [Replay; 3] = [
    Replay::IdempotentOnly,
    Replay::WhenUnprocessed,
    Replay::Always,
];
/// And whether they can be repeated without harm.
const METHODS: [(&str, bool); 13] = [
    ("GET", true),
    ("HEAD", true),
    ("OPTIONS", true),
    ("TRACE", true),
    ("PUT", true),
    ("DELETE", true),
    ("QUERY", true),
    ("POST", false),
    ("PATCH", false),
    ("CONNECT", false),
    ("BREW", false),
    // Methods are case-sensitive.
    ("get", false),
    ("Put", false),
];

/// Two attempts without a wait.
fn policy(replay: Replay) -> RetryPolicy {
    fixed(ms(0)).with_max_attempts(2).with_replay(replay)
}

/// Whether a request that failed with this effect was sent again.
async fn is_repeated(
    replay: Replay,
    effect: Effect,
    request: Request,
    settings: RetryOverride,
) -> bool {
    let origin = ScriptedOrigin::new([status(500)]);
    let classifier = classify_fn(move |_| Verdict::retry(Cause::ServerError, effect));
    let retry = JitteredRetryMiddleware::new(policy(replay)).with_classifier(classifier);
    let mut extensions = Extensions::new();
    extensions.insert(settings);
    let client = origin.client(retry);
    let result = client
        .execute_with_extensions(request, &mut extensions)
        .await;
    let stop = report(&result).stop();
    match origin.count() {
        1 => assert_eq!(stop, StopReason::NotReplayable),
        2 => assert_eq!(stop, StopReason::AttemptsExhausted),
        other => panic!("{other} requests"),
    }
    origin.count() == 2
}

fn request(method: &str) -> Request {
    Request::new(method.parse().unwrap(), URL.parse().unwrap())
}

fn with_key(method: &str) -> Request {
    let mut request = request(method);
    let key = "\"8e03978e-40d5-43e8-bc93-6894a57f9324\"".parse().unwrap();
    request.headers_mut().insert("idempotency-key", key);
    request
}

fn table(replay: Replay, effect: Effect, is_idempotent: bool) -> bool {
    match (replay, effect) {
        (Replay::Always, _) | (Replay::WhenUnprocessed, Effect::None) => true,
        (Replay::WhenUnprocessed, Effect::Unknown) | (Replay::IdempotentOnly, _) => is_idempotent,
    }
}

#[tokio::test(start_paused = true)]
async fn the_replay_table_holds_for_every_method_effect_and_level() {
    for replay in LEVELS {
        for effect in [Effect::None, Effect::Unknown] {
            for (method, is_idempotent) in METHODS {
                let case = format!("{replay:?}, {effect:?}, {method}");
                let none = RetryOverride::new();
                let repeats =
                    async |request, settings| is_repeated(replay, effect, request, settings).await;
                let expected = table(replay, effect, is_idempotent);
                assert_eq!(repeats(request(method), none).await, expected, "{case}");
                let safe = table(replay, effect, true);
                assert_eq!(repeats(with_key(method), none).await, safe, "{case}, key");
                // The caller knows best, whatever the method and the header say.
                for request in [request, with_key] {
                    for known in [true, false] {
                        let settings = none.assume_idempotent(known);
                        let expected = table(replay, effect, known);
                        let found = repeats(request(method), settings).await;
                        assert_eq!(found, expected, "{case}, assumed {known}");
                    }
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn by_default_a_post_is_sent_again_only_where_the_server_certainly_did_nothing() {
    for (answer, sent) in [
        (status(429), 5),
        (status(503).header("retry-after", "0"), 5),
        (unreachable(), 5),
        (status(503), 1),
        (status(500), 1),
        (status(502), 1),
        (status(504), 1),
        (status(408), 1),
        (status(409), 1),
        (timed_out(), 1),
        (status(429).at("http://origin.test/receipt"), 1),
    ] {
        let origin = ScriptedOrigin::new([answer]);
        let retry = JitteredRetryMiddleware::new(fixed(ms(0)));
        let _ = origin.client(retry).post(URL).body("order").send().await;
        assert_eq!(origin.count(), sent);
    }
}

#[tokio::test(start_paused = true)]
async fn every_attempt_carries_the_same_request() {
    let origin = ScriptedOrigin::new([status(503)]);
    origin
        .client(JitteredRetryMiddleware::new(fixed(ms(0))))
        .put(URL)
        .header("x-twice", "1")
        .header("x-twice", "2")
        .body("the whole body")
        .send()
        .await
        .unwrap();
    let arrivals = origin.arrivals();
    assert_eq!(arrivals.len(), 5);
    for arrival in arrivals {
        assert_eq!(arrival.method, Method::PUT);
        assert_eq!(arrival.body.as_deref(), Some(&b"the whole body"[..]));
        let values: Vec<_> = arrival.headers.get_all("x-twice").iter().collect();
        assert_eq!(values, ["1", "2"]);
    }
}

fn stream() -> Body {
    Body::wrap_stream(futures_util::stream::iter([Ok::<_, std::io::Error>(
        "part",
    )]))
}

#[tokio::test(start_paused = true)]
async fn a_body_that_can_not_be_cloned_is_sent_once_and_its_failure_comes_back() {
    for answer in [status(429), status(503), status(500)] {
        let origin = ScriptedOrigin::new([answer.body("why")]);
        let client = origin.client(JitteredRetryMiddleware::new(policy(Replay::Always)));
        let response = client.put(URL).body(stream()).send().await.unwrap();
        let report = RetryReport::of(&response).unwrap().clone();
        assert_eq!(
            (report.attempts(), report.stop()),
            (1, StopReason::NotReplayable)
        );
        assert_eq!(
            (response.text().await.unwrap(), origin.count()),
            ("why".to_owned(), 1)
        );
    }
    let origin = ScriptedOrigin::new([status(200)]);
    let client = origin.client(JitteredRetryMiddleware::default());
    let response = client.put(URL).body(stream()).send().await.unwrap();
    assert!(RetryReport::of(&response).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_made_anew_arrives_at_every_attempt() {
    for method in ["PUT", "POST"] {
        let origin = ScriptedOrigin::new([status(429), status(429), status(200)]);
        let client = origin.client(JitteredRetryMiddleware::new(fixed(ms(0))));
        let request = client.request(method.parse().unwrap(), URL).body(stream());
        let body = ReplayableBody::new(|| Body::from("made"));
        request.with_extension(body).send().await.unwrap();
        let bodies: Vec<_> = origin
            .arrivals()
            .into_iter()
            .map(|arrival| arrival.body)
            .collect();
        assert_eq!(bodies, vec![Some(b"made".to_vec()); 3]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_can_not_be_made_again_ends_the_call_with_its_own_error() {
    let origin = ScriptedOrigin::new([status(503)]);
    let left = std::sync::atomic::AtomicUsize::new(2);
    let body = ReplayableBody::try_new(move || {
        match left.fetch_sub(1, std::sync::atomic::Ordering::SeqCst) {
            0 => Err(std::io::Error::other("gone")),
            _ => Ok(Body::from("made")),
        }
    });
    let mut extensions = Extensions::new();
    extensions.insert(body);
    let result = origin
        .client(JitteredRetryMiddleware::new(fixed(ms(1))))
        .execute_with_extensions(request("PUT"), &mut extensions)
        .await;
    assert_eq!(result.unwrap_err().to_string(), "gone");
    assert_eq!(origin.count(), 2);
    let report = RetryReport::from_extensions(&extensions).unwrap();
    assert_eq!(
        (report.attempts(), report.stop()),
        (2, StopReason::NotReplayable)
    );
    assert_eq!(report.last_cause(), Some(Cause::ServerError));
}

#[tokio::test(start_paused = true)]
async fn the_last_response_comes_back_untouched() {
    let last = status(503)
        .header("x-twice", "1")
        .header("x-twice", "2")
        .header("x-raw", b"\xff")
        .body("the last word");
    let origin = ScriptedOrigin::new([status(503).body("not this"), last]);
    let client = origin.client(JitteredRetryMiddleware::new(fixed(ms(1))));
    let response = client.get(URL).send().await.unwrap();
    assert_eq!(
        (response.status().as_u16(), response.url().as_str()),
        (503, URL)
    );
    let values: Vec<_> = response.headers().get_all("x-twice").iter().collect();
    assert_eq!(values, ["1", "2"]);
    assert_eq!(response.headers()["x-raw"].as_bytes(), b"\xff");
    assert_eq!(response.headers().len(), 3);
    assert_eq!(response.text().await.unwrap(), "the last word");
}

#[tokio::test(start_paused = true)]
async fn the_last_error_comes_back_as_reqwest_made_it() {
    for max_attempts in [1, 3] {
        for (answer, is_connect, is_timeout) in
            [(unreachable(), true, false), (timed_out(), false, true)]
        {
            let origin = ScriptedOrigin::new([answer]);
            let policy = fixed(ms(0)).with_max_attempts(max_attempts);
            let client = origin.client(JitteredRetryMiddleware::new(policy));
            let error = client.get(URL).send().await.unwrap_err();
            assert!(
                matches!(error, reqwest_middleware::Error::Reqwest(_)),
                "{error:?}"
            );
            assert_eq!(
                (error.is_connect(), error.is_timeout()),
                (is_connect, is_timeout)
            );
            assert_eq!(error.url().map(reqwest::Url::as_str), Some(URL));
            assert_eq!(origin.count(), usize::try_from(max_attempts).unwrap());
        }
    }
}

/// Counts how many attempts have seen these very extensions.
#[derive(Clone, Debug, PartialEq)]
struct Passed(u32);

/// A middleware below the retry layer that leaves its mark.
struct Marking;

#[async_trait::async_trait]
impl reqwest_middleware::Middleware for Marking {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: reqwest_middleware::Next<'_>,
    ) -> reqwest_middleware::Result<reqwest::Response> {
        let passed = extensions.get::<Passed>().map_or(0, |passed| passed.0);
        let number = extensions
            .get::<RetryAttempt>()
            .map_or(1, RetryAttempt::number);
        extensions.insert(Passed(passed + 1));
        extensions.insert(Marks(number));
        next.run(request, extensions).await
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Marks(u32);

#[tokio::test(start_paused = true)]
async fn extensions_are_fresh_for_every_attempt_and_only_the_last_ones_come_back() {
    for (script, last) in [
        (vec![status(200)], 1),
        (vec![status(404)], 1),
        (vec![status(503), status(200)], 2),
        (vec![status(503)], 4),
        (vec![unreachable()], 4),
    ] {
        let origin = ScriptedOrigin::new(script);
        let policy = fixed(ms(0)).with_max_attempts(4);
        let client = reqwest_middleware::ClientBuilder::new(reqwest::Client::new())
            .with(JitteredRetryMiddleware::new(policy))
            .with(Marking)
            .with(origin.clone())
            .build();
        let mut extensions = Extensions::new();
        extensions.insert("the caller's");
        let _ = client
            .execute_with_extensions(request("GET"), &mut extensions)
            .await;
        for (index, arrival) in origin.arrivals().iter().enumerate() {
            assert_eq!(arrival.extensions.get(), Some(&"the caller's"));
            assert_eq!(arrival.extensions.get(), Some(&Passed(1)), "fresh");
            let attempt = arrival.extensions.get::<RetryAttempt>().copied();
            let numbers = attempt.map(|attempt| (attempt.number(), attempt.resend_count()));
            let index = u32::try_from(index).unwrap();
            assert_eq!(numbers, (index > 0).then_some((index + 1, index)));
        }
        assert_eq!(extensions.get(), Some(&Passed(1)));
        assert_eq!(extensions.get(), Some(&Marks(last)));
        assert_eq!(extensions.get(), Some(&"the caller's"));
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_call_left_in_reused_extensions_is_removed() {
    for settings in [
        RetryOverride::new(),
        RetryOverride::disabled(),
        RetryOverride::new().with_max_attempts(1),
    ] {
        let origin = ScriptedOrigin::new([status(503), status(503), status(200)]);
        let client = origin.client(JitteredRetryMiddleware::new(fixed(ms(0))));
        let mut extensions = Extensions::new();
        client
            .execute_with_extensions(request("GET"), &mut extensions)
            .await
            .unwrap();
        let report = RetryReport::from_extensions(&extensions).unwrap();
        assert_eq!(report.attempts(), 3);

        extensions.insert(settings);
        let response = client
            .execute_with_extensions(request("GET"), &mut extensions)
            .await
            .unwrap();
        assert!(RetryReport::from_extensions(&extensions).is_none());
        assert!(RetryReport::of(&response).is_none());
        assert!(
            origin.arrivals()[3]
                .extensions
                .get::<RetryReport>()
                .is_none()
        );
        assert!(
            origin.arrivals()[3]
                .extensions
                .get::<RetryAttempt>()
                .is_none()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn there_is_no_report_where_there_is_nothing_to_tell() {
    for (answer, settings, is_reported) in [
        (status(200), RetryOverride::new(), false),
        (status(304), RetryOverride::new(), false),
        (status(404), RetryOverride::new(), true),
        (status(503), RetryOverride::new(), true),
        (status(503), RetryOverride::new().with_max_attempts(1), true),
        (status(404), RetryOverride::disabled(), false),
        (status(503), RetryOverride::disabled(), false),
    ] {
        let origin = ScriptedOrigin::new([answer]);
        let client = origin.client(JitteredRetryMiddleware::new(fixed(ms(0))));
        let mut extensions = Extensions::new();
        extensions.insert(settings);
        let result = client
            .execute_with_extensions(request("GET"), &mut extensions)
            .await;
        assert_eq!(
            RetryReport::of(&result.unwrap()).is_some(),
            is_reported,
            "{settings:?}"
        );
        assert_eq!(
            RetryReport::from_extensions(&extensions).is_some(),
            is_reported
        );
    }
}

#[cfg(feature = "idempotency-keys")]
mod keys {
    use super::*;

    async fn keys(method: &str, request: Request) -> Vec<Option<String>> {
        let origin = ScriptedOrigin::new([status(500)]);
        let policy = fixed(ms(0)).with_max_attempts(3).with_idempotency_keys();
        let client = origin.client(JitteredRetryMiddleware::new(policy));
        assert_eq!(request.method(), method);
        client.execute(request).await.unwrap();
        let key = |arrival: &support::Arrival| {
            let key = arrival.headers.get("idempotency-key")?;
            Some(key.to_str().unwrap().to_owned())
        };
        origin.arrivals().iter().map(key).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_post_or_patch_without_a_key_gets_one_for_all_its_attempts() {
        let mut seen = std::collections::HashSet::new();
        for method in ["POST", "PATCH", "POST", "PATCH"] {
            let keys = keys(method, request(method)).await;
            assert_eq!(keys.len(), 3, "a key makes it repeatable");
            assert!(keys.iter().all(|key| *key == keys[0]));
            let key = keys[0].clone().unwrap();
            assert_eq!((key.len(), &key[..1], &key[37..]), (38, "\"", "\""));
            let version = (&key[15..16], &key[20..21]);
            assert!(version.0 == "4" && "89ab".contains(version.1), "{key}");
            assert!(seen.insert(key), "one key for each call");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_is_there_stays_and_other_methods_get_none() {
        let own = with_key("POST").headers()["idempotency-key"]
            .to_str()
            .unwrap()
            .to_owned();
        assert_eq!(keys("POST", with_key("POST")).await, vec![Some(own); 3]);
        assert_eq!(keys("PUT", request("PUT")).await, vec![None; 3]);
    }
}

#[tokio::test]
async fn endless_retries_without_a_delay_leave_the_thread_to_others() {
    let origin = ScriptedOrigin::new([status(503)]).forgetting();
    let policy = fixed(ms(0)).with_max_attempts(u32::MAX);
    let client = origin.client(JitteredRetryMiddleware::new(policy).without_budget());
    let call = tokio::spawn(client.get(URL).send());
    while origin.count() < 10 {
        tokio::task::yield_now().await;
    }
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
}
