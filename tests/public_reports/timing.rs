//! Reports about the time that a call may take, and about the waits that it computes.

use std::time::Duration;

use reqwest_jitter::{
    Backoff, Cause, DelaySource, Effect, Jitter, JitteredRetryMiddleware, Replay, RetryOverride,
    RetryPolicy, StopReason, Verdict, classify_fn,
};
use tokio::time::{Instant, sleep, timeout};

use crate::case::{JITTERS, curve, get};
use crate::support::{ScriptedOrigin, URL, fixed, ms, secs, status, timed_out, unreachable};

/// `hashicorp/go-retryablehttp#272`: a wait that ends after the deadline was slept all the same.
#[tokio::test(start_paused = true)]
pub(crate) async fn dl_01_a_wait_that_ends_too_late_is_not_begun() {
    let policy = curve(2000, 30_000).with_max_attempts(10);
    let done = get([status(503)])
        .policy(policy.with_max_elapsed(ms(1999)))
        .run()
        .await;
    done.stops(503, [], StopReason::ElapsedExhausted);
    assert_eq!(done.took, Duration::ZERO);
    get([status(503)])
        .policy(policy.with_max_elapsed(ms(2000)))
        .run()
        .await
        .stops(503, [2000], StopReason::ElapsedExhausted);
    get([status(503)])
        .policy(policy)
        .extension(RetryOverride::new().with_deadline(Instant::now() + ms(6000)))
        .run()
        .await
        .stops(503, [2000, 4000], StopReason::ElapsedExhausted);
}

/// `curl/curl#7675`: the limit of all retries did not count the waits that the server asked for.
#[tokio::test(start_paused = true)]
pub(crate) async fn dl_03_a_hint_is_held_to_the_same_limit() {
    let policy = fixed(ms(1))
        .with_max_elapsed(secs(5))
        .with_max_retry_after(Duration::MAX);
    let asking = |wait: &str| status(503).header("retry-after", wait);
    let done = get([asking("86400")]).policy(policy).run().await;
    done.stops(503, [], StopReason::ElapsedExhausted);
    assert_eq!(done.took, Duration::ZERO);
    get([asking("3")])
        .policy(policy)
        .run()
        .await
        .stops(503, [3000], StopReason::ElapsedExhausted);
}

/// `curl/curl#8877`: what was meant to limit the call limited each attempt, and the waits not at all.
#[tokio::test(start_paused = true)]
pub(crate) async fn dl_04_attempts_and_waits_count_together() {
    let done = get([timed_out()])
        .policy(
            curve(100, 30_000)
                .with_max_attempts(6)
                .with_max_elapsed(secs(1)),
        )
        .timeout(ms(400))
        .run()
        .await;
    // 400, 100 and 400 ms; another 200 would be too much.
    done.fails([100], StopReason::ElapsedExhausted);
    assert_eq!(done.took, ms(900));
    assert!(done.result.unwrap_err().is_timeout());
}

/// `softonic/axios-retry#21`: once the first try had used the time up, "no time left" read as "no limit".
#[tokio::test(start_paused = true)]
pub(crate) async fn dl_06_the_first_attempt_counts_and_no_attempt_is_cut() {
    let late = || status(503).after(ms(950));
    let policy = fixed(ms(10)).with_max_elapsed(secs(1));
    // The second attempt begins in time, and ends when its own timeout says so.
    let done = get([late(), timed_out()])
        .policy(policy)
        .timeout(secs(3))
        .run()
        .await;
    done.fails([10], StopReason::ElapsedExhausted);
    assert_eq!(done.took, ms(950 + 10 + 3000));
    // No time left is no retry, with or without a wait.
    for wait in [ms(51), Duration::ZERO] {
        let takes = if wait.is_zero() { ms(1001) } else { ms(950) };
        get([status(503).after(takes)])
            .policy(fixed(wait).with_max_elapsed(secs(1)))
            .run()
            .await
            .stops(503, [], StopReason::ElapsedExhausted);
    }
    // Whoever wants the call itself cut says so around it.
    let case = get([late(), timed_out()]).policy(policy).timeout(secs(3));
    let start = Instant::now();
    assert!(timeout(secs(1), case.run()).await.is_err());
    assert_eq!(start.elapsed(), secs(1));
}

