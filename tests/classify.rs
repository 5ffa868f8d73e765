//! Owns the rule of what an answer means: which statuses are retried, and what a classifier sees and decides.

mod support;

use std::sync::{Arc, Mutex};

use reqwest::Method;
use reqwest_jitter::{
    Cause, Classifier, DefaultClassifier, DelayHints, DelaySource, Effect, JitteredRetryMiddleware,
    RetryReport, StopReason, Verdict, classify_fn,
};
use support::{
    Answer, ScriptedOrigin, URL, fixed, ms, report, secs, status, timed_out, unreachable,
};

/// What is done about a status: the whole range, as data.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    Accept,
    Reject,
    /// Any method is sent again.
    Unprocessed,
    /// Only what can be repeated without harm is.
    Unknown,
}

#[rustfmt::skip] // A table.
const STATUSES: [(u16, u16, Rule); 17] = [
    (100, 399, Rule::Accept),
    (400, 428, Rule::Reject),
    (429, 429, Rule::Unprocessed),
    (430, 499, Rule::Reject),
    (500, 500, Rule::Unknown),
    (501, 501, Rule::Reject),
    (502, 504, Rule::Unknown),
    (505, 506, Rule::Reject),
    (507, 507, Rule::Unknown),
    (508, 508, Rule::Reject),
    (509, 509, Rule::Unknown),
    (510, 511, Rule::Reject),
    (512, 599, Rule::Unknown),
    (600, 699, Rule::Reject),
    (700, 799, Rule::Reject),
    (800, 899, Rule::Reject),
    (900, 999, Rule::Reject),
];

async fn outcome(
    classifier: impl Classifier,
    method: Method,
    answer: Answer,
) -> Option<RetryReport> {
    let origin = ScriptedOrigin::new([answer]);
    let retry = JitteredRetryMiddleware::new(fixed(ms(0)).with_max_attempts(2))
        .with_classifier(classifier)
        .without_budget();
    let result = origin.client(retry).request(method, URL).send().await;
    let report = RetryReport::of(&result.unwrap()).cloned();
    let attempts = report.as_ref().map_or(1, RetryReport::attempts);
    assert_eq!(origin.count(), usize::try_from(attempts).unwrap());
    report
}

