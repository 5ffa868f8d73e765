//! Owns the rule of what is told about a call: to its caller, and to the hooks.

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Extensions;
use reqwest::{Method, Request, Response};
use reqwest_jitter::{
    Cause, Classifier, DefaultClassifier, DelaySource, Effect, JitteredRetryMiddleware,
    RetryBudget, RetryEvent, RetryOverride, RetryPolicy, RetryReport, StopReason, Verdict,
    classify_fn,
};
use reqwest_middleware::Error;
use support::{Answer, ScriptedOrigin, URL, fixed, ms, secs, status, timed_out, unreachable};
use tokio::time::Instant;

/// What is left of a call, and what its hooks were told.
struct Told {
    result: Result<Response, Error>,
    report: Option<RetryReport>,
    retries: Vec<RetryEvent>,
    given_up: Vec<RetryReport>,
}

async fn tell(retry: JitteredRetryMiddleware, request: Request, script: Vec<Answer>) -> Told {
    let retries = Arc::new(Mutex::new(Vec::new()));
    let given_up = Arc::new(Mutex::new(Vec::new()));
    let (on_retry, on_give_up) = (Arc::clone(&retries), Arc::clone(&given_up));
    let retry = retry
        .on_retry(move |event| on_retry.lock().unwrap().push(event.clone()))
        .on_give_up(move |report| on_give_up.lock().unwrap().push(report.clone()));
    let mut extensions = Extensions::new();
    let origin = ScriptedOrigin::new(script);
    let client = origin.client(retry);
    let result = client
        .execute_with_extensions(request, &mut extensions)
        .await;
    let report = RetryReport::from_extensions(&extensions).cloned();
    if let Ok(response) = &result {
        let of_response = RetryReport::of(response);
        assert_eq!(text(&of_response), text(&report.as_ref()), "in both places");
    }
    if let Some(report) = &report {
        assert_eq!(report.attempts() as usize, origin.count());
        assert_eq!(report.retries() + 1, report.attempts());
        assert_eq!(report.history().len(), report.retries() as usize);
    }
    let (retries, given_up) = (
        retries.lock().unwrap().clone(),
        given_up.lock().unwrap().clone(),
    );
    Told {
        result,
        report,
        retries,
        given_up,
    }
}

fn text(value: &impl std::fmt::Debug) -> String {
    format!("{value:?}")
}

fn request(method: Method) -> Request {
    Request::new(method, URL.parse().unwrap())
}

const POLICY: RetryPolicy = fixed(secs(1)).with_max_attempts(3);