/// `curl/curl#17444`: a call stopped with time left, and did not say that its next wait was the reason.
#[tokio::test(start_paused = true)]
pub(crate) async fn dl_08_a_call_stops_before_the_wait_that_does_not_fit_and_says_so() {
    let done = get([unreachable()])
        .policy(
            curve(100, 30_000)
                .with_max_attempts(10)
                .with_max_elapsed(secs(1)),
        )
        .run()
        .await;
    done.fails([100, 200, 400], StopReason::ElapsedExhausted);
    assert_eq!(done.took, ms(700));
    assert_eq!(done.report().last_cause(), Some(Cause::Dns));
}

/// `TrueLayer/reqwest-middleware#109`: the clock of a call started when its client was built.
#[tokio::test(start_paused = true)]
pub(crate) async fn dl_09_the_clock_starts_with_each_call() {
    let origin =
        ScriptedOrigin::new([503, 200, 503, 200, 503, 200].map(|code| status(code).after(ms(100))));
    let policy = fixed(ms(50)).with_max_elapsed(ms(150));
    let client = origin.client(JitteredRetryMiddleware::new(policy));
    for _ in 0..3 {
        sleep(secs(1)).await;
        assert_eq!(client.get(URL).send().await.unwrap().status(), 200);
    }
    assert_eq!(origin.count(), 6);
}

/// `TrueLayer/reqwest-middleware#153`: a wait of milliseconds had passed before it was computed, and failed the call.
#[tokio::test(start_paused = true)]
pub(crate) async fn dl_11_short_waits_never_fail_a_call() {
    let mut sum = Duration::ZERO;
    for seed in 0..2000 {
        let policy = RetryPolicy::new(Backoff::exponential(ms(1), ms(1)));
        let done = get([status(503), status(200)])
            .retry(JitteredRetryMiddleware::new(policy).with_seed(seed))
            .run()
            .await;
        sum += done.report().slept();
        assert_eq!(done.response().status(), 200);
        get([status(503), status(200)])
            .policy(policy.with_backoff(Backoff::exponential(ms(0), ms(1))))
            .run()
            .await
            .answers(200, [0]);
    }
    assert!(ms(800) < sum && sum < ms(1200), "both ends: {sum:?}");
}

/// `sindresorhus/ky#497`: one limit for an attempt and another for the call were asked for.
#[tokio::test(start_paused = true)]
pub(crate) async fn dl_13_an_attempts_timeout_and_the_calls_limit_go_together() {
    let done = get([timed_out(), status(200)])
        .policy(fixed(ms(10)).with_max_elapsed(secs(2)))
        .timeout(ms(200))
        .run()
        .await;
    done.answers(200, [10]);
    assert_eq!(done.took, ms(210));
    get([timed_out(), status(200)])
        .policy(fixed(ms(10)).with_max_elapsed(ms(209)))
        .timeout(ms(200))
        .run()
        .await
        .fails([], StopReason::ElapsedExhausted);
}

/// `open-telemetry/opentelemetry-go#8845`: one wait was held against the limit, and a longer one slept.
#[tokio::test(start_paused = true)]
pub(crate) async fn dl_14_the_wait_that_is_checked_is_the_wait_that_is_slept() {
    let now = || status(503).header("retry-after", "0");
    let policy = curve(2000, 30_000).with_max_elapsed(secs(1));
    get([now(), status(200)])
        .policy(policy)
        .run()
        .await
        .answers(200, [0]);
    // The second "now" meets the computed wait, and that doesn't fit.
    get([now(), now(), status(200)])
        .policy(policy)
        .run()
        .await
        .stops(503, [0], StopReason::ElapsedExhausted);
    // What is spread is drawn once.
    let mut stopped = 0;
    for seed in 0..100 {
        let policy = policy.with_hint_spread(secs(1));
        let done = get([status(503).header("retry-after", "0.5"), status(200)])
            .retry(JitteredRetryMiddleware::new(policy).with_seed(seed))
            .run()
            .await;
        assert!(done.took <= secs(1));
        assert_eq!(done.took, done.report().slept());
        stopped += u32::from(done.report().stop() == StopReason::ElapsedExhausted);
    }
    assert!((20..80).contains(&stopped), "about a half: {stopped}");
}

