//! Owns the rule of how much retrying an origin can bear, all calls together.

mod support;

use std::time::Duration;

use reqwest_jitter::{
    Backoff, JitteredRetryMiddleware, RetryBudget, RetryPolicy, RetryReport, StopReason,
};
use support::{ScriptedOrigin, URL, status};

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
    const CALLS: u32 = 10_000;
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