#[tokio::test(start_paused = true)]
async fn each_reason_to_stop_is_told_to_the_caller_and_where_it_gives_up_to_the_hooks() {
    let thrifty = || {
        let one = RetryBudget::new().with_burst(1).with_reserve_per_sec(0);
        JitteredRetryMiddleware::new(POLICY).with_budget(one.with_extra_load_percent(0))
    };
    let too_long = StopReason::RetryAfterTooLong {
        retry_after: secs(121),
    };
    let plain = || JitteredRetryMiddleware::new(POLICY);
    let limited = || JitteredRetryMiddleware::new(POLICY.with_max_elapsed(secs(1)));
    let lagging = || status(503).header("retry-after", "121");
    let (get, post) = (Method::GET, Method::POST);
    #[rustfmt::skip] // A table.
    let cases = [
        (plain(), &get, vec![status(503), status(200)], StopReason::Accepted, 2),
        (plain(), &get, vec![status(404)], StopReason::Rejected, 1),
        (plain(), &get, vec![status(503), status(404)], StopReason::Rejected, 2),
        (plain(), &get, vec![status(503)], StopReason::AttemptsExhausted, 3),
        (plain(), &get, vec![unreachable()], StopReason::AttemptsExhausted, 3),
        (plain(), &post, vec![unreachable(), timed_out()], StopReason::NotReplayable, 2),
        (limited(), &get, vec![status(503)], StopReason::ElapsedExhausted, 2),
        (limited(), &get, vec![timed_out()], StopReason::ElapsedExhausted, 1),
        (thrifty(), &get, vec![status(503)], StopReason::BudgetExhausted, 2),
        (thrifty(), &get, vec![unreachable()], StopReason::BudgetExhausted, 2),
        (plain(), &get, vec![lagging()], too_long, 1),
        (plain(), &get, vec![status(500), lagging()], too_long, 2),
        (plain(), &post, vec![status(500)], StopReason::NotReplayable, 1),
        (plain(), &post, vec![status(429), status(500)], StopReason::NotReplayable, 2),
        (plain(), &post, vec![timed_out()], StopReason::NotReplayable, 1),
    ];
    for (retry, method, script, stop, attempts) in cases {
        let told = tell(retry, request(method.clone()), script).await;
        let report = told.report.expect("a report");
        assert_eq!((report.stop(), report.attempts()), (stop, attempts));
        assert_eq!(report.slept(), secs(1) * (attempts - 1));
        assert_eq!(text(&told.retries), text(&report.history()));
        let gives_up = !matches!(stop, StopReason::Accepted | StopReason::Rejected);
        let expected: &[RetryReport] = if gives_up {
            std::slice::from_ref(&report)
        } else {
            &[]
        };
        assert_eq!(text(&told.given_up), text(&expected), "{stop:?}");
        assert_eq!(report.last_cause().is_some(), gives_up || attempts > 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_accepted_at_once_or_passes_by_tells_nothing() {
    for (answer, settings) in [
        (status(200), RetryOverride::new()),
        (status(503), RetryOverride::disabled()),
        (unreachable(), RetryOverride::disabled()),
    ] {
        let called = Arc::new(Mutex::new(0));
        let (one, other) = (Arc::clone(&called), Arc::clone(&called));
        let retry = JitteredRetryMiddleware::new(POLICY)
            .on_retry(move |_| *one.lock().unwrap() += 1)
            .on_give_up(move |_| *other.lock().unwrap() += 1);
        let client = ScriptedOrigin::new([answer]).client(retry);
        let mut extensions = Extensions::new();
        extensions.insert(settings);
        let _ = client
            .execute_with_extensions(request(Method::GET), &mut extensions)
            .await;
        assert!(RetryReport::from_extensions(&extensions).is_none());
        assert_eq!(*called.lock().unwrap(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn after_an_error_the_report_lies_in_the_callers_extensions() {
    let told = tell(
        JitteredRetryMiddleware::new(POLICY),
        request(Method::GET),
        vec![status(503), unreachable()],
    )
    .await;
    assert!(told.result.unwrap_err().is_connect());
    let report = told.report.unwrap();
    assert_eq!(report.last_cause(), Some(Cause::Dns));
    let history = report.history();
    assert_eq!(history.len(), 2);
    assert_eq!(history[0].cause(), Cause::ServerError);
    assert_eq!(history[0].status().map(|status| status.as_u16()), Some(503));
    assert_eq!(
        (history[1].cause(), history[1].status()),
        (Cause::Dns, None)
    );
}

#[tokio::test(start_paused = true)]
async fn an_event_tells_number_cause_status_delay_source_and_origin() {
    let classifier = classify_fn(|attempt| match attempt.number() {
        3 => Verdict::Retry {
            cause: Cause::Other("locked"),
            effect: Effect::None,
            after: Some(ms(5)),
        },
        _ => DefaultClassifier::new().classify(attempt),
    });
    let script = vec![
        status(500),
        status(429).header("retry-after", "7"),
        status(409),
        status(200),
    ];
    let retry = JitteredRetryMiddleware::new(fixed(secs(1))).with_classifier(classifier);
    let told = tell(retry, request(Method::GET), script).await;
    let row = |event: &RetryEvent| {
        (
            event.retry(),
            event.cause(),
            event.status().unwrap().as_u16(),
            event.delay(),
            event.source(),
            event.origin().to_owned(),
        )
    };
    let origin = "http://origin.test".to_owned();
    let expected = [
        (
            1,
            Cause::ServerError,
            500,
            secs(1),
            DelaySource::Computed,
            origin.clone(),
        ),
        (
            2,
            Cause::Throttled,
            429,
            secs(7),
            DelaySource::Hint,
            origin.clone(),
        ),
        (
            3,
            Cause::Other("locked"),
            409,
            ms(5),
            DelaySource::Classifier,
            origin,
        ),
    ];
    assert_eq!(told.retries.iter().map(row).collect::<Vec<_>>(), expected);
    let report = told.report.unwrap();
    assert_eq!(report.last_cause(), Some(Cause::Other("locked")));
    assert_eq!(report.slept(), ms(8005));
}

#[tokio::test(start_paused = true)]
async fn an_origin_is_scheme_host_and_port_and_nothing_else() {
    for (url, origin) in [
        (
            "http://user:secret@Origin.test/path?query#part",
            "http://origin.test",
        ),
        ("http://origin.test:80/", "http://origin.test"),
        ("https://origin.test:443/", "https://origin.test"),
        ("https://origin.test:8443/", "https://origin.test:8443"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
        ("http://[::1]:8080/", "http://[::1]:8080"),
    ] {
        let request = Request::new(Method::GET, url.parse().unwrap());
        let told = tell(
            JitteredRetryMiddleware::new(POLICY),
            request,
            vec![status(503)],
        )
        .await;
        assert_eq!(told.retries[0].origin(), origin);
        assert_eq!(told.given_up[0].origin(), origin);
    }
}

#[tokio::test(start_paused = true)]
async fn a_redirected_call_is_reported_under_the_origin_that_was_asked() {
    let script = vec![status(503).at("http://elsewhere.test/")];
    let retry = JitteredRetryMiddleware::new(POLICY);
    let told = tell(retry, request(Method::GET), script).await;
    assert_eq!(told.retries[0].origin(), "http://origin.test");
}

#[tokio::test(start_paused = true)]
async fn hooks_are_called_in_their_order_a_retry_before_its_wait_and_a_giving_up_at_the_end() {
    let started = Instant::now();
    let calls: Arc<Mutex<Vec<(&str, Duration)>>> = Arc::default();
    let note = |name: &'static str| {
        let calls = Arc::clone(&calls);
        move || calls.lock().unwrap().push((name, started.elapsed()))
    };
    let (first, second, last, very_last) = (note("a"), note("b"), note("c"), note("d"));
    let retry = JitteredRetryMiddleware::new(POLICY)
        .on_retry(move |_| first())
        .on_retry(move |_| second())
        .on_give_up(move |_| last())
        .on_give_up(move |_| very_last());
    let client = ScriptedOrigin::new([status(503)]).client(retry);
    client.get(URL).send().await.unwrap();
    let expected = [
        ("a", secs(0)),
        ("b", secs(0)),
        ("a", secs(1)),
        ("b", secs(1)),
        ("c", secs(2)),
        ("d", secs(2)),
    ];
    assert_eq!(*calls.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn nothing_that_is_printed_tells_a_secret() {
    let secrets = [
        "secret-user",
        "secret-word",
        "secret-path",
        "secret-query",
        "secret-value",
        "secret-answer",
        "secret-body",
    ];
    let url = "http://secret-user:secret-word@origin.test/secret-path?key=secret-query#secret-part";
    for (answer, url) in [
        (
            status(503)
                .header("x-token", "secret-answer")
                .body("secret-body"),
            url,
        ),
        (status(503).header("retry-after", "1"), url),
        (unreachable(), url),
    ] {
        let retry = JitteredRetryMiddleware::new(POLICY);
        let printed = text(&retry);
        let mut request = Request::new(Method::GET, url.parse().unwrap());
        request
            .headers_mut()
            .insert("authorization", "secret-value".parse().unwrap());
        let told = tell(retry, request, vec![answer]).await;
        let printed = [
            printed,
            text(&told.report.unwrap()),
            text(&told.retries),
            text(&told.given_up),
        ];
        for secret in secrets {
            assert!(
                printed.iter().all(|text| !text.contains(secret)),
                "{secret}: {printed:?}"
            );
        }
        assert!(
            printed[1].contains("http://origin.test"),
            "and tells what is none"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_does_not_print_its_secrets_either() {
    let seen = Arc::new(Mutex::new(String::new()));
    let slot = Arc::clone(&seen);
    let classifier = classify_fn(move |attempt| {
        *slot.lock().unwrap() = text(attempt);
        Verdict::Reject
    });
    let retry = JitteredRetryMiddleware::new(POLICY).with_classifier(classifier);
    let url = "http://secret-user:secret-word@origin.test/secret-path?key=secret-query";
    let request = Request::new(Method::GET, url.parse().unwrap());
    let answer = status(503).header("x-token", "secret-answer");
    tell(retry, request, vec![answer]).await;
    let printed = seen.lock().unwrap().clone();
    assert!(
        printed.contains("503") && printed.contains("origin.test"),
        "{printed}"
    );
    assert!(!printed.contains("secret"), "{printed}");
}