/// `graphprotocol/graph-node#4420`: the growth overflowed with the 32nd attempt.
#[tokio::test(start_paused = true)]
pub(crate) async fn bo_01_growth_stays_at_the_cap_for_any_number_of_attempts() {
    let done = get([status(503)])
        .policy(curve(500, 45_000).with_max_attempts(40))
        .run()
        .await;
    let mut waits = [45_000; 39];
    waits[..7].copy_from_slice(&[500, 1000, 2000, 4000, 8000, 16_000, 32_000]);
    done.stops(503, waits, StopReason::AttemptsExhausted);
    for jitter in JITTERS {
        let backoff = Backoff::exponential(Duration::MAX, Duration::MAX).with_jitter(jitter);
        assert!(backoff.with_factor(u32::MAX).ceiling(u32::MAX) >= Duration::from_secs(1 << 40));
        assert_eq!(backoff.delays(1).take(100).count(), 100);
    }
}

/// `EmbarkStudios/tryhard#24`: behind the cap the stored wait grew on, until it overflowed.
#[tokio::test(start_paused = true)]
pub(crate) async fn bo_03_the_memory_of_decorrelated_jitter_is_capped_as_well() {
    let backoff = Backoff::exponential(ms(5), ms(10)).with_jitter(Jitter::Decorrelated);
    let done = get([unreachable()])
        .policy(RetryPolicy::new(backoff).with_max_attempts(100))
        .run()
        .await;
    let report = done.report();
    assert_eq!(report.stop(), StopReason::AttemptsExhausted);
    assert_eq!((report.attempts(), done.origin.count()), (100, 100));
    let waits = done.origin.rests();
    assert!(
        waits.iter().all(|wait| (ms(5)..=ms(10)).contains(wait)),
        "{waits:?}"
    );
    assert!(waits.contains(&ms(10)) && waits.iter().any(|wait| *wait < ms(10)));
    assert!(done.result.unwrap_err().is_connect());
}

/// `hemilabs/heminetwork#664`: an empty range was drawn from, and panicked.
#[tokio::test(start_paused = true)]
pub(crate) async fn bo_05_no_base_and_no_cap_mean_no_wait() {
    for jitter in JITTERS {
        for (base, cap) in [(0, 0), (0, 1000), (1000, 0)] {
            let backoff = Backoff::exponential(ms(base), ms(cap)).with_jitter(jitter);
            get([status(503), status(503), status(200)])
                .policy(RetryPolicy::new(backoff))
                .run()
                .await
                .answers(200, [0, 0]);
        }
    }
}

/// `App-vNext/Polly#245`: a generator of waits counted to one too many.
#[tokio::test(start_paused = true)]
pub(crate) async fn jt_02_no_jitter_adds_an_attempt() {
    for jitter in JITTERS {
        let done = get([status(503)])
            .policy(
                RetryPolicy::default()
                    .with_jitter(jitter)
                    .with_max_attempts(3),
            )
            .run()
            .await;
        assert_eq!(done.origin.count(), 3, "{jitter:?}");
        assert_eq!(done.report().stop(), StopReason::AttemptsExhausted);
    }
}

/// `michaelbull/kotlin-retry#11`: a wait of zero is a fair draw, and crashed what had to wait it.
#[tokio::test(start_paused = true)]
pub(crate) async fn jt_03_a_draw_of_zero_is_a_retry_at_once() {
    let backoff = Backoff::exponential(ms(20), ms(20));
    let mut seeds = (0..).filter(|seed| backoff.delays(*seed).next() == Some(Duration::ZERO));
    get([status(503), status(200)])
        .retry(
            JitteredRetryMiddleware::new(RetryPolicy::new(backoff))
                .with_seed(seeds.next().unwrap()),
        )
        .run()
        .await
        .answers(200, [0]);
}

/// `microsoft/teams.py#248`: full jitter drew short waits, and all attempts were used up within the throttle.
#[tokio::test(start_paused = true)]
pub(crate) async fn jt_04_equal_jitter_waits_at_least_half_and_full_jitter_may_not() {
    let mut shorter = 0;
    for seed in 0..100 {
        for jitter in [Jitter::Equal, Jitter::Full] {
            let policy = RetryPolicy::default()
                .with_jitter(jitter)
                .with_max_attempts(6);
            let done = get([status(429)])
                .retry(JitteredRetryMiddleware::new(policy).with_seed(seed))
                .run()
                .await;
            let waits = done.origin.rests();
            let halves = [500, 1000, 2000, 4000, 8000].map(ms);
            let below = waits.iter().zip(halves).filter(|(wait, half)| *wait < half);
            match jitter {
                Jitter::Equal => assert_eq!(below.count(), 0, "{waits:?}"),
                _ => shorter += below.count(),
            }
        }
    }
    assert!((200..300).contains(&shorter), "half of 500: {shorter}");
}

