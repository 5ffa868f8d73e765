//! Owns the rule of when a retry happens: the delays that are slept, and the ones that are not.

mod support;

use std::collections::HashSet;
use std::time::Duration;

use reqwest_jitter::{
    Backoff, Jitter, JitteredRetryMiddleware, RetryEvent, RetryOverride, RetryPolicy, RetryReport,
    StopReason,
};
use support::{Answer, ScriptedOrigin, URL, fixed, ms, report, secs, status};
use tokio::time::Instant;

const BASE: Duration = Duration::from_secs(1);
const CAP: Duration = Duration::from_secs(30);
const JITTERS: [Jitter; 4] = [
    Jitter::None,
    Jitter::Full,
    Jitter::Equal,
    Jitter::Decorrelated,
];

fn policy(jitter: Jitter) -> RetryPolicy {
    RetryPolicy::new(Backoff::exponential(BASE, CAP).with_jitter(jitter))
}

fn delays(report: &RetryReport) -> Vec<Duration> {
    report.history().iter().map(RetryEvent::delay).collect()
}

#[tokio::test(start_paused = true)]
async fn without_jitter_the_curve_is_slept_to_the_millisecond() {
    let origin = ScriptedOrigin::new([status(503)]);
    let client = origin.client(JitteredRetryMiddleware::new(policy(Jitter::None)));

    let response = client.get(URL).send().await.unwrap();

    assert_eq!(response.status(), 503);
    assert_eq!(origin.gaps(), [1, 2, 4, 8].map(secs));
    let report = RetryReport::of(&response).unwrap();
    assert_eq!(report.attempts(), 5);
    assert_eq!(report.slept(), secs(15));
    assert_eq!(report.stop(), StopReason::AttemptsExhausted);
}

