//! Owns the rule of when a retry happens: the delays that are slept, and the ones that are not.

mod support;

use std::time::Duration;

use reqwest_jitter::{
    Backoff, Jitter, JitteredRetryMiddleware, RetryPolicy, RetryReport, StopReason,
};
use support::{ScriptedOrigin, URL, status};

const BASE: Duration = Duration::from_secs(1);
const CAP: Duration = Duration::from_secs(30);

#[tokio::test(start_paused = true)]
async fn without_jitter_the_curve_is_slept_to_the_millisecond() {
    let origin = ScriptedOrigin::new([status(503)]);
    let policy = RetryPolicy::new(Backoff::exponential(BASE, CAP).with_jitter(Jitter::None));
    let client = origin.client(JitteredRetryMiddleware::new(policy));

    let response = client.get(URL).send().await.unwrap();

    assert_eq!(response.status(), 503);
    assert_eq!(origin.gaps(), [1, 2, 4, 8].map(Duration::from_secs));
    let report = RetryReport::of(&response).unwrap();
    assert_eq!(report.attempts(), 5);
    assert_eq!(report.slept(), Duration::from_secs(15));
    assert_eq!(report.stop(), StopReason::AttemptsExhausted);
}