/// `OriginTrail/dkg#2291`: behind the cap everybody waited exactly as long.
#[tokio::test(start_paused = true)]
pub(crate) async fn jt_06_waits_stay_spread_at_the_cap() {
    let backoff = Backoff::exponential(secs(1), secs(4));
    let mut late = Vec::new();
    for seed in 0..200 {
        let policy = RetryPolicy::new(backoff).with_max_attempts(12);
        let done = get([status(503)])
            .retry(JitteredRetryMiddleware::new(policy).with_seed(seed))
            .run()
            .await;
        let waits = done.origin.rests();
        assert!(waits.iter().all(|wait| *wait <= secs(4)), "{waits:?}");
        late.extend(waits[3..].iter().map(Duration::as_secs_f64));
    }
    let count = f64::from(u32::try_from(late.len()).unwrap());
    let mean = late.iter().sum::<f64>() / count;
    let variance = late.iter().map(|wait| (wait - mean).powi(2)).sum::<f64>() / count;
    // Even between 0 and 4: a mean of 2, and a deviation of 4 / sqrt(12).
    assert!((1.9..2.1).contains(&mean), "{mean}");
    assert!((1.1..1.2).contains(&variance.sqrt()), "{variance}");
    let at_cap = late.iter().filter(|wait| **wait >= 4.0).count();
    assert!(at_cap < 10, "{at_cap} of {count}");
}

/// `awslabs/amazon-qldb-driver-rust#260`: the base was raised to a power instead of being doubled.
#[tokio::test(start_paused = true)]
pub(crate) async fn jt_08_the_wait_is_the_base_doubled_each_time() {
    get([status(503)])
        .policy(curve(10, 100_000).with_max_attempts(6))
        .run()
        .await
        .stops(503, [10, 20, 40, 80, 160], StopReason::AttemptsExhausted);
    let tripled = Backoff::exponential(ms(10), secs(100))
        .with_jitter(Jitter::None)
        .with_factor(3);
    get([status(503)])
        .policy(RetryPolicy::new(tripled).with_max_attempts(4))
        .run()
        .await
        .stops(503, [10, 30, 90], StopReason::AttemptsExhausted);
}

/// `dcdpr/jp#1080`: the jitter that the documentation promised was never drawn, and clients went in step.
#[tokio::test(start_paused = true)]
pub(crate) async fn jt_09_clients_made_together_wait_apart() {
    let year = secs(365 * 24 * 3600);
    let policy = RetryPolicy::new(Backoff::exponential(year, year)).with_max_attempts(3);
    let mut waits = Vec::new();
    for _ in 0..20 {
        let retry = JitteredRetryMiddleware::new(policy);
        // And the calls of one client, and those of its clone.
        for retry in [retry.clone(), retry.clone(), retry] {
            let done = get([status(503)]).retry(retry).run().await;
            waits.extend(done.origin.rests());
        }
    }
    let count = waits.len();
    waits.sort();
    waits.dedup();
    assert_eq!((count, waits.len()), (120, 120));
    // In step only where that is asked for.
    let mut waits = Vec::new();
    for _ in 0..2 {
        let retry = JitteredRetryMiddleware::new(policy).with_seed(7);
        waits.push(get([status(503)]).retry(retry).run().await.origin.rests());
    }
    assert_eq!(waits[0], waits[1]);
}

/// `MikkoParkkola/mcp-gateway#394`: "attempts" were counted as retries, and zero was anybody's guess.
#[tokio::test(start_paused = true)]
pub(crate) async fn cf_02_attempts_count_the_first_one_and_zero_is_one() {
    for (max_attempts, sent) in [(0, 1), (1, 1), (2, 2), (3, 3)] {
        let done = get([status(503)])
            .policy(fixed(ms(1)).with_max_attempts(max_attempts))
            .run()
            .await;
        assert_eq!(done.origin.count(), sent, "{max_attempts}");
        assert_eq!(done.report().attempts() as usize, sent);
        assert_eq!(done.report().retries() as usize, sent - 1);
    }
}

