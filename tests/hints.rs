//! Owns the rule of what a server's hint is worth: which headers are read, as what, and how they are waited.

mod support;

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use http::HeaderName;
use proptest::prelude::*;
use reqwest_jitter::{
    Backoff, Cause, DelayHints, DelaySource, Effect, HintUnit, Jitter, JitteredRetryMiddleware,
    RetryEvent, RetryPolicy, RetryReport, StopReason, Verdict, classify_fn,
};
use support::{Answer, ScriptedOrigin, URL, fixed, ms, report, secs, status};
use tokio::time::Instant;

const JITTERS: [Jitter; 4] = [
    Jitter::None,
    Jitter::Full,
    Jitter::Equal,
    Jitter::Decorrelated,
];
/// A moment far from every local clock.
const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
/// One that is fit for a Unix time in a header: there they begin with 1e9.
const LATER_DATE: &str = "Sat, 31 Dec 2016 23:59:59 GMT";
const LATER_UNIX: u64 = 1_483_228_799;

type Headers = [(&'static str, &'static str)];

/// What a classifier is told about a response with these headers.
fn read<V: AsRef<[u8]>>(hints: DelayHints, headers: &[(&'static str, V)]) -> Option<Duration> {
    let seen = Arc::new(Mutex::new(None));
    let slot = Arc::clone(&seen);
    let answer = headers.iter().fold(status(503), |answer, (name, value)| {
        answer.header(name, value)
    });
    let classifier = classify_fn(move |attempt| {
        *slot.lock().unwrap() = Some(attempt.hint());
        Verdict::Reject
    });
    let retry = JitteredRetryMiddleware::default()
        .with_hints(hints)
        .with_classifier(classifier);
    let client = ScriptedOrigin::new([answer]).client(retry);
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(client.get(URL).send())
        .unwrap();
    let seen = seen.lock().unwrap();
    seen.expect("the classifier was asked")
}

fn standard<V: AsRef<[u8]>>(headers: &[(&'static str, V)]) -> Option<Duration> {
    read(DelayHints::standard(), headers)
}

fn retry_after(value: impl AsRef<[u8]>) -> Option<Duration> {
    standard(&[("retry-after", value)])
}

/// Counted from the response's own date.
fn dated(date: &str, value: &str) -> Option<Duration> {
    standard(&[("date", date), ("retry-after", value)])
}

#[test]
fn seconds_are_ascii_digits_with_or_without_decimals() {
    for (value, wait) in [
        ("0", ms(0)),
        ("7", secs(7)),
        ("0007", secs(7)),
        ("120", secs(120)),
        ("0.503", ms(503)),
        ("2.0", secs(2)),
        ("2.000000000000000000000000000", secs(2)),
        // Rounded up, never down.
        ("0.0001", ms(1)),
        ("0.5030001", ms(504)),
        ("0.00000000000000000000000000001", ms(1)),
        ("0.9999999999999", secs(1)),
        ("1.0000000001", ms(1001)),
        ("999999999", secs(999_999_999)),
        ("999999999.5", ms(999_999_999_500)),
    ] {
        assert_eq!(retry_after(value), Some(wait), "{value}");
    }
}

#[test]
fn what_is_not_understood_is_no_hint() {
    let values: [&[u8]; 40] = [
        b"",
        b" ",
        b"-1",
        b"+5",
        b"-0",
        b"\xe2\x88\x921",
        b"nan",
        b"NaN",
        b"inf",
        b"infinity",
        b"1e3",
        b"0x10",
        b"1_000",
        b"1m0s",
        b"6m0s",
        b"12ms",
        b"5s",
        b"5 s",
        b"five",
        b".5",
        b"5.",
        b".",
        b"1.2.3",
        b"1,5",
        b"1 5",
        b"1;5",
        b"\"5\"",
        // Digits of other scripts: Arabic-Indic, fullwidth, superscript, circled.
        "\u{665}".as_bytes(),
        "\u{ff15}".as_bytes(),
        "\u{b2}".as_bytes(),
        "\u{2464}".as_bytes(),
        b"\xff\xfe",
        b"5\xff",
        b"2016-12-31T23:59:59Z",
        b"Sat, 31 Dec 2016 23:59:59 PST",
        b"Sat, 32 Dec 2016 23:59:59 GMT",
        b"Sat, 31 Dec 2016 24:00:00 GMT",
        b"Sat, 31 Dec 2016 22:60:30 GMT",
        b"Sat, 31 Dec 2016 60:30:00 GMT",
        b"Sat, 31 Dec 2016 23:59:61 GMT",
    ];
    for value in values {
        let text = String::from_utf8_lossy(value);
        assert_eq!(retry_after(value), None, "{text:?}");
        // For no more than seconds are milliseconds read from it.
        for name in ["retry-after-ms", "x-ms-retry-after-ms"] {
            assert_eq!(standard(&[(name, value)]), None, "{name}: {text:?}");
        }
    }
}

#[test]
fn a_number_too_large_for_its_type_is_a_very_long_wait() {
    let forty_digits = "9".repeat(40);
    let long = "1".repeat(5000);
    for value in ["9999999999", &forty_digits, &long, "18446744073709551616"] {
        let wait = retry_after(value).expect(value);
        assert!(wait > secs(100 * 365 * 86400), "{value}: {wait:?}");
    }
    for value in [&*forty_digits, "18446744073709551616"] {
        for name in ["retry-after-ms", "x-ms-retry-after-ms"] {
            let wait = standard(&[(name, value)]).expect(value);
            assert!(wait > secs(100 * 365 * 86400), "{name}: {wait:?}");
        }
    }
}

#[test]
fn large_numbers_are_unix_times_in_three_units() {
    let date = LATER_DATE;
    for (value, wait) in [
        (LATER_UNIX.to_string(), ms(0)),
        (format!("{}", LATER_UNIX + 90), secs(90)),
        (format!("{}.25", LATER_UNIX + 90), ms(90_250)),
        (format!("{}", LATER_UNIX - 90), ms(0)),
        (format!("{LATER_UNIX}090"), ms(90)),
        (format!("{LATER_UNIX}090.5"), ms(91)),
        (format!("{LATER_UNIX}090000"), ms(90)),
        (format!("{LATER_UNIX}090001"), ms(91)),
        (format!("{LATER_UNIX}090000.5"), ms(91)),
        // Both sides of each boundary.
        ("1000000000".to_owned(), ms(0)),
        ("99999999999".to_owned(), secs(99_999_999_999 - LATER_UNIX)),
        ("100000000000".to_owned(), ms(0)),
        (
            "99999999999999".to_owned(),
            ms(99_999_999_999_999 - LATER_UNIX * 1000),
        ),
        ("100000000000000".to_owned(), ms(0)),
    ] {
        assert_eq!(dated(date, &value), Some(wait), "{value}");
    }
}

#[test]
fn dates_in_all_three_forms_count_from_the_date_of_the_response() {
    let forms = [
        ("Sun, 06 Nov 1994 08:51:07 GMT", secs(90)),
        ("Sunday, 06-Nov-94 08:51:07 GMT", secs(90)),
        ("Sun Nov  6 08:51:07 1994", secs(90)),
        // A leap second is the one after :59.
        ("Sun, 06 Nov 1994 08:49:60 GMT", secs(23)),
        ("Sunday, 06-Nov-94 08:49:60 GMT", secs(23)),
        ("Sun Nov  6 08:49:60 1994", secs(23)),
        ("Sun, 06 Nov 1994 23:59:60 GMT", secs(54_623)),
        // Now, and long ago.
        (DATE, secs(0)),
        ("Sat, 05 Nov 1994 08:49:37 GMT", secs(0)),
        ("Thu, 01 Jan 1970 00:00:00 GMT", secs(0)),
    ];
    let dates = [
        DATE,
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
    ];
    for date in dates {
        for (value, wait) in forms {
            assert_eq!(dated(date, value), Some(wait), "{value} at {date}");
        }
    }
    assert_eq!(
        dated(
            "Sun, 06 Nov 1994 08:49:60 GMT",
            "Sun, 06 Nov 1994 08:51:30 GMT"
        ),
        Some(secs(90)),
    );
}

/// The local clock goes on between the writing and the reading of a header.
fn about(wait: Option<Duration>, expected: Duration) -> bool {
    wait.is_some_and(|wait| wait <= expected && wait + secs(20) > expected)
}

fn from_now(wait: Duration) -> String {
    // To whole seconds, as a date is written; up, so that what is left is no more than `wait`.
    httpdate::fmt_http_date(SystemTime::now() + wait)
}

#[test]
fn without_a_date_that_can_be_read_the_local_clock_counts() {
    let value = from_now(secs(3600));
    assert!(about(retry_after(&value), secs(3600)));
    for date in [
        "",
        "yesterday",
        "Sun, 06 Nov 1994 08:49:37 PST",
        "Sun, 06 Nov 1994 08:60:37 GMT",
    ] {
        assert!(about(dated(date, &value), secs(3600)), "{date}");
    }
    let bytes: [(_, &[u8]); 2] = [("date", b"\xff"), ("retry-after", value.as_bytes())];
    assert!(about(standard(&bytes), secs(3600)));
}

#[test]
fn the_date_of_a_response_out_of_a_cache_does_not_count() {
    let value = from_now(secs(3600));
    let aged = |age| standard(&[("date", DATE), ("age", age), ("retry-after", &*value)]);
    for age in ["1", "60", "86400", "?"] {
        assert!(about(aged(age), secs(3600)), "{age}");
    }
    // Made just now: its date is as good as any, and better than a clock that is years off.
    assert!(aged("0") > Some(secs(20 * 365 * 86400)));
    // Seconds count from the response's arrival in any case.
    let seconds = [("date", DATE), ("age", "60"), ("retry-after", "7")];
    assert_eq!(standard(&seconds), Some(secs(7)));
}

#[test]
fn of_several_values_the_longest_that_can_be_read_counts() {
    let cases: [(&[&str], Option<Duration>); 12] = [
        (&["3", "7", "5"], Some(secs(7))),
        (&["soon", "7"], Some(secs(7))),
        (&["-1", "nan"], None),
        // What a proxy has joined.
        (&["3, 7, 5"], Some(secs(7))),
        (&["soon, 7"], Some(secs(7))),
        (&["7, soon"], Some(secs(7))),
        (&["7, "], Some(secs(7))),
        (&["-1, nan"], None),
        (&["3, Sun, 06 Nov 1994 08:51:07 GMT"], Some(secs(90))),
        (&["Sun, 06 Nov 1994 08:51:07 GMT, 3"], Some(secs(90))),
        (
            &["Sun, 06 Nov 1994 08:51:07 GMT, Sun, 06 Nov 1994 08:50:07 GMT"],
            Some(secs(90)),
        ),
        (&["3, 7", "Sun Nov  6 08:51:07 1994"], Some(secs(90))),
    ];
    for (values, wait) in cases {
        let mut headers = vec![("date", DATE)];
        headers.extend(values.iter().map(|value| ("retry-after", *value)));
        assert_eq!(standard(&headers), wait, "{values:?}");
    }
    assert_eq!(
        standard(&[("retry-after-ms", "3"), ("retry-after-ms", "7, 5")]),
        Some(ms(7))
    );
}

#[test]
fn millisecond_headers_come_first_but_never_before_retry_after() {
    let (ours, azure, plain) = ("retry-after-ms", "x-ms-retry-after-ms", "retry-after");
    let cases: [(&Headers, Option<Duration>); 11] = [
        (&[(ours, "1500")], Some(ms(1500))),
        (&[(azure, "200")], Some(ms(200))),
        (&[(ours, "1500.2")], Some(ms(1501))),
        (&[(ours, "0.5")], Some(ms(1))),
        (&[(ours, "1500"), (azure, "9000")], Some(ms(1500))),
        (&[(ours, "soon"), (azure, "9000")], Some(ms(9000))),
        (&[(ours, "1500"), (plain, "1")], Some(ms(1500))),
        (&[(ours, "1500"), (plain, "2")], Some(secs(2))),
        (&[(azure, "1500"), (plain, "2")], Some(secs(2))),
        (&[(ours, "soon"), (plain, "2")], Some(secs(2))),
        (&[(ours, "1500"), (plain, "soon")], Some(ms(1500))),
    ];
    for (headers, wait) in cases {
        assert_eq!(standard(headers), wait, "{headers:?}");
    }
    // Milliseconds are no Unix time, however many.
    let many = [("date", LATER_DATE), (ours, "1483228889000")];
    assert_eq!(standard(&many), Some(ms(1_483_228_889_000)));
}

#[test]
fn none_reads_nothing() {
    for name in ["retry-after", "retry-after-ms", "x-ms-retry-after-ms"] {
        assert_eq!(read(DelayHints::none(), &[(name, "7")]), None);
        assert!(standard(&[(name, "7")]).is_some());
    }
}

#[test]
fn standard_reads_no_vendor_headers() {
    for name in [
        "x-ratelimit-reset",
        "ratelimit-reset",
        "x-ratelimit-reset-after",
        "ratelimit",
    ] {
        assert_eq!(standard(&[(name, "7")]), None);
    }
}

#[test]
fn a_header_of_ones_own_comes_before_all_others() {
    let name = HeaderName::from_static("x-wait");
    let seconds = DelayHints::none().with_header(name.clone(), HintUnit::Seconds);
    let milliseconds = DelayHints::none().with_header(name.clone(), HintUnit::Milliseconds);
    for (value, in_seconds, in_milliseconds) in [
        ("7", Some(secs(7)), Some(ms(7))),
        ("0.5", Some(ms(500)), Some(ms(1))),
        ("Sun, 06 Nov 1994 08:51:07 GMT", Some(secs(90)), None),
        ("-7", None, None),
        ("", None, None),
    ] {
        let headers = [("date", DATE), ("x-wait", value)];
        assert_eq!(read(seconds.clone(), &headers), in_seconds, "{value}");
        assert_eq!(
            read(milliseconds.clone(), &headers),
            in_milliseconds,
            "{value}"
        );
    }
    let unix = (LATER_UNIX + 90).to_string();
    let headers = [("date", LATER_DATE), ("x-wait", &*unix)];
    assert_eq!(read(seconds.clone(), &headers), Some(secs(90)));
    assert_eq!(read(milliseconds, &headers), Some(ms(LATER_UNIX + 90)));

    // Without `standard`, no other header is read; with it, the own one wins, but never before `Retry-After`.
    let both = DelayHints::standard().with_header(name, HintUnit::Seconds);
    for (other, value, alone, together) in [
        ("retry-after-ms", "9000", secs(7), secs(7)),
        ("retry-after", "9", secs(7), secs(9)),
        ("retry-after", "3", secs(7), secs(7)),
    ] {
        let headers = [("x-wait", "7"), (other, value)];
        assert_eq!(read(seconds.clone(), &headers), Some(alone));
        assert_eq!(read(both.clone(), &headers), Some(together));
    }
    let unreadable = [("x-wait", "soon"), ("retry-after-ms", "9000")];
    assert_eq!(read(both, &unreadable), Some(secs(9)));
}

#[test]
fn of_several_own_headers_the_first_that_can_be_read_counts() {
    let hints = DelayHints::none()
        .with_header(HeaderName::from_static("x-one"), HintUnit::Seconds)
        .with_header(HeaderName::from_static("x-two"), HintUnit::Milliseconds);
    for (one, two, wait) in [
        ("1", "2", Some(secs(1))),
        ("soon", "2", Some(ms(2))),
        ("soon", "later", None),
    ] {
        assert_eq!(read(hints.clone(), &[("x-one", one), ("x-two", two)]), wait);
    }
}

/// A policy whose computed delays can't be mistaken for a hint.
fn policy(jitter: Jitter) -> RetryPolicy {
    let backoff = Backoff::exponential(ms(100), ms(100_000));
    RetryPolicy::new(backoff.with_jitter(jitter))
}

async fn run(policy: RetryPolicy, script: impl IntoIterator<Item = Answer>) -> Run {
    let origin = ScriptedOrigin::new(script);
    let retry = JitteredRetryMiddleware::new(policy).with_seed(1);
    let result = origin.client(retry).get(URL).send().await;
    Run {
        gaps: origin.gaps(),
        report: report(&result),
        body: result.unwrap().text().await.unwrap(),
    }
}

struct Run {
    gaps: Vec<Duration>,
    report: RetryReport,
    body: String,
}

impl Run {
    fn sources(&self) -> Vec<DelaySource> {
        self.report
            .history()
            .iter()
            .map(RetryEvent::source)
            .collect()
    }
}

fn hint(value: impl AsRef<[u8]>) -> Answer {
    status(503).header("retry-after", value)
}

#[tokio::test(start_paused = true)]
async fn a_hint_is_waited_verbatim_whatever_the_jitter() {
    for jitter in JITTERS {
        let script = [
            hint("7"),
            hint("0.503"),
            hint("Sun, 06 Nov 1994 08:51:07 GMT").header("date", DATE),
            status(429).header("retry-after-ms", "1"),
            status(200),
        ];
        let run = run(policy(jitter), script).await;
        assert_eq!(run.gaps, [secs(7), ms(503), secs(90), ms(1)]);
        assert_eq!(run.sources(), [DelaySource::Hint; 4]);
        assert_eq!(run.report.slept(), ms(97_504));
    }
}

#[tokio::test(start_paused = true)]
async fn a_malformed_hint_leaves_the_computed_delay_in_force() {
    for value in ["-1", "nan", "1m0s", "\u{665}", ""] {
        let run = run(policy(Jitter::None), [hint(value), status(200)]).await;
        assert_eq!(
            (&*run.gaps, &*run.sources()),
            (&[ms(100)][..], &[DelaySource::Computed][..])
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_hint_longer_than_max_retry_after_comes_back_at_once_and_readable() {
    let two_minutes = policy(Jitter::Full);
    let five_seconds = two_minutes.with_max_retry_after(secs(5));
    let zero = two_minutes.with_max_retry_after(ms(0));
    for (policy, value, too_long) in [
        (two_minutes, "120", None),
        (two_minutes, "120.001", Some(ms(120_001))),
        (two_minutes, "121", Some(secs(121))),
        (five_seconds, "5", None),
        (five_seconds, "5.0001", Some(ms(5001))),
        (zero, "0", None),
        (zero, "0.001", Some(ms(1))),
    ] {
        let started = Instant::now();
        let script = [hint(value).body("why"), status(200).body("fine")];
        let run = run(policy, script).await;
        let body = if too_long.is_some() { "why" } else { "fine" };
        let stop = too_long.map_or(StopReason::Accepted, |retry_after| {
            StopReason::RetryAfterTooLong { retry_after }
        });
        assert_eq!((run.report.stop(), &*run.body), (stop, body), "{value}");
        if too_long.is_some() {
            assert_eq!((run.report.attempts(), started.elapsed()), (1, ms(0)));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_hint_of_centuries_comes_back_at_once_and_readable() {
    for value in ["9999999999".to_owned(), "9".repeat(40)] {
        let started = Instant::now();
        let run = run(policy(Jitter::Full), [hint(&value).body("why")]).await;
        assert_eq!((&*run.body, started.elapsed()), ("why", ms(0)));
        match run.report.stop() {
            StopReason::RetryAfterTooLong { retry_after } => {
                assert!(retry_after > secs(200 * 365 * 86400), "{retry_after:?}");
            }
            stop => panic!("{value}: {stop:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_hint_that_does_not_fit_max_elapsed_comes_back_at_once() {
    for (value, attempts) in [("10", 2), ("10.001", 1)] {
        let started = Instant::now();
        let limited = policy(Jitter::Full).with_max_elapsed(secs(10));
        let run = run(limited, [hint(value).body("why"), status(200).body("fine")]).await;
        assert_eq!(run.report.attempts(), attempts);
        if attempts == 1 {
            assert_eq!(run.report.stop(), StopReason::ElapsedExhausted);
            assert_eq!((&*run.body, started.elapsed()), ("why", ms(0)));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn now_means_now_once_and_then_the_backoff() {
    let past = || hint("Sat, 05 Nov 1994 08:49:37 GMT").header("date", DATE);
    for now in [
        hint("0"),
        hint("0.0"),
        past(),
        status(503).header("retry-after-ms", "0"),
    ] {
        let run = run(policy(Jitter::None), [now]).await;
        assert_eq!(run.gaps, [0, 200, 400, 800].map(ms));
        assert_eq!(run.sources()[0], DelaySource::Hint);
        assert_eq!(run.sources()[1..], [DelaySource::Computed; 3]);
    }
}

#[tokio::test(start_paused = true)]
async fn another_answer_in_between_makes_now_mean_now_again() {
    for between in [status(503), hint("1"), hint("soon")] {
        let script = [hint("0"), between, hint("0"), hint("0"), status(200)];
        let run = run(policy(Jitter::None), script).await;
        assert_eq!(
            (run.gaps[0], run.gaps[2], run.gaps[3]),
            (ms(0), ms(0), ms(800))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_spread_is_added_to_hints_and_to_nothing_else() {
    let spread = policy(Jitter::None)
        .with_max_attempts(2_001)
        .with_hint_spread(ms(9));
    let run_of = |answer| run(spread, [answer]);
    let hinted = run_of(hint("2")).await;
    for extra in 0..=9 {
        assert!(hinted.gaps.contains(&ms(2000 + extra)), "{extra}");
    }
    assert!(
        hinted
            .gaps
            .iter()
            .all(|gap| (ms(2000)..=ms(2009)).contains(gap))
    );
    assert_eq!(hinted.report.slept(), hinted.gaps.iter().sum());

    let computed = run(spread.with_max_attempts(4), [status(503)]).await;
    assert_eq!(computed.gaps, [100, 200, 400].map(ms));
    // One that is exactly as long as allowed is still spread, beyond the limit if need be.
    let longest = run(spread.with_max_retry_after(secs(2)), [hint("2")]).await;
    assert_eq!(longest.report.stop(), StopReason::AttemptsExhausted);
}

#[tokio::test(start_paused = true)]
async fn a_fraction_of_a_millisecond_of_spread_and_an_endless_one_do_no_harm() {
    let small = policy(Jitter::None).with_hint_spread(Duration::from_nanos(1));
    let run_small = run(small.with_max_attempts(200), [hint("1")]).await;
    assert!(
        run_small
            .gaps
            .iter()
            .all(|gap| (ms(1000)..=ms(1001)).contains(gap))
    );
    let endless = small
        .with_hint_spread(Duration::MAX)
        .with_max_elapsed(secs(60));
    let run = run(endless, [hint("1")]).await;
    assert_eq!(run.report.stop(), StopReason::ElapsedExhausted);
}

#[tokio::test(start_paused = true)]
async fn hints_do_not_feed_what_decorrelated_jitter_grows_from() {
    let backoff = Backoff::exponential(ms(100), secs(1000)).with_jitter(Jitter::Decorrelated);
    let policy = RetryPolicy::new(backoff).with_max_attempts(4);
    for seed in 0..200 {
        let origin = ScriptedOrigin::new([hint("60"), status(503)]);
        let retry = JitteredRetryMiddleware::new(policy).with_seed(seed);
        origin.client(retry).get(URL).send().await.unwrap();
        let gaps = origin.gaps();
        assert_eq!(gaps[0], secs(60));
        assert_eq!(gaps[1..], backoff.delays(seed).take(2).collect::<Vec<_>>());
        assert!(gaps[1] <= ms(300));
    }
}

#[tokio::test(start_paused = true)]
async fn honouring_a_hint_does_not_reset_the_exponent() {
    let script = [
        status(503),
        hint("7"),
        status(503),
        hint("7"),
        status(503),
        status(200),
    ];
    let run = run(policy(Jitter::None).with_max_attempts(9), script).await;
    assert_eq!(run.gaps, [100, 7000, 400, 7000, 1600].map(ms));
}

#[tokio::test(start_paused = true)]
async fn a_hint_makes_no_answer_retryable() {
    for code in [200, 202, 301, 304, 400, 403, 404, 409, 413, 425, 501] {
        let origin = ScriptedOrigin::new([status(code).header("retry-after", "0")]);
        let client = origin.client(JitteredRetryMiddleware::default());
        let response = client.get(URL).send().await.unwrap();
        assert_eq!((response.status().as_u16(), origin.count()), (code, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_hint_is_read_on_every_response_that_is_retried() {
    for code in [200, 301, 404, 429, 500, 503, 599, 700] {
        let answer = status(code).header("retry-after", "7");
        let origin = ScriptedOrigin::new([answer, status(204)]);
        let classifier = classify_fn(|attempt| match attempt.number() {
            1 => Verdict::retry(Cause::Other("again"), Effect::None),
            _ => Verdict::Accept,
        });
        let retry = JitteredRetryMiddleware::new(fixed(secs(1))).with_classifier(classifier);
        origin.client(retry).get(URL).send().await.unwrap();
        assert_eq!(origin.gaps(), [secs(7)], "{code}");
    }
}

/// A wait in whole milliseconds, counted with integers that nothing here can overflow.
fn oracle(whole: u64, fraction: &str, date: u64) -> u128 {
    // In attoseconds, of which `fraction` has at most 18 digits.
    const SECOND: u128 = 1_000_000_000_000_000_000;
    let part: u128 = format!("{fraction:0<18}").parse().unwrap();
    let unit = match whole {
        ..=999_999_999 => return (u128::from(whole) * SECOND + part).div_ceil(SECOND / 1000),
        1_000_000_000..=99_999_999_999 => SECOND,
        100_000_000_000..=99_999_999_999_999 => SECOND / 1000,
        _ => SECOND / 1_000_000,
    };
    let scale = SECOND / unit;
    let then = u128::from(whole) * unit + part.div_ceil(scale);
    let wait = then.saturating_sub(u128::from(date) * SECOND);
    wait.div_ceil(SECOND / 1000)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_header_makes_the_reading_panic(
        values in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 3..=3),
        names in prop::collection::vec(0..5_usize, 3..=3),
    ) {
        const NAMES: [&str; 5] = ["retry-after", "retry-after-ms", "x-ms-retry-after-ms", "date", "age"];
        let headers: Vec<_> = names
            .iter()
            .zip(&values)
            .filter(|(_, value)| http::HeaderValue::from_bytes(value).is_ok())
            .map(|(name, value)| (NAMES[*name], value))
            .collect();
        standard(&headers);
    }

    #[test]
    fn nothing_that_looks_like_a_hint_makes_the_reading_panic(
        value in prop_oneof![
            "[0-9.,:+ A-Za-z-]{0,40}",
            "[0-9]{1,60}(\\.[0-9]{0,60})?",
            "(Sun|Mon)?,? [0-9]{1,2}[ -](Nov|Feb)[ -][0-9]{2,5} [0-9:]{5,9} GMT",
        ],
        date in "[0-9]{0,3}|Sun, 06 Nov 1994 08:[0-9]{2}:[0-9]{2} GMT",
    ) {
        dated(&date, &value);
        standard(&[("retry-after-ms", &*value), ("age", &*date)]);
    }

    #[test]
    fn numbers_are_read_as_an_exact_oracle_reads_them(
        digits in 1..=18_u32,
        number in any::<u64>(),
        fraction in "[0-9]{1,18}",
    ) {
        let whole = number % 10_u64.pow(digits);
        let wait = dated(LATER_DATE, &format!("{whole}.{fraction}")).unwrap();
        prop_assert_eq!(wait.as_millis(), oracle(whole, &fraction, LATER_UNIX));
        prop_assert_eq!(wait.subsec_nanos() % 1_000_000, 0);
    }

    #[test]
    fn milliseconds_are_read_as_an_exact_oracle_reads_them(whole in any::<u64>(), fraction in "[0-9]{1,18}") {
        let value = format!("{whole}.{fraction}");
        let part = u128::from(fraction.bytes().any(|digit| digit != b'0'));
        let expected = (u128::from(whole) + part).min(u128::from(u64::MAX));
        let wait = standard(&[("retry-after-ms", value)]).unwrap();
        prop_assert_eq!(wait.as_millis(), expected);
    }

    #[test]
    fn every_date_counts_from_every_other(then in 0..253_402_300_800_u64, date in 0..253_402_300_800_u64) {
        let at = |seconds| httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + secs(seconds));
        let wait = dated(&at(date), &at(then));
        prop_assert_eq!(wait, Some(secs(then.saturating_sub(date))));
    }
}