#[tokio::test(start_paused = true)]
async fn what_is_reported_is_what_was_slept() {
    for jitter in JITTERS {
        for seed in 0..20 {
            let origin = ScriptedOrigin::new([status(503)]);
            let retry = JitteredRetryMiddleware::new(policy(jitter).with_max_attempts(8));
            let result = origin.client(retry.with_seed(seed)).get(URL).send().await;
            let report = report(&result);
            assert_eq!(delays(&report), origin.gaps(), "{jitter:?}, seed {seed}");
            assert_eq!(report.slept(), origin.gaps().iter().sum());
            assert_eq!(report.retries(), 7);
            let numbers: Vec<_> = report.history().iter().map(RetryEvent::retry).collect();
            assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_fraction_of_a_millisecond_is_slept_as_a_whole_one() {
    let origin = ScriptedOrigin::new([status(503)]);
    let policy = fixed(Duration::from_micros(1001)).with_max_attempts(2);
    let result = origin
        .client(JitteredRetryMiddleware::new(policy))
        .get(URL)
        .send()
        .await;
    assert_eq!(origin.gaps(), [ms(2)]);
    assert_eq!(report(&result).slept(), ms(2));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_slept_after_the_last_attempt() {
    let origin = ScriptedOrigin::new([status(503)]);
    let started = Instant::now();
    let retry = JitteredRetryMiddleware::new(fixed(secs(10)).with_max_attempts(3));
    origin.client(retry).get(URL).send().await.unwrap();
    assert_eq!(origin.count(), 3);
    assert_eq!(started.elapsed(), secs(20));
}

#[tokio::test(start_paused = true)]
async fn max_attempts_counts_the_first_one_and_zero_reads_as_one() {
    for (max_attempts, sent) in [(0, 1), (1, 1), (2, 2), (3, 3), (7, 7)] {
        let origin = ScriptedOrigin::new([status(503)]);
        let started = Instant::now();
        let retry = JitteredRetryMiddleware::new(fixed(BASE).with_max_attempts(max_attempts));
        let result = origin.client(retry).get(URL).send().await;
        assert_eq!(origin.count(), sent);
        assert_eq!(started.elapsed(), BASE * (u32::try_from(sent).unwrap() - 1));
        assert_eq!(report(&result).stop(), StopReason::AttemptsExhausted);
    }
}

#[tokio::test(start_paused = true)]
async fn a_zero_delay_does_not_sleep() {
    let origin = ScriptedOrigin::new([status(503)]);
    // Off the millisecond tick that `sleep(0)` would wait for.
    tokio::time::advance(Duration::from_micros(300)).await;
    let started = Instant::now();
    let result = origin
        .client(JitteredRetryMiddleware::new(fixed(Duration::ZERO)))
        .get(URL)
        .send()
        .await;
    assert_eq!(started.elapsed(), Duration::ZERO);
    let report = report(&result);
    assert_eq!((report.attempts(), report.slept()), (5, Duration::ZERO));
}

/// Two attempts with a delay of 10 s between them, the first of which takes `takes`.
async fn with_limit(takes: Duration, limit: Limit) -> (usize, StopReason, Duration) {
    let origin = ScriptedOrigin::new([status(503).after(takes), status(200)]);
    let started = Instant::now();
    let (retry, request) = match limit {
        Limit::Elapsed(limit) => (
            fixed(secs(10)).with_max_elapsed(limit),
            RetryOverride::new(),
        ),
        Limit::Deadline(limit) => (
            fixed(secs(10)),
            RetryOverride::new().with_deadline(started + limit),
        ),
    };
    let result = origin
        .client(JitteredRetryMiddleware::new(retry))
        .get(URL)
        .with_extension(request)
        .send()
        .await;
    (origin.count(), report(&result).stop(), started.elapsed())
}

#[derive(Clone, Copy, Debug)]
enum Limit {
    Elapsed(Duration),
    Deadline(Duration),
}

const LIMITS: [fn(Duration) -> Limit; 2] = [Limit::Elapsed, Limit::Deadline];

#[tokio::test(start_paused = true)]
async fn a_retry_begins_at_the_limit_but_not_after_it() {
    for limit in LIMITS {
        let cases = [
            (ms(0), ms(10_000), true),
            (ms(0), ms(9_999), false),
            (ms(0), ms(10_001), true),
            (ms(0), ms(0), false),
            // A slow answer counts.
            (ms(500), ms(10_500), true),
            (ms(500), ms(10_499), false),
            (ms(10_000), ms(10_000), false),
            (ms(0), Duration::from_nanos(9_999_999_999), false),
        ];
        for (takes, at, is_retried) in cases {
            let case = format!("{takes:?}, {:?}", limit(at));
            let expected = if is_retried {
                (2, StopReason::Accepted, takes + secs(10))
            } else {
                (1, StopReason::ElapsedExhausted, takes)
            };
            assert_eq!(with_limit(takes, limit(at)).await, expected, "{case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_in_flight_is_not_interrupted() {
    for limit in LIMITS {
        let origin = ScriptedOrigin::new([status(200).after(secs(60))]);
        let request = match limit(secs(1)) {
            Limit::Elapsed(limit) => RetryOverride::new().with_max_elapsed(limit),
            Limit::Deadline(limit) => RetryOverride::new().with_deadline(Instant::now() + limit),
        };
        let response = origin
            .client(JitteredRetryMiddleware::default())
            .get(URL)
            .with_extension(request)
            .send()
            .await
            .unwrap();
        assert_eq!(response.status(), 200);
        assert!(RetryReport::of(&response).is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn no_time_is_left_for_a_retry_without_a_delay_once_the_limit_has_passed() {
    for limit in [0, 999, 1000, 1001] {
        let origin = ScriptedOrigin::new([status(503).after(secs(1)), status(200)]);
        let policy = fixed(Duration::ZERO);
        let by_elapsed = origin.client(JitteredRetryMiddleware::new(
            policy.with_max_elapsed(ms(limit)),
        ));
        by_elapsed.get(URL).send().await.unwrap();
        let attempts = origin.count();
        assert_eq!(attempts, if limit < 1000 { 1 } else { 2 }, "{limit}");

        let origin = ScriptedOrigin::new([status(503).after(secs(1)), status(200)]);
        let deadline = RetryOverride::new().with_deadline(Instant::now() + ms(limit));
        let by_deadline = origin.client(JitteredRetryMiddleware::new(policy));
        let request = by_deadline.get(URL).with_extension(deadline);
        request.send().await.unwrap();
        assert_eq!(origin.count(), attempts, "{limit}");
    }
}

#[tokio::test(start_paused = true)]
async fn time_that_passed_before_the_call_does_not_count_into_max_elapsed() {
    let origin = ScriptedOrigin::new([status(503), status(200)]);
    let retry = JitteredRetryMiddleware::new(fixed(secs(1)).with_max_elapsed(secs(1)));
    let client = origin.client(retry);
    tokio::time::advance(secs(3600)).await;
    assert_eq!(client.get(URL).send().await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn the_limit_holds_for_the_whole_call_and_not_for_each_retry() {
    let origin = ScriptedOrigin::new([status(503)]);
    let policy = fixed(secs(2)).with_max_attempts(100);
    let retry = JitteredRetryMiddleware::new(policy.with_max_elapsed(secs(7)));
    let result = origin.client(retry).get(URL).send().await;
    let report = report(&result);
    assert_eq!((report.attempts(), report.slept()), (4, secs(6)));
    assert_eq!(report.stop(), StopReason::ElapsedExhausted);
}

#[tokio::test(start_paused = true)]
async fn no_limit_and_no_delay_is_too_long_to_compare() {
    for limit in LIMITS {
        let century = secs(100 * 366 * 86400);
        assert_eq!(with_limit(ms(0), limit(century)).await.0, 2);
    }
    for (limit, stop) in [
        (Duration::MAX, StopReason::AttemptsExhausted),
        (CAP, StopReason::ElapsedExhausted),
    ] {
        let origin = ScriptedOrigin::new([status(503)]);
        let policy = fixed(Duration::MAX).with_max_attempts(2);
        let retry = JitteredRetryMiddleware::new(policy.with_max_elapsed(limit));
        let result = origin.client(retry).get(URL).send().await;
        assert_eq!(report(&result).stop(), stop);
    }
}

async fn sequence(retry: &JitteredRetryMiddleware, calls: usize) -> Vec<Vec<Duration>> {
    let origin = ScriptedOrigin::new([status(503)]);
    let client = origin.client(retry.clone());
    let mut all = Vec::new();
    for _ in 0..calls {
        all.push(delays(&report(&client.get(URL).send().await)));
    }
    all
}

#[tokio::test(start_paused = true)]
async fn a_seed_repeats_a_sequential_run_exactly() {
    for jitter in JITTERS {
        let retry = || JitteredRetryMiddleware::new(policy(jitter)).with_seed(7);
        let run = sequence(&retry(), 20).await;
        assert_eq!(run, sequence(&retry(), 20).await, "{jitter:?}");
        // And its first call is the one that a preview shows.
        let preview = Backoff::exponential(BASE, CAP).with_jitter(jitter);
        assert_eq!(run[0], preview.delays(7).take(4).collect::<Vec<_>>());
        if jitter != Jitter::None {
            assert_ne!(run, sequence(&retry().with_seed(8), 20).await);
            assert_ne!(run[0], run[1], "calls have streams of their own");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn clones_go_on_where_the_seeded_original_stands() {
    let retry = JitteredRetryMiddleware::new(policy(Jitter::Full)).with_seed(7);
    let run = sequence(&retry, 2).await;
    let retry = retry.with_seed(7);
    let first = sequence(&retry.clone(), 1).await;
    let second = sequence(&retry.clone(), 1).await;
    assert_eq!([first, second].concat(), run);
}

#[tokio::test(start_paused = true)]
async fn without_a_seed_no_run_and_no_call_repeats_another() {
    let retry = || JitteredRetryMiddleware::new(policy(Jitter::Full));
    let all = [sequence(&retry(), 50).await, sequence(&retry(), 50).await].concat();
    let distinct: HashSet<_> = all.iter().collect();
    assert_eq!(distinct.len(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_success_after_failures_ends_the_waiting() {
    let script: [Answer; 3] = [status(503), status(500), status(200)];
    let origin = ScriptedOrigin::new(script);
    let retry = JitteredRetryMiddleware::new(policy(Jitter::None));
    let result = origin.client(retry).get(URL).send().await;
    let report = report(&result);
    assert_eq!(report.stop(), StopReason::Accepted);
    assert_eq!((report.attempts(), report.slept()), (3, secs(3)));
    assert_eq!(delays(&report), origin.gaps());
}
