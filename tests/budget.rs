//! Owns the rule of how much retrying an origin can bear, all calls together.

mod support;

use std::time::Duration;

use reqwest_jitter::{
    Backoff, JitteredRetryMiddleware, RetryBudget, RetryPolicy, RetryReport, StopReason,
};
use support::{ScriptedOrigin, URL, status};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Attempts without a wait, so that nothing but the budget limits them.
fn eager(max_attempts: u32) -> RetryPolicy {
    RetryPolicy::new(Backoff::fixed(Duration::ZERO)).with_max_attempts(max_attempts)
}

fn share(percent: u32) -> RetryBudget {
    RetryBudget::new()
        .with_burst(1)
        .with_reserve_per_sec(0)
        .with_extra_load_percent(percent)
}

#[tokio::test(start_paused = true)]
async fn every_percentage_grants_what_it_says() {
    const CALLS: u32 = 2_000;
    for percent in [
        0,
        1,
        10,
        20,
        30,
        33,
        40,
        60,
        90,
        100,
        150,
        999,
        1000,
        u32::MAX,
    ] {
        let origin = ScriptedOrigin::new([status(503)]).forgetting();
        let client =
            origin.client(JitteredRetryMiddleware::new(eager(12)).with_budget(share(percent)));
        let calls = CALLS;
        for _ in 0..calls {
            client.get(URL).send().await.unwrap();
        }
        let granted = origin.count() as u64 - u64::from(calls);
        let expected = u64::from(calls) * u64::from(percent.min(1000)) / 100;
        assert!(
            granted.abs_diff(expected) <= 1,
            "{percent} %: {granted} of {expected}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_spent_budget_stops_a_call_and_says_so() {
    let origin = ScriptedOrigin::new([status(503)]);
    let client = origin.client(JitteredRetryMiddleware::new(eager(9)).with_budget(share(0)));

    let response = client.get(URL).send().await.unwrap();

    let report = RetryReport::of(&response).unwrap();
    assert_eq!(report.stop(), StopReason::BudgetExhausted);
    assert_eq!(report.attempts(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_budget_is_asked_before_the_wait_and_refuses_at_once() {
    let origin = ScriptedOrigin::new([status(503)]);
    let policy = RetryPolicy::new(Backoff::fixed(Duration::from_secs(60)));
    let client = origin.client(JitteredRetryMiddleware::new(policy).with_budget(share(0)));
    let start = Instant::now();
    client.get(URL).send().await.unwrap();
    assert_eq!(
        (start.elapsed(), origin.count()),
        (Duration::from_secs(60), 2),
        "the burst of one"
    );
    client.get(URL).send().await.unwrap();
    assert_eq!(
        (start.elapsed(), origin.count()),
        (Duration::from_secs(60), 3),
        "at once"
    );
}

#[tokio::test(start_paused = true)]
async fn what_needs_no_retry_takes_nothing() {
    let origin = ScriptedOrigin::new([status(404), status(429), status(404)]);
    let client = origin.client(JitteredRetryMiddleware::new(eager(9)).with_budget(share(0)));
    for _ in 0..3 {
        client.get(URL).send().await.unwrap();
    }
    assert_eq!(origin.count(), 4);
    let origin = ScriptedOrigin::new([status(500)]);
    let client = origin.client(JitteredRetryMiddleware::new(eager(2)).with_budget(share(0)));
    for _ in 0..3 {
        client.post(URL).send().await.unwrap();
    }
    assert_eq!(
        origin.count(),
        3,
        "a POST that must not be repeated asks for nothing"
    );
    client.get(URL).send().await.unwrap();
    assert_eq!(origin.count(), 5, "the burst is still there");
}

#[tokio::test(start_paused = true)]
async fn a_retry_dropped_in_its_wait_gives_its_token_back() {
    let origin = ScriptedOrigin::new([status(503)]);
    let policy = RetryPolicy::new(Backoff::fixed(Duration::from_secs(1))).with_max_attempts(2);
    let client = origin.client(JitteredRetryMiddleware::new(policy).with_budget(share(0)));
    for _ in 0..5 {
        let call = client.get(URL).send();
        assert!(
            timeout(Duration::from_millis(999), call).await.is_err(),
            "it waits for its second"
        );
    }
    assert_eq!(origin.count(), 5);
    let response = client.get(URL).send().await.unwrap();
    assert_eq!(RetryReport::of(&response).unwrap().attempts(), 2);
    // The retry that was sent is spent.
    let response = client.get(URL).send().await.unwrap();
    assert_eq!(
        RetryReport::of(&response).unwrap().stop(),
        StopReason::BudgetExhausted
    );
}

#[tokio::test(start_paused = true)]
async fn the_reserve_refills_with_time_and_never_beyond_the_burst() {
    let origin = ScriptedOrigin::new([status(503)]);
    let budget = RetryBudget::new()
        .with_burst(3)
        .with_reserve_per_sec(2)
        .with_extra_load_percent(0);
    let client = origin.client(JitteredRetryMiddleware::new(eager(u32::MAX)).with_budget(budget));
    for (wait, granted) in [
        (0, 3),
        (0, 0),
        (499, 0),
        (1, 1),
        (1000, 2),
        (1_000_000, 3),
        (499, 0),
        (499, 1),
    ] {
        sleep(Duration::from_millis(wait)).await;
        let response = client.get(URL).send().await.unwrap();
        assert_eq!(
            RetryReport::of(&response).unwrap().retries(),
            granted,
            "after {wait} ms"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn one_origin_never_spends_the_tokens_of_another() {
    let origin = ScriptedOrigin::new([status(503)]);
    let client = origin.client(JitteredRetryMiddleware::new(eager(9)).with_budget(share(0)));
    for url in [
        "http://one.test/",
        "http://two.test/",
        "http://one.test:81/",
        "https://one.test/",
        "http://ONE.test:80/again",
        "http://user:secret@one.test/",
    ] {
        let response = client.get(url).send().await.unwrap();
        let is_known = url.contains("again") || url.contains("secret");
        assert_eq!(
            RetryReport::of(&response).unwrap().retries(),
            u32::from(!is_known),
            "{url}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn clones_share_a_budget_and_settings_begin_a_new_one() {
    let origin = ScriptedOrigin::new([status(503)]);
    let budget = share(0);
    let retries = async |budget: &RetryBudget| {
        let client =
            origin.client(JitteredRetryMiddleware::new(eager(9)).with_budget(budget.clone()));
        let response = client.get(URL).send().await.unwrap();
        RetryReport::of(&response).unwrap().retries()
    };
    assert_eq!(retries(&budget).await, 1);
    assert_eq!(retries(&budget).await, 0);
    assert_eq!(retries(&budget.with_burst(2)).await, 2);
}

#[test]
fn threads_never_overdraw() {
    const BURST: u32 = 1000;
    const THREADS: u32 = 8;
    const CALLS: u32 = 1000;
    let origin = ScriptedOrigin::new([status(503)]).forgetting();
    let budget = RetryBudget::new()
        .with_burst(BURST)
        .with_reserve_per_sec(0)
        .with_extra_load_percent(20);
    let client = origin.client(JitteredRetryMiddleware::new(eager(5)).with_budget(budget));
    let call = |times: u32| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        for _ in 0..times {
            runtime.block_on(client.get(URL).send()).unwrap();
        }
    };
    // A full account takes no deposits: how many of the first calls arrive before the first retry is up to the
    // scheduler, so there is one that arrives, and asks, alone.
    call(1);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| call(CALLS));
        }
    });
    let calls = 1 + THREADS * CALLS;
    let retries = origin.count() - calls as usize;
    let granted = (BURST + calls / 5) as usize;
    assert!(retries == granted, "{retries} of {granted}");
}

#[tokio::test(start_paused = true)]
async fn any_number_of_origins_stays_within_bounds() {
    let origin = ScriptedOrigin::new([status(503)]).forgetting();
    // No reserve: what is spent stays spent, so that nothing is refilled and forgettable on its own.
    let budget = share(0);
    let client = origin.client(JitteredRetryMiddleware::new(eager(2)).with_budget(budget.clone()));
    let kept = || {
        let debug = format!("{budget:?}");
        let (_, kept) = debug.split_once("origins: ").unwrap();
        kept.trim_end_matches([' ', '}']).parse::<u32>().unwrap()
    };
    for port in 1..=40_000 {
        client
            .get(format!("http://host.test:{port}/"))
            .send()
            .await
            .unwrap();
        assert!(kept() <= 10_000);
    }
    assert!(kept() > 5_000, "{}", kept());
}

#[tokio::test(start_paused = true)]
async fn origins_that_miss_the_most_are_remembered() {
    let origin = ScriptedOrigin::new([status(503)]).forgetting();
    let budget = RetryBudget::new()
        .with_burst(2)
        .with_reserve_per_sec(0)
        .with_extra_load_percent(0);
    let client = origin.client(JitteredRetryMiddleware::new(eager(2)).with_budget(budget));
    let retries = async |url: String| {
        let response = client.get(url).send().await.unwrap();
        RetryReport::of(&response).unwrap().retries()
    };
    for _ in 0..3 {
        retries("http://bad.test/".to_owned()).await;
    }
    for port in 1..=20_000 {
        assert_eq!(retries(format!("http://other.test:{port}/")).await, 1);
    }
    assert_eq!(retries("http://bad.test/".to_owned()).await, 0);
}

#[tokio::test(start_paused = true)]
async fn an_outage_meets_the_budget_and_the_next_failure_is_retried_again() {
    const CALLS: u32 = 10_000;
    let policy = RetryPolicy::new(Backoff::exponential(
        Duration::from_millis(100),
        Duration::from_secs(1),
    ));
    let origin = ScriptedOrigin::new([status(503)]).forgetting();
    let client = origin.client(JitteredRetryMiddleware::new(policy));
    let start = Instant::now();
    let mut calls = JoinSet::new();
    for number in 0..CALLS {
        let request = client.get(URL);
        calls.spawn(async move {
            sleep_until(start + number * Duration::from_millis(1)).await;
            request.send().await.unwrap();
        });
    }
    calls.join_all().await;
    let seconds = usize::try_from(start.elapsed().as_secs()).unwrap() + 1;
    assert!(
        origin.count() <= 12_000 + 100 + 10 * seconds,
        "{}",
        origin.count()
    );
    assert!(origin.count() > 11_500, "{}", origin.count());

    sleep(Duration::from_secs(1)).await;
    let response = client.get(URL).send().await.unwrap();
    assert!(RetryReport::of(&response).unwrap().retries() > 0);
}