/// `TrueLayer/reqwest-middleware#87`: ten retries were the most, whatever the policy said.
#[tokio::test(start_paused = true)]
pub(crate) async fn cf_03_there_is_no_other_limit_than_the_policys() {
    let origin = ScriptedOrigin::new(
        std::iter::repeat_with(|| status(503))
            .take(14)
            .chain([status(200)]),
    );
    let client = origin.client(JitteredRetryMiddleware::new(
        fixed(ms(1)).with_max_attempts(15),
    ));
    assert_eq!(client.get(URL).send().await.unwrap().status(), 200);
    assert_eq!(origin.count(), 15);
}

/// `TrueLayer/reqwest-middleware#106`: a builder for a policy bounded in time made a type that nothing accepts.
#[tokio::test(start_paused = true)]
pub(crate) async fn cf_04_every_setting_composes_into_a_policy_that_the_middleware_takes() {
    const POLICIES: [RetryPolicy; 4] = [
        RetryPolicy::new(Backoff::exponential(ms(10), ms(100)).with_factor(3))
            .with_jitter(Jitter::None)
            .with_max_attempts(3)
            .with_max_elapsed(ms(40))
            .with_max_retry_after(secs(30))
            .with_hint_spread(ms(5))
            .with_replay(Replay::IdempotentOnly),
        RetryPolicy::new(Backoff::linear(ms(10), ms(100)).with_jitter(Jitter::None))
            .with_max_elapsed(ms(30))
            .with_max_attempts(3),
        RetryPolicy::new(Backoff::fixed(ms(10))).with_max_elapsed(ms(20)),
        RetryPolicy::new(Backoff::fixed(ms(1)))
            .with_backoff(Backoff::fixed(ms(10)))
            .with_max_attempts(2),
    ];
    let waits = [vec![10, 30], vec![10, 20], vec![10, 10], vec![10]];
    for (policy, waits) in POLICIES.into_iter().zip(waits) {
        let done = get([status(503)])
            .retry(JitteredRetryMiddleware::new(policy))
            .run()
            .await;
        let waits: Vec<_> = waits.into_iter().map(ms).collect();
        assert_eq!(done.origin.rests(), waits);
    }
}

/// `resilience4j/resilience4j#2512`: a bad interval was noticed by the first retry, which hid the real failure.
#[tokio::test(start_paused = true)]
pub(crate) async fn cf_05_no_setting_fails_neither_when_it_is_made_nor_when_it_is_used() {
    for (policy, waits) in [
        (curve(0, 1000), [0, 0]),
        // A base beyond the cap is the cap.
        (curve(5000, 1000), [1000, 1000]),
        // Factors below 1 can't be written; zero reads as one.
        (
            RetryPolicy::new(
                Backoff::exponential(ms(70), ms(1000))
                    .with_factor(0)
                    .with_jitter(Jitter::None),
            ),
            [70, 70],
        ),
    ] {
        let body = "the real failure";
        let done = get([status(503).body(body)])
            .policy(policy.with_max_attempts(3))
            .run()
            .await;
        done.stops(503, waits, StopReason::AttemptsExhausted);
        assert_eq!(done.response().text().await.unwrap(), body);
    }
}

/// `sindresorhus/got#2102`: a function for the wait switched every other limit off.
#[tokio::test(start_paused = true)]
pub(crate) async fn cl_03_a_classifiers_wait_leaves_every_limit_in_force() {
    let classifier = classify_fn(|_| Verdict::Retry {
        cause: Cause::ServerError,
        effect: Effect::Unknown,
        after: Some(ms(1)),
    });
    let policy = RetryPolicy::default().with_max_attempts(3);
    let retry = |policy| JitteredRetryMiddleware::new(policy).with_classifier(classifier);
    let done = get([status(503)]).retry(retry(policy)).run().await;
    done.stops(503, [1, 1], StopReason::AttemptsExhausted);
    assert_eq!(done.report().history()[1].source(), DelaySource::Classifier);
    get([status(503)])
        .retry(retry(policy.with_max_elapsed(ms(1))))
        .run()
        .await
        .stops(503, [1], StopReason::ElapsedExhausted);
    let budget = reqwest_jitter::RetryBudget::new()
        .with_burst(1)
        .with_reserve_per_sec(0);
    get([status(503)])
        .retry(retry(policy).with_budget(budget))
        .run()
        .await
        .stops(503, [1], StopReason::BudgetExhausted);
}
