//! Owns the rule of what can be seen from outside: the `tracing` events, and that nothing we print tells a secret.

#![cfg(feature = "tracing")]

#[path = "support/events.rs"]
mod events;
mod support;
#[path = "support/wire.rs"]
mod wire;

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use events::{Fields, Keeper, Seen, Value, seen};
use http::{Extensions, Method};
use reqwest::{Body, Request};
use reqwest_jitter::{
    Attempt, Backoff, Cause, DefaultClassifier, DelaySource, Effect, GateClosed, HostGate,
    JitteredRetryMiddleware, ReplayableBody, RetryBudget, RetryOverride, RetryPolicy, RetryReport,
    StopReason, Verdict, classify_fn,
};
use reqwest_jitter::{Classifier, RetryEvent};
use reqwest_middleware::ClientBuilder;
use support::{Answer, ScriptedOrigin, URL, status};
use tracing::Level;
use wire::{Reply, Wire, answer};

const DELAY: Duration = Duration::from_millis(250);

fn policy() -> RetryPolicy {
    RetryPolicy::new(Backoff::fixed(DELAY)).with_max_attempts(3)
}

fn retry() -> JitteredRetryMiddleware {
    JitteredRetryMiddleware::new(policy())
}

fn origin<const N: usize>(script: [Answer; N]) -> ScriptedOrigin {
    Keeper::take();
    ScriptedOrigin::new(script)
}

/// Sends one request, and returns the events it made.
async fn events_of(
    origin: &ScriptedOrigin,
    retry: JitteredRetryMiddleware,
    request: Request,
) -> Vec<Seen> {
    Keeper::take();
    let _ = origin.client(retry).execute(request).await;
    Keeper::take()
}

