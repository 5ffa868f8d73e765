//! Owns the rule of how delays are spread: evenly, without memory, and differently for every request.
//!
//! All seeds are fixed, so that nothing here can fail by chance.

mod support;

use std::collections::HashSet;
use std::time::Duration;

use reqwest_jitter::{
    Backoff, Jitter, JitteredRetryMiddleware, RetryEvent, RetryPolicy, RetryReport,
};
use support::{ScriptedOrigin, URL, ms, secs, status};

const BASE: Duration = Duration::from_secs(1);
const CAP: Duration = Duration::from_secs(30);

fn backoff(jitter: Jitter) -> Backoff {
    Backoff::exponential(BASE, CAP).with_jitter(jitter)
}

/// The delays of the first retry of many calls, scaled to the range they are drawn from.
fn first_delays(jitter: Jitter, shortest: u32, longest: u32) -> Vec<f64> {
    let scale = |delay: Duration| {
        // Half a millisecond, so that a draw of whole ones fills its range to both ends.
        let width = f64::from(longest - shortest + 1);
        (delay.as_secs_f64() * 1000.0 - f64::from(shortest) + 0.5) / width
    };
    (0..20_000)
        .map(|seed| scale(backoff(jitter).delays(seed).next().unwrap()))
        .collect()
}

/// With their ranges: these three draw evenly.
const EVEN: [(Jitter, u32, u32); 3] = [
    (Jitter::Full, 0, 1000),
    (Jitter::Equal, 500, 1000),
    (Jitter::Decorrelated, 1000, 3000),
];

#[allow(clippy::cast_precision_loss)] // Counts far below 2^52.
fn count(values: &[f64]) -> f64 {
    values.len() as f64
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / count(values)
}

#[test]
fn the_mean_lies_within_four_sigma_of_the_middle() {
    for (jitter, shortest, longest) in EVEN {
        let delays = first_delays(jitter, shortest, longest);
        let sigma = (1.0 / 12.0_f64).sqrt() / count(&delays).sqrt();
        let off = (mean(&delays) - 0.5) / sigma;
        assert!(off.abs() < 4.0, "{jitter:?}: {off} sigma");
    }
}

#[test]
fn the_distribution_is_uniform_by_kolmogorov_and_smirnov() {
    for (jitter, shortest, longest) in EVEN {
        let mut delays = first_delays(jitter, shortest, longest);
        delays.sort_by(f64::total_cmp);
        let n = count(&delays);
        let (mut rank, mut distance) = (0.0, 0.0_f64);
        for delay in delays {
            distance = distance.max((rank / n - delay).abs());
            rank += 1.0;
            distance = distance.max((rank / n - delay).abs());
        }
        // 1.63 is the critical value at 1 %; a draw of whole milliseconds adds half a step.
        let critical = 1.63 / n.sqrt() + 0.5 / f64::from(longest - shortest + 1);
        assert!(distance < critical, "{jitter:?}: {distance} of {critical}");
    }
}

/// How much one value tells about the next: the correlation of a sequence with itself, one step later.
fn lag_one_correlation(values: &[f64]) -> f64 {
    let mean = mean(values);
    let covariance: f64 = values
        .windows(2)
        .map(|pair| (pair[0] - mean) * (pair[1] - mean))
        .sum();
    let variance: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    covariance / variance
}

#[test]
fn one_delay_tells_nothing_about_the_next() {
    for jitter in [Jitter::Full, Jitter::Equal] {
        let fixed = Backoff::fixed(BASE).with_jitter(jitter);
        let delays: Vec<_> = fixed
            .delays(5)
            .take(20_000)
            .map(|delay| delay.as_secs_f64())
            .collect();
        let correlation = lag_one_correlation(&delays);
        assert!(
            correlation.abs() < 4.0 / count(&delays).sqrt(),
            "{jitter:?}: {correlation}"
        );
    }
    // The yardstick measures: decorrelated jitter grows from the delay before.
    let grown = Backoff::exponential(ms(100), secs(3600)).with_jitter(Jitter::Decorrelated);
    let delays: Vec<_> = grown
        .delays(5)
        .take(20_000)
        .map(|delay| delay.as_secs_f64())
        .collect();
    assert!(lag_one_correlation(&delays) > 0.1);
}