async fn rule(classifier: impl Classifier + Clone, answer: Answer) -> Rule {
    let stop = |report: Option<RetryReport>| report.map(|report| report.stop());
    let get = stop(outcome(classifier.clone(), Method::GET, answer.clone()).await);
    let post = stop(outcome(classifier, Method::POST, answer).await);
    match (get, post) {
        (None, None) => Rule::Accept,
        (Some(StopReason::Rejected), Some(StopReason::Rejected)) => Rule::Reject,
        (Some(StopReason::AttemptsExhausted), Some(StopReason::AttemptsExhausted)) => {
            Rule::Unprocessed
        }
        (Some(StopReason::AttemptsExhausted), Some(StopReason::NotReplayable)) => Rule::Unknown,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn every_status_means_what_the_table_says() {
    let mut next = 100;
    for (from, to, expected) in STATUSES {
        assert_eq!(from, next, "the table has no gap");
        next = to + 1;
        for code in from..=to {
            let found = rule(DefaultClassifier::new(), status(code)).await;
            assert_eq!(found, expected, "{code}");
        }
    }
    assert_eq!(next, 1000);
}

#[tokio::test(start_paused = true)]
async fn a_hint_changes_the_meaning_of_503_alone() {
    for (from, to, without) in STATUSES {
        for code in from..=to {
            let expected = if code == 503 {
                Rule::Unprocessed
            } else {
                without
            };
            let answer = status(code).header("retry-after", "0");
            let found = rule(DefaultClassifier::new(), answer).await;
            assert_eq!(found, expected, "{code}");
        }
    }
    for unreadable in ["soon", "-1", ""] {
        let answer = status(503).header("retry-after", unreadable);
        let found = rule(DefaultClassifier::new(), answer).await;
        assert_eq!(found, Rule::Unknown, "{unreadable}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hint_that_is_not_read_does_not_change_the_meaning_of_503() {
    let origin = ScriptedOrigin::new([status(503).header("retry-after", "0")]);
    let retry = JitteredRetryMiddleware::new(fixed(ms(0))).with_hints(DelayHints::none());
    let result = origin.client(retry).post(URL).send().await;
    assert_eq!(report(&result).stop(), StopReason::NotReplayable);
}

#[tokio::test(start_paused = true)]
async fn an_answer_from_another_url_leaves_the_effect_unknown() {
    for (answer, expected) in [
        (status(429), Rule::Unknown),
        (status(503).header("retry-after", "0"), Rule::Unknown),
        (status(500), Rule::Unknown),
        (status(404), Rule::Reject),
        (status(200), Rule::Accept),
    ] {
        for url in [
            "http://origin.test/receipt",
            "http://origin.test/resource?a",
            "https://origin.test/resource",
            "http://other.test/resource",
        ] {
            let redirected = answer.clone().at(url);
            let found = rule(DefaultClassifier::new(), redirected).await;
            assert_eq!(found, expected, "{url}");
        }
    }
    // The same holds for a status that was made retryable.
    let classifier = DefaultClassifier::new().with_status(409, Effect::None);
    let moved = status(409).at("http://origin.test/receipt");
    assert_eq!(rule(classifier.clone(), moved).await, Rule::Unknown);
    assert_eq!(rule(classifier, status(409)).await, Rule::Unprocessed);
}

#[tokio::test(start_paused = true)]
async fn a_fragment_is_not_another_url() {
    let origin = ScriptedOrigin::new([status(429).at(URL), status(200)]);
    let client = origin.client(JitteredRetryMiddleware::new(fixed(ms(0))));
    client.post(format!("{URL}#part")).send().await.unwrap();
    assert_eq!(origin.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn with_status_replaces_the_verdict_and_without_status_makes_it_final() {
    for (code, effect, expected) in [
        (408, Effect::Unknown, Rule::Unknown),
        (425, Effect::None, Rule::Unprocessed),
        (503, Effect::None, Rule::Unprocessed),
        (429, Effect::Unknown, Rule::Unknown),
        (501, Effect::Unknown, Rule::Unknown),
        (200, Effect::Unknown, Rule::Unknown),
        (999, Effect::None, Rule::Unprocessed),
    ] {
        let classifier = DefaultClassifier::new().with_status(code, effect);
        assert_eq!(rule(classifier.clone(), status(code)).await, expected);
        // It concerns no other.
        assert_eq!(rule(classifier, status(404)).await, Rule::Reject);
    }
    let plain = DefaultClassifier::new();
    for code in [429, 500, 503, 404] {
        let classifier = plain.clone().without_status(code);
        for answer in [status(code), status(code).header("retry-after", "0")] {
            assert_eq!(rule(classifier.clone(), answer).await, Rule::Reject);
        }
    }
    assert_eq!(
        rule(plain.clone().without_status(200), status(200)).await,
        Rule::Accept
    );
    // The last word counts.
    let both = plain
        .clone()
        .without_status(429)
        .with_status(429, Effect::None);
    assert_eq!(rule(both, status(429)).await, Rule::Unprocessed);
    let both = plain.with_status(500, Effect::None).without_status(500);
    assert_eq!(rule(both, status(500)).await, Rule::Reject);
}

#[tokio::test(start_paused = true)]
async fn a_503_that_was_made_retryable_does_not_depend_on_a_hint() {
    let classifier = DefaultClassifier::new().with_status(503, Effect::Unknown);
    let hinted = status(503).header("retry-after", "0");
    assert_eq!(rule(classifier, hinted).await, Rule::Unknown);
}

#[tokio::test(start_paused = true)]
async fn causes_are_few_and_named() {
    for (answer, cause, name) in [
        (status(429), Cause::Throttled, "throttled"),
        (status(500), Cause::ServerError, "server_error"),
        (status(503), Cause::ServerError, "server_error"),
        (status(599), Cause::ServerError, "server_error"),
        (unreachable(), Cause::Dns, "dns"),
        (timed_out(), Cause::Timeout, "timeout"),
    ] {
        let origin = ScriptedOrigin::new([answer, status(200)]);
        let client = origin.client(JitteredRetryMiddleware::new(fixed(ms(0))));
        let report = report(&client.get(URL).send().await);
        assert_eq!(report.last_cause(), Some(cause));
        assert_eq!(report.history()[0].cause(), cause);
        assert_eq!(cause.to_string(), name);
    }
    for (cause, name) in [
        (Cause::Connect, "connect"),
        (Cause::Transport, "transport"),
        (Cause::StreamRefused, "stream_refused"),
        (Cause::Other("locked"), "locked"),
    ] {
        assert_eq!(cause.to_string(), name);
        assert_eq!(format!("{cause:>16}|"), format!("{name:>16}|"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_that_was_made_retryable_has_the_cause_of_its_kind() {
    for (code, cause) in [
        (403, Cause::Other("status")),
        (429, Cause::Throttled),
        (499, Cause::Other("status")),
        (500, Cause::ServerError),
        (501, Cause::ServerError),
        (599, Cause::ServerError),
        (600, Cause::Other("status")),
    ] {
        let classifier = DefaultClassifier::new().with_status(code, Effect::Unknown);
        let report = outcome(classifier, Method::GET, status(code)).await;
        assert_eq!(report.unwrap().last_cause(), Some(cause), "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_is_retried_as_far_as_its_effect_is_known() {
    for (answer, sent) in [(unreachable(), 2), (timed_out(), 1)] {
        let origin = ScriptedOrigin::new([answer, status(200)]);
        let client = origin.client(JitteredRetryMiddleware::new(fixed(ms(0))));
        let _ = client.post(URL).send().await;
        assert_eq!(origin.count(), sent);
    }
}

#[tokio::test(start_paused = true)]
async fn a_classifier_names_a_wait_that_goes_before_the_hint() {
    for (after, slept) in [(0, 0), (1, 1), (1500, 1500), (120_000, 120_000)] {
        let origin = ScriptedOrigin::new([status(503).header("retry-after", "7"), status(200)]);
        let classifier = classify_fn(move |attempt| match attempt.status() {
            Some(status) if status == 503 => Verdict::Retry {
                cause: Cause::Other("body"),
                effect: Effect::None,
                after: Some(ms(after)),
            },
            _ => Verdict::Accept,
        });
        let policy = fixed(secs(1)).with_hint_spread(secs(60));
        let retry = JitteredRetryMiddleware::new(policy).with_classifier(classifier);
        let report = report(&origin.client(retry).get(URL).send().await);
        assert_eq!(origin.gaps(), [ms(slept)]);
        assert_eq!(report.history()[0].source(), DelaySource::Classifier);
    }
}

#[tokio::test(start_paused = true)]
async fn a_classifiers_wait_is_held_to_the_same_limits() {
    for (after, stop) in [
        (
            ms(120_001),
            StopReason::RetryAfterTooLong {
                retry_after: ms(120_001),
            },
        ),
        (secs(61), StopReason::ElapsedExhausted),
    ] {
        let origin = ScriptedOrigin::new([status(503)]);
        let classifier = classify_fn(move |_| Verdict::Retry {
            cause: Cause::ServerError,
            effect: Effect::None,
            after: Some(after),
        });
        let retry = JitteredRetryMiddleware::new(fixed(ms(0)).with_max_elapsed(secs(60)))
            .with_classifier(classifier);
        assert_eq!(
            report(&origin.client(retry).get(URL).send().await).stop(),
            stop
        );
        assert_eq!(origin.count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_fraction_of_a_millisecond_from_a_classifier_is_slept_as_a_whole_one() {
    let origin = ScriptedOrigin::new([status(503)]);
    let classifier = classify_fn(|_| Verdict::Retry {
        cause: Cause::ServerError,
        effect: Effect::None,
        after: Some(std::time::Duration::from_micros(1)),
    });
    let retry =
        JitteredRetryMiddleware::new(fixed(ms(0)).with_max_attempts(2)).with_classifier(classifier);
    let report = report(&origin.client(retry).get(URL).send().await);
    assert_eq!((origin.gaps(), report.slept()), (vec![ms(1)], ms(1)));
}

#[tokio::test(start_paused = true)]
async fn a_classifier_sees_successes_too_and_may_find_fault_with_them() {
    // An error within a 200.
    let origin = ScriptedOrigin::new([status(200).header("x-error", "lag"), status(200)]);
    let classifier = classify_fn(|attempt| {
        let headers = attempt.headers().expect("an answer");
        if headers.contains_key("x-error") {
            Verdict::retry(Cause::Other("lag"), Effect::None)
        } else {
            DefaultClassifier::new().classify(attempt)
        }
    });
    let retry = JitteredRetryMiddleware::new(fixed(secs(1))).with_classifier(classifier);
    let result = origin.client(retry).post(URL).send().await;
    assert_eq!(origin.count(), 2);
    assert_eq!(report(&result).last_cause(), Some(Cause::Other("lag")));
}

#[tokio::test(start_paused = true)]
async fn a_classifier_may_accept_what_failed_and_reject_what_did_not() {
    let accepted = outcome(classify_fn(|_| Verdict::Accept), Method::GET, status(500)).await;
    assert!(accepted.is_none());
    let rejected = outcome(classify_fn(|_| Verdict::Reject), Method::GET, status(200)).await;
    let rejected = rejected.unwrap();
    assert_eq!(
        (rejected.stop(), rejected.last_cause()),
        (StopReason::Rejected, None)
    );
}

/// What an attempt told its classifier.
#[derive(Debug, PartialEq)]
struct Seen {
    number: u32,
    method: String,
    url: String,
    status: Option<u16>,
    header: Option<String>,
    is_timeout: Option<bool>,
    hint: Option<std::time::Duration>,
}

#[tokio::test(start_paused = true)]
async fn an_attempt_tells_everything_about_itself() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let slot = Arc::clone(&seen);
    let classifier = classify_fn(move |attempt| {
        let header = attempt.headers().and_then(|headers| headers.get("x-a"));
        slot.lock().unwrap().push(Seen {
            number: attempt.number(),
            method: attempt.method().to_string(),
            url: attempt.url().to_string(),
            status: attempt.status().map(|status| status.as_u16()),
            header: header.map(|value| value.to_str().unwrap().to_owned()),
            is_timeout: attempt.error().map(reqwest_middleware::Error::is_timeout),
            hint: attempt.hint(),
        });
        DefaultClassifier::new().classify(attempt)
    });
    let script = [
        status(503).header("x-a", "1").header("retry-after", "7"),
        timed_out(),
        status(200).at("http://other.test/"),
    ];
    let origin = ScriptedOrigin::new(script);
    let retry =
        JitteredRetryMiddleware::new(fixed(ms(0)).with_max_attempts(3)).with_classifier(classifier);
    origin.client(retry).put(URL).send().await.unwrap();

    let of = |number| Seen {
        number,
        method: "PUT".to_owned(),
        url: URL.to_owned(),
        status: None,
        header: None,
        is_timeout: None,
        hint: None,
    };
    let expected = [
        Seen {
            status: Some(503),
            header: Some("1".to_owned()),
            hint: Some(secs(7)),
            ..of(1)
        },
        Seen {
            is_timeout: Some(true),
            ..of(2)
        },
        Seen {
            status: Some(200),
            ..of(3)
        },
    ];
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_classifier_is_asked_once_for_each_attempt() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let slot = Arc::clone(&asked);
    let classifier = classify_fn(move |attempt| {
        slot.lock().unwrap().push(attempt.number());
        DefaultClassifier::new().classify(attempt)
    });
    let origin = ScriptedOrigin::new([status(503)]);
    let retry =
        JitteredRetryMiddleware::new(fixed(ms(0)).with_max_attempts(3)).with_classifier(classifier);
    origin.client(retry).get(URL).send().await.unwrap();
    assert_eq!(*asked.lock().unwrap(), [1, 2, 3]);
}