fn request(method: Method, url: &str) -> Request {
    Request::new(method, url.parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_retry_is_a_debug_event_and_a_give_up_a_warning() {
    let origin = origin([status(429).header("retry-after", "7"), status(503)]);

    let events = events_of(&origin, retry(), request(Method::PUT, URL)).await;

    let expected = [
        seen(
            Level::DEBUG,
            [
                ("message", "retrying".into()),
                ("http.request.method", "PUT".into()),
                ("server.address", "origin.test".into()),
                ("server.port", 80.into()),
                ("http.response.status_code", 429.into()),
                ("http.request.resend_count", 1.into()),
                ("error.type", "429".into()),
                ("retry.delay_ms", 7000.into()),
                ("retry.delay_source", "hint".into()),
                ("retry.max_attempts", 3.into()),
            ],
        ),
        seen(
            Level::DEBUG,
            [
                ("message", "retrying".into()),
                ("http.request.method", "PUT".into()),
                ("server.address", "origin.test".into()),
                ("server.port", 80.into()),
                ("http.response.status_code", 503.into()),
                ("http.request.resend_count", 2.into()),
                ("error.type", "503".into()),
                ("retry.delay_ms", 250.into()),
                ("retry.delay_source", "computed".into()),
                ("retry.max_attempts", 3.into()),
            ],
        ),
        seen(
            Level::WARN,
            [
                ("message", "giving up".into()),
                ("http.request.method", "PUT".into()),
                ("server.address", "origin.test".into()),
                ("server.port", 80.into()),
                ("http.response.status_code", 503.into()),
                ("http.request.resend_count", 2.into()),
                ("error.type", "503".into()),
                ("retry.max_attempts", 3.into()),
                ("retry.stop", "attempts_exhausted".into()),
            ],
        ),
    ];
    assert_eq!(events, expected);
}

#[tokio::test]
async fn the_events_tell_the_story_that_the_history_tells() {
    Keeper::take();
    let wire = Wire::serve(|number| match number {
        0 => answer(429, "retry-after-ms: 3\r\n", b""),
        1 => answer(503, "", b""),
        2 => Reply::SendAndReset(Vec::new()),
        _ => answer(200, "", b""),
    })
    .await;
    let policy = RetryPolicy::new(Backoff::fixed(Duration::from_millis(2)));
    let client = wire::client(JitteredRetryMiddleware::new(policy));

    let response = client.get(wire.url("/")).send().await.unwrap();

    let report = RetryReport::of(&response).unwrap();
    let events = Keeper::take();
    assert_eq!(report.history().len(), 3);
    assert_eq!(report.stop(), StopReason::Accepted);
    let told: Vec<Seen> = report
        .history()
        .iter()
        .map(|event| story(event, wire.address.port()))
        .collect();
    assert_eq!(events, told);
    let kinds: Vec<&Value> = events
        .iter()
        .map(|event| &event.fields["error.type"])
        .collect();
    assert_eq!(kinds, [&"429".into(), &"503".into(), &"transport".into()]);
    assert!(!events[2].fields.contains_key("http.response.status_code"));
}

/// The event that belongs to an entry of the history.
fn story(event: &RetryEvent, port: u16) -> Seen {
    let mut fields = Fields::from([
        ("message", "retrying".into()),
        ("http.request.method", "GET".into()),
        ("server.address", "127.0.0.1".into()),
        ("server.port", u64::from(port).into()),
        ("http.request.resend_count", u64::from(event.retry()).into()),
        ("error.type", event.cause().to_string().as_str().into()),
        (
            "retry.delay_ms",
            u64::try_from(event.delay().as_millis()).unwrap().into(),
        ),
        (
            "retry.delay_source",
            event.source().to_string().as_str().into(),
        ),
        ("retry.max_attempts", 5.into()),
    ]);
    if let Some(status) = event.status() {
        fields.insert(
            "http.response.status_code",
            u64::from(status.as_u16()).into(),
        );
        fields.insert("error.type", status.as_str().into());
    }
    Seen {
        level: Level::DEBUG,
        fields,
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_is_told_before_its_wait() {
    let origin = origin([status(503)]);
    let client = origin.client(retry());

    let call = client.get(URL).send();
    tokio::time::timeout(DELAY / 2, call).await.unwrap_err();

    assert_eq!(Keeper::take().len(), 1);
    assert_eq!(origin.count(), 1);
}

/// One call that ends as the name says, and what its warning must say.
struct Ending {
    stop: &'static str,
    retry: JitteredRetryMiddleware,
    request: Request,
    resend_count: Option<u64>,
    delay_ms: Option<u64>,
}

#[tokio::test(start_paused = true)]
async fn a_warning_says_why() {
    let spent = RetryBudget::new()
        .with_burst(1)
        .with_reserve_per_sec(0)
        .with_extra_load_percent(0);
    let endings = [
        Ending {
            stop: "attempts_exhausted",
            retry: retry(),
            request: request(Method::GET, URL),
            resend_count: Some(2),
            delay_ms: None,
        },
        Ending {
            stop: "elapsed_exhausted",
            retry: JitteredRetryMiddleware::new(policy().with_max_elapsed(DELAY / 2)),
            request: request(Method::GET, URL),
            resend_count: None,
            delay_ms: None,
        },
        Ending {
            stop: "budget_exhausted",
            retry: retry().with_budget(spent),
            request: request(Method::GET, URL),
            resend_count: Some(1),
            delay_ms: None,
        },
        Ending {
            stop: "retry_after_too_long",
            retry: retry().with_classifier(classify_fn(|_| Verdict::Retry {
                cause: Cause::Throttled,
                effect: Effect::None,
                after: Some(Duration::MAX),
            })),
            request: request(Method::GET, URL),
            resend_count: None,
            delay_ms: Some(u64::MAX),
        },
        Ending {
            stop: "not_replayable",
            retry: retry(),
            request: request(Method::POST, URL),
            resend_count: None,
            delay_ms: None,
        },
    ];
    for ending in endings {
        let origin = origin([status(500)]);
        let events = events_of(&origin, ending.retry, ending.request).await;
        let last = events.last().unwrap();
        assert_eq!(last.level, Level::WARN, "{}", ending.stop);
        assert_eq!(last.fields["retry.stop"], ending.stop.into());
        assert_eq!(last.fields["error.type"], "500".into());
        let field = |name| last.fields.get(name).cloned();
        let expected = ending.resend_count.map(Value::from);
        assert_eq!(
            field("http.request.resend_count"),
            expected,
            "{}",
            ending.stop
        );
        assert_eq!(
            field("retry.delay_ms"),
            ending.delay_ms.map(Value::from),
            "{}",
            ending.stop
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_warning_comes_exactly_where_the_hook_is_called() {
    let scripts: [(&[u16], u64); 5] = [
        (&[200], 0),
        (&[503, 200], 0),
        (&[404], 0),
        (&[503, 404], 0),
        (&[503], 1),
    ];
    for (script, expected) in scripts {
        Keeper::take();
        let origin = ScriptedOrigin::new(script.iter().copied().map(status));
        let calls = Arc::new(Mutex::new(0));
        let counter = Arc::clone(&calls);
        let retry = retry().on_give_up(move |_| *counter.lock().unwrap() += 1);
        let events = events_of(&origin, retry, request(Method::GET, URL)).await;
        let warnings = events.iter().filter(|event| event.level == Level::WARN);
        assert_eq!(warnings.count() as u64, expected, "{script:?}");
        assert_eq!(*calls.lock().unwrap(), expected, "{script:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_success_at_once_and_a_call_without_retries_tell_nothing() {
    let fine = origin([status(200)]);
    assert_eq!(
        events_of(&fine, retry(), request(Method::GET, URL)).await,
        []
    );

    let failing = origin([status(503)]);
    let client = failing.client(retry());
    let disabled = client.get(URL).with_extension(RetryOverride::disabled());
    assert_eq!(disabled.send().await.unwrap().status(), 503);
    assert_eq!(Keeper::take(), []);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_cannot_be_made_again_leaves_the_last_answer_in_the_warning() {
    let origin = origin([status(503)]);
    let made = Mutex::new(false);
    let body = ReplayableBody::try_new(move || {
        if std::mem::replace(&mut *made.lock().unwrap(), true) {
            return Err(std::io::Error::other("gone"));
        }
        Ok(Body::from("once"))
    });
    let call = origin.client(retry()).put(URL).with_extension(body);

    call.send().await.unwrap_err();

    let events = Keeper::take();
    let levels: Vec<Level> = events.iter().map(|event| event.level).collect();
    assert_eq!(levels, [Level::DEBUG, Level::WARN]);
    assert_eq!(events[1].fields["retry.stop"], "not_replayable".into());
    assert_eq!(events[1].fields["error.type"], "503".into());
    // The second send was announced, and did not come about.
    assert!(!events[1].fields.contains_key("http.request.resend_count"));
}

#[tokio::test]
async fn a_transport_error_is_told_by_its_kind() {
    Keeper::take();
    let policy = RetryPolicy::new(Backoff::fixed(Duration::from_millis(1))).with_max_attempts(2);
    let client = wire::client(JitteredRetryMiddleware::new(policy));
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };

    client
        .get(format!("http://127.0.0.1:{port}/"))
        .send()
        .await
        .unwrap_err();

    let events = Keeper::take();
    assert_eq!(events.len(), 2);
    for event in events {
        assert_eq!(event.fields["error.type"], "connect".into());
        assert!(!event.fields.contains_key("http.response.status_code"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_method_of_the_callers_own_is_other() {
    let known = [
        "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY",
    ];
    for (method, told) in known.map(|known| (known, known)).into_iter().chain([
        ("PROPFIND", "_OTHER"),
        ("get", "_OTHER"),
        ("TENANT-4711", "_OTHER"),
    ]) {
        let origin = origin([status(503)]);
        let events = events_of(&origin, retry(), request(method.parse().unwrap(), URL)).await;
        for event in &events {
            assert_eq!(event.fields["http.request.method"], told.into(), "{method}");
        }
        assert!(!events.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn an_address_is_a_name_or_a_bare_address_and_a_port() {
    let addresses = [
        ("https://api.test/", "api.test", 443),
        ("http://api.test:8080/", "api.test", 8080),
        ("http://192.0.2.7/", "192.0.2.7", 80),
        ("https://[2001:db8::1]:8443/", "2001:db8::1", 8443),
    ];
    for (url, address, port) in addresses {
        let origin = origin([status(503)]);
        for event in events_of(&origin, retry(), request(Method::GET, url)).await {
            assert_eq!(event.fields["server.address"], address.into());
            assert_eq!(event.fields["server.port"], Value::Number(port));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_that_is_printed_tells_a_secret() {
    const SECRETS: [&str; 7] = [
        "ada", "hunter2", "vault", "s3cret", "chapter", "t0ken", "c00kie",
    ];
    let url = "http://ada:hunter2@origin.test/vault/7?key=s3cret#chapter";
    let refusal = status(503).header("set-cookie", "c00kie").body("c00kie");
    let origin = origin([refusal]);
    let printed = Arc::new(Mutex::new(String::new()));
    let print = |what: &'static str| {
        let printed = Arc::clone(&printed);
        move |value: &dyn Debug| {
            writeln!(printed.lock().unwrap(), "{what}: {value:?} {value:#?}").unwrap();
        }
    };
    let (attempts, retries, give_ups) = (print("attempt"), print("retry"), print("give-up"));
    let retry = retry()
        .with_classifier(classify_fn(move |attempt: &Attempt<'_>| {
            attempts(attempt);
            DefaultClassifier::new().classify(attempt)
        }))
        .on_retry(move |event| retries(event))
        .on_give_up(move |report| give_ups(report));
    print("middleware")(&retry);
    let gate = HostGate::fail_fast().with_trip_after(1);
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(retry.clone())
        .with(gate.clone())
        .with(origin.clone())
        .build();
    let mut extensions = Extensions::new();
    for _ in 0..2 {
        let mut request = request(Method::GET, url);
        request
            .headers_mut()
            .insert("authorization", "Bearer t0ken".parse().unwrap());
        let result = client
            .execute_with_extensions(request, &mut extensions)
            .await;
        if let Err(error) = result {
            let closed = GateClosed::of(&error).expect("only the gate fails");
            print("gate error")(closed);
            writeln!(printed.lock().unwrap(), "{closed} {error}").unwrap();
        }
    }
    print("retry")(&retry);
    print("gate")(&gate);
    print("extensions")(&RetryReport::from_extensions(&extensions));
    // Without the gate there are retries and a give-up as well.
    let mut request = request(Method::GET, url);
    request
        .headers_mut()
        .insert("authorization", "Bearer t0ken".parse().unwrap());
    origin.client(retry).execute(request).await.unwrap();
    print("events")(&Keeper::take());

    let printed = printed.lock().unwrap();
    for what in [
        "attempt: Attempt { number: 1, method: GET, origin: \"http://origin.test\", status: Some(503), .. }",
        "retry:",
        "give-up:",
        "gate error:",
        "events:",
    ] {
        assert!(printed.contains(what), "{what} was printed");
    }
    assert!(printed.contains("origin.test"), "the origin is no secret");
    for secret in SECRETS {
        let line = printed.lines().find(|line| line.contains(secret));
        assert_eq!(line, None, "tells {secret}");
    }
}

#[test]
fn a_word_for_every_source_and_every_stop() {
    let sources = [
        DelaySource::Computed,
        DelaySource::Hint,
        DelaySource::Classifier,
    ];
    assert_eq!(
        sources.map(|source| source.to_string()),
        ["computed", "hint", "classifier"]
    );
    let stops = [
        StopReason::Accepted,
        StopReason::Rejected,
        StopReason::AttemptsExhausted,
        StopReason::ElapsedExhausted,
        StopReason::BudgetExhausted,
        StopReason::RetryAfterTooLong { retry_after: DELAY },
        StopReason::NotReplayable,
        StopReason::GateClosed,
    ];
    assert_eq!(
        stops.map(|stop| stop.to_string()),
        [
            "accepted",
            "rejected",
            "attempts_exhausted",
            "elapsed_exhausted",
            "budget_exhausted",
            "retry_after_too_long",
            "not_replayable",
            "gate_closed",
        ]
    );
    assert_eq!(format!("[{:>6}]", DelaySource::Hint), "[  hint]");
}