#[test]
fn one_call_tells_nothing_about_the_next() {
    for (jitter, shortest, longest) in EVEN {
        // Neighbouring seeds are as independent as any others.
        let delays = first_delays(jitter, shortest, longest);
        let correlation = lag_one_correlation(&delays);
        assert!(
            correlation.abs() < 4.0 / count(&delays).sqrt(),
            "{jitter:?}: {correlation}"
        );
    }
}

/// What `calls` at once from one middleware have waited, one after another.
async fn crowd(retry: JitteredRetryMiddleware, calls: usize) -> Vec<Vec<Duration>> {
    let origin = ScriptedOrigin::new([status(503)]).forgetting();
    let client = origin.client(retry.without_budget());
    let calls: Vec<_> = (0..calls)
        .map(|_| tokio::spawn(client.get(URL).send()))
        .collect();
    let mut sequences = Vec::new();
    for call in calls {
        let response = call.await.unwrap().unwrap();
        let report = RetryReport::of(&response).unwrap();
        sequences.push(report.history().iter().map(RetryEvent::delay).collect());
    }
    sequences
}

#[tokio::test(start_paused = true)]
async fn no_two_of_ten_thousand_requests_share_their_delays() {
    for jitter in [Jitter::Full, Jitter::Equal, Jitter::Decorrelated] {
        let retry = JitteredRetryMiddleware::new(RetryPolicy::new(backoff(jitter)));
        let mut seen = HashSet::new();
        for sequence in crowd(retry.with_seed(2), 10_000).await {
            assert_eq!(sequence.len(), 4);
            assert!(
                seen.insert(sequence.clone()),
                "{jitter:?}: {sequence:?} twice"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_calls_of_one_middleware_are_spread_evenly_too() {
    let retry = JitteredRetryMiddleware::new(RetryPolicy::new(backoff(Jitter::Full)));
    let first: Vec<_> = crowd(retry.with_seed(3), 10_000)
        .await
        .iter()
        .map(|delays| (delays[0].as_secs_f64() * 1000.0 + 0.5) / 1001.0)
        .collect();
    let sigma = (1.0 / 12.0_f64).sqrt() / count(&first).sqrt();
    assert!((mean(&first) - 0.5).abs() < 4.0 * sigma);
    assert!(lag_one_correlation(&first).abs() < 4.0 / count(&first).sqrt());
}

const HERD: u32 = 500;
const BUCKETS: usize = 20;

/// How many of a herd that failed at once return in each twentieth of the base delay.
async fn returns(jitter: Jitter) -> [u32; BUCKETS] {
    let origin = ScriptedOrigin::new([status(503)]);
    let policy = RetryPolicy::new(backoff(jitter)).with_max_attempts(2);
    let retry = JitteredRetryMiddleware::new(policy)
        .with_seed(4)
        .without_budget();
    let client = origin.client(retry);
    let started = tokio::time::Instant::now();
    let calls: Vec<_> = (0..HERD)
        .map(|_| tokio::spawn(client.get(URL).send()))
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let arrivals = origin.arrivals();
    let (first, again) = arrivals.split_at(usize::try_from(HERD).unwrap());
    assert!(first.iter().all(|arrival| arrival.at == started));
    assert_eq!(again.len(), first.len());
    let mut buckets = [0; BUCKETS];
    for arrival in again {
        // Of 0 to 1000 ms, both included, the last bucket holds one more.
        let bucket = usize::try_from((arrival.at - started).as_millis()).unwrap() / 50;
        buckets[bucket.min(BUCKETS - 1)] += 1;
    }
    buckets
}

#[tokio::test(start_paused = true)]
async fn with_full_jitter_a_herd_returns_spread_out() {
    let buckets = returns(Jitter::Full).await;
    let expected = f64::from(HERD) / 20.0;
    let chi_square: f64 = buckets
        .iter()
        .map(|&found| (f64::from(found) - expected).powi(2) / expected)
        .sum();
    // The critical value for 19 degrees of freedom at 0.1 %.
    assert!(chi_square < 43.8, "{chi_square}: {buckets:?}");
}

#[tokio::test(start_paused = true)]
async fn without_jitter_a_herd_returns_as_a_herd() {
    let mut expected = [0; BUCKETS];
    expected[BUCKETS - 1] = HERD;
    assert_eq!(returns(Jitter::None).await, expected);
}
