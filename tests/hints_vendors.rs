//! Owns the rule of what vendors' own headers are worth: which wait each of them asks for, when it counts, which of
//! several does, and what a signal to stop or to go on changes.

mod support;

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use http::{HeaderName, Method};
use proptest::prelude::*;
use reqwest_jitter::{
    Backoff, Cause, DefaultClassifier, DelayHints, DelaySource, Effect, HintUnit,
    JitteredRetryMiddleware, RetryPolicy, RetryReport, StopReason, Verdict, classify_fn,
};
use support::{Answer, ScriptedOrigin, URL, status};

/// A delay that no header in this file names.
const COMPUTED: Duration = Duration::from_millis(777);

type Headers<'a> = [(&'static str, &'a str)];

fn answer(code: u16, headers: &Headers<'_>) -> Answer {
    headers.iter().fold(status(code), |answer, (name, value)| {
        answer.header(name, value)
    })
}

fn retry(hints: DelayHints) -> JitteredRetryMiddleware {
    let policy = RetryPolicy::new(Backoff::fixed(COMPUTED))
        .with_max_retry_after(Duration::from_secs(1 << 30));
    JitteredRetryMiddleware::new(policy)
        .with_hints(hints)
        // GitHub limits its rate with this one, too.
        .with_classifier(DefaultClassifier::new().with_status(403, Effect::None))
}

/// What is waited after such an answer, in milliseconds; none, if it is the computed delay.
async fn waited_with(hints: DelayHints, code: u16, headers: &Headers<'_>) -> Option<u64> {
    let origin = ScriptedOrigin::new([answer(code, headers), status(200)]);
    let response = origin.client(retry(hints)).get(URL).send().await.unwrap();
    let report = RetryReport::of(&response).unwrap();
    let event = &report.history()[0];
    assert_eq!(origin.gaps(), [event.delay()], "{headers:?}");
    match event.source() {
        DelaySource::Hint => Some(event.delay().as_millis().try_into().unwrap()),
        source => {
            assert_eq!((source, event.delay()), (DelaySource::Computed, COMPUTED));
            None
        }
    }
}

async fn waited(code: u16, headers: &Headers<'_>) -> Option<u64> {
    waited_with(DelayHints::vendors(), code, headers).await
}

/// Who sends it, with which status and headers, and the milliseconds that it asks for.
type Example = (&'static str, u16, &'static Headers<'static>, u64);

/// As the vendors document them, or as they were seen; with a `Date` where the wait depends on it.
const EXAMPLES: &[Example] = &[
    ("AWS", 500, &[("x-amz-retry-after", "500")], 500),
    ("gRPC", 503, &[("grpc-retry-pushback-ms", "1000")], 1000),
    ("gRPC: now", 503, &[("grpc-retry-pushback-ms", "0")], 0),
    (
        "gRPC: the largest",
        503,
        &[("grpc-retry-pushback-ms", "2147483647")],
        2_147_483_647,
    ),
    (
        "Cloudflare",
        429,
        &[
            ("ratelimit", r#""default";r=0;t=30"#),
            ("ratelimit-policy", r#""default";q=100;w=60"#),
        ],
        30_000,
    ),
    (
        "Hugging Face",
        429,
        &[
            ("ratelimit", r#""api";r=0;t=55"#),
            ("ratelimit-policy", r#""fixed window";"api";q=500;w=300"#),
        ],
        55_000,
    ),
    (
        "Atlassian, points",
        429,
        &[("beta-ratelimit", r#""tenant-app-quota";r=0;t=2788"#)],
        2_788_000,
    ),
    (
        "IETF draft 07",
        429,
        &[("ratelimit", "limit=10, remaining=0, reset=7")],
        7000,
    ),
    (
        "IETF drafts 03 to 06",
        429,
        &[
            ("ratelimit-limit", "100, 100;w=10"),
            ("ratelimit-remaining", "0"),
            ("ratelimit-reset", "50"),
        ],
        50_000,
    ),
    (
        "GitLab",
        429,
        &[
            ("date", "Tue, 05 Jan 2021 10:59:15 GMT"),
            ("ratelimit-remaining", "0"),
            ("ratelimit-reset", "1609844400"),
        ],
        45_000,
    ),
    (
        "GitLab, the date",
        429,
        &[
            ("date", "Tue, 05 Jan 2021 10:59:15 GMT"),
            ("ratelimit-resettime", "Tue, 05 Jan 2021 11:00:00 GMT"),
        ],
        45_000,
    ),
    (
        "GitHub",
        403,
        &[
            ("date", "Tue, 02 Aug 2016 21:22:43 GMT"),
            ("x-ratelimit-limit", "60"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "1470173023"),
        ],
        60_000,
    ),
    (
        "Discord, without what it needs no clock for",
        429,
        &[
            ("date", "Tue, 02 Aug 2016 21:22:43 GMT"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "1470173023.123"),
        ],
        60_123,
    ),
    (
        "Discord",
        429,
        &[
            ("date", "Tue, 02 Aug 2016 21:22:43 GMT"),
            ("x-ratelimit-limit", "10"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "1470173023.123"),
            ("x-ratelimit-reset-after", "64.57"),
        ],
        64_570,
    ),
    (
        "X",
        429,
        &[
            ("date", "Tue, 16 Jan 2024 15:45:00 GMT"),
            ("x-rate-limit-remaining", "0"),
            ("x-rate-limit-reset", "1705420800"),
        ],
        900_000,
    ),
    (
        "Reddit",
        429,
        &[
            ("x-ratelimit-remaining", "0.0"),
            ("x-ratelimit-used", "100"),
            ("x-ratelimit-reset", "598"),
        ],
        598_000,
    ),
    ("Helix", 429, &[("x-ratelimit-reset", "17")], 17_000),
    (
        "MailerLite",
        429,
        &[("x-ratelimit-retry-after", "12")],
        12_000,
    ),
    (
        "OpenAI, requests",
        429,
        &[
            ("x-ratelimit-remaining-requests", "0"),
            ("x-ratelimit-reset-requests", "1s"),
        ],
        1000,
    ),
    (
        "OpenAI, tokens",
        429,
        &[
            ("x-ratelimit-remaining-tokens", "0"),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ],
        360_000,
    ),
    (
        "OpenAI, by usage",
        429,
        &[
            ("x-ratelimit-remaining-tokens_usage_based", "0"),
            ("x-ratelimit-reset-tokens_usage_based", "12ms"),
        ],
        12,
    ),
    (
        "Azure OpenAI",
        429,
        &[
            ("x-ratelimit-remaining-tokens", "0"),
            ("x-ratelimit-reset-tokens", "26"),
        ],
        26_000,
    ),
    (
        "Anthropic, requests",
        429,
        &[
            ("date", "Sat, 25 Oct 2025 11:59:18 GMT"),
            ("anthropic-ratelimit-requests-remaining", "0"),
            ("anthropic-ratelimit-requests-reset", "2025-10-25T12:00:00Z"),
        ],
        42_000,
    ),
    (
        "Anthropic, tokens",
        429,
        &[
            ("date", "Sat, 25 Oct 2025 11:59:18 GMT"),
            ("anthropic-ratelimit-tokens-remaining", "0"),
            ("anthropic-ratelimit-tokens-reset", "2025-10-25T12:00:00Z"),
        ],
        42_000,
    ),
    (
        "Anthropic, tokens in",
        429,
        &[
            ("date", "Sat, 25 Oct 2025 11:59:18 GMT"),
            ("anthropic-ratelimit-input-tokens-remaining", "0"),
            (
                "anthropic-ratelimit-input-tokens-reset",
                "2025-10-25T12:00:00Z",
            ),
        ],
        42_000,
    ),
    (
        "Anthropic, tokens out",
        429,
        &[
            ("date", "Sat, 25 Oct 2025 11:59:18 GMT"),
            ("anthropic-ratelimit-output-tokens-remaining", "0"),
            (
                "anthropic-ratelimit-output-tokens-reset",
                "2025-10-25T12:00:00Z",
            ),
        ],
        42_000,
    ),
    (
        "Anthropic, subscriptions",
        429,
        &[
            ("date", "Fri, 20 Feb 2026 00:59:00 GMT"),
            ("anthropic-ratelimit-unified-status", "rejected"),
            ("anthropic-ratelimit-unified-reset", "1771549200"),
        ],
        60_000,
    ),
    (
        "Jira",
        429,
        &[
            ("date", "Thu, 26 Mar 2026 15:58:30 GMT"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "2026-03-26T16:00Z"),
        ],
        90_000,
    ),
    (
        "Jira, announced",
        429,
        &[
            ("date", "Thu, 26 Mar 2026 15:58:30 GMT"),
            ("x-beta-ratelimit-reset", "2026-03-26T16:00Z"),
        ],
        90_000,
    ),
];

#[tokio::test(start_paused = true)]
async fn every_vendor_gets_the_wait_that_it_documents() {
    for (vendor, code, headers, wait) in EXAMPLES {
        assert_eq!(waited(*code, headers).await, Some(*wait), "{vendor}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_standard_hints_know_no_vendor() {
    for (vendor, code, headers, _) in EXAMPLES {
        let wait = waited_with(DelayHints::standard(), *code, headers).await;
        assert_eq!(wait, None, "{vendor}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_malformed_is_no_hint() {
    /// Unreadable in every header.
    const NOWHERE: &[&str] = &[
        "",
        "-1",
        "+5",
        "nan",
        "inf",
        "1e3",
        "five",
        "\u{664}",
        "5,5",
        "0",
        // Like Go durations, but not quite: no unit, no number, days, a space, a sign, a tail.
        "s",
        "1s2",
        "1d",
        "1 s",
        "-1s",
        "+1s",
        ".5s",
        "1.s",
        "1.2.3s",
        "1s junk",
        "1S",
        "0s",
        // Like RFC 3339, but not quite.
        "2099-01-01",
        "2099-01-01T00:00:00",
        "2099-01-01 00:00:00Z",
        "2099-1-1T00:00:00Z",
        "2099-01-01T0:00:00Z",
        "2099-13-01T00:00:00Z",
        "2099-00-01T00:00:00Z",
        "2099-01-00T00:00:00Z",
        "2099-01-32T00:00:00Z",
        "2099-02-29T00:00:00Z",
        "2100-02-29T00:00:00Z",
        "2099-04-31T00:00:00Z",
        "2099-01-01T24:00:00Z",
        "2099-01-01T00:60:00Z",
        "2099-01-01T00:00:61Z",
        "2099-01-01T00:00:00.Z",
        "2099-01-01T00:00:0.5Z",
        "2099-01-01T00:00:00:00Z",
        "2099-01-01T00Z",
        "2099-01-01T00:00:00+0100",
        "2099-01-01T00:00:00+24:00",
        "2099-01-01T00:00:00+01:00:00",
        "2099-01-01T00:00:00+",
        "+2099-01-01T00:00:00Z",
        "12099-01-01T00:00:00Z",
        "2099-01-01-01T00:00:00Z",
        "T",
        "TZ",
        // What JavaScript prints, as Lemlist sends it.
        "Tue Feb 16 2099 09:02:42 GMT+0100 (Central European Standard Time)",
    ];
    for (name, _) in RESETS {
        for value in NOWHERE {
            assert_eq!(waited(429, &[(name, value)]).await, None, "{name}: {value}");
        }
    }
    for value in [
        "",
        "0",
        "30",
        "\"default\"",
        r#""default";r=0"#,
        r#""default";t=30"#,
        r#""default";r=0;t=0"#,
        r#""default";r=0;t=-30"#,
        r#""default";r=0;t=30.5"#,
        r#""default";r=0;t="30""#,
        r#""default";r=0;t"#,
        r#""default";r=0;t="#,
        r#""default";r=0;T=30"#,
        r#""default";r =0;t=30"#,
        r#""default";r=-1;t=30"#,
        r#""default";r=x;t=30"#,
        r#""default";r=0.0;t=30"#,
        r#""default;r=0;t=30"#,
        r#""de\"fault;r=0;t=30"#,
        r#""a;r=0;t=30, "b";r=0;t=30"#,
        ";r=0;t=30",
        "r=0;t=30",
        "r=0, t=30",
        "remaining=0",
        "reset=30",
        "remaining=0, reset=-30",
        "remaining=0, reset=30.5",
        "remaining=0; reset=30",
        "limit=10, remaining=x, reset=30",
        // The last of several counts, and it can't be read.
        r#""default";r=0;t=30;t=x"#,
        r#""default";r=0;t=30;r=x"#,
        "remaining=0, reset=30, reset=x",
    ] {
        for name in ["ratelimit", "beta-ratelimit"] {
            assert_eq!(waited(429, &[(name, value)]).await, None, "{name}: {value}");
        }
    }
    for value in ["", "-1", "+5", "1s", "nan", "Sun, 06 Nov 2094 08:49:37 GMT"] {
        let wait = waited(429, &[("x-amz-retry-after", value)]).await;
        assert_eq!(wait, None, "x-amz-retry-after: {value}");
    }
}

/// Each header that names a time, and the one that says what is left.
const RESETS: &[(&str, &str)] = &[
    ("x-ratelimit-reset-after", "x-ratelimit-remaining"),
    ("x-ratelimit-reset", "x-ratelimit-remaining"),
    ("x-rate-limit-reset", "x-rate-limit-remaining"),
    ("ratelimit-reset", "ratelimit-remaining"),
    ("ratelimit-resettime", "ratelimit-remaining"),
    (
        "x-ratelimit-reset-requests",
        "x-ratelimit-remaining-requests",
    ),
    ("x-ratelimit-reset-tokens", "x-ratelimit-remaining-tokens"),
    (
        "x-ratelimit-reset-tokens_usage_based",
        "x-ratelimit-remaining-tokens_usage_based",
    ),
    (
        "anthropic-ratelimit-requests-reset",
        "anthropic-ratelimit-requests-remaining",
    ),
    (
        "anthropic-ratelimit-tokens-reset",
        "anthropic-ratelimit-tokens-remaining",
    ),
    (
        "anthropic-ratelimit-input-tokens-reset",
        "anthropic-ratelimit-input-tokens-remaining",
    ),
    (
        "anthropic-ratelimit-output-tokens-reset",
        "anthropic-ratelimit-output-tokens-remaining",
    ),
    (
        "anthropic-ratelimit-unified-reset",
        "anthropic-ratelimit-unified-status",
    ),
    ("x-beta-ratelimit-reset", "x-beta-ratelimit-remaining"),
];

#[tokio::test(start_paused = true)]
async fn a_reset_time_counts_only_where_nothing_is_left() {
    for (reset, left) in RESETS {
        let of = async |code, value| {
            let headers = [(*reset, "9"), (*left, value)];
            waited(code, &headers).await
        };
        // A limit that is only announced has nothing to do with other failures.
        let on_503 = (*reset != "x-beta-ratelimit-reset").then_some(9000);
        for nothing in ["0", "0.0", "00", "0.9", "5, 0", "0, 5", "rejected"] {
            assert_eq!(of(429, nothing).await, Some(9000), "{left}: {nothing}");
            assert_eq!(of(503, nothing).await, on_503, "{left}: {nothing}");
        }
        for something in ["1", "1.0", "57", "allowed", "allowed_warning"] {
            assert_eq!(of(429, something).await, None, "{left}: {something}");
            assert_eq!(of(503, something).await, None, "{left}: {something}");
        }
        // Azure's -1 says that it does not know.
        for unknown in ["", "-1", "none"] {
            assert_eq!(of(429, unknown).await, Some(9000), "{left}: {unknown}");
            assert_eq!(of(503, unknown).await, None, "{left}: {unknown}");
        }
        assert_eq!(waited(429, &[(reset, "9")]).await, Some(9000), "{reset}");
        assert_eq!(waited(503, &[(reset, "9")]).await, None, "{reset}");
    }
    // Azure again: a placeholder for a wait, too.
    let headers = [
        ("x-ratelimit-remaining-tokens", "-1"),
        ("x-ratelimit-reset-tokens", "0"),
    ];
    assert_eq!(waited(429, &headers).await, None);
}

#[tokio::test(start_paused = true)]
async fn of_several_quotas_the_longest_with_nothing_left_counts() {
    const CASES: &[(&Headers<'static>, Option<u64>)] = &[
        (
            &[
                ("x-ratelimit-remaining-requests", "0"),
                ("x-ratelimit-reset-requests", "8.64s"),
                ("x-ratelimit-remaining-tokens", "0"),
                ("x-ratelimit-reset-tokens", "6m0s"),
            ],
            Some(360_000),
        ),
        (
            &[
                ("x-ratelimit-remaining-requests", "0"),
                ("x-ratelimit-reset-requests", "8.64s"),
                ("x-ratelimit-remaining-tokens", "149984"),
                ("x-ratelimit-reset-tokens", "6m0s"),
            ],
            Some(8640),
        ),
        (
            &[
                ("x-ratelimit-remaining-requests", "9"),
                ("x-ratelimit-reset-requests", "8.64s"),
                ("x-ratelimit-remaining-tokens", "149984"),
                ("x-ratelimit-reset-tokens", "6m0s"),
            ],
            None,
        ),
        // One that is known to be used up outweighs one that may be.
        (
            &[
                ("x-ratelimit-remaining-requests", "0"),
                ("x-ratelimit-reset-requests", "8.64s"),
                ("x-ratelimit-reset-tokens", "6m0s"),
            ],
            Some(8640),
        ),
        (
            &[
                ("x-ratelimit-reset-requests", "8.64s"),
                ("x-ratelimit-reset-tokens", "6m0s"),
            ],
            Some(360_000),
        ),
        // Several values of one header, on lines of their own or joined by a proxy.
        (
            &[
                ("x-ratelimit-reset", "3"),
                ("x-ratelimit-reset", "x"),
                ("x-ratelimit-reset", "7"),
            ],
            Some(7000),
        ),
        (&[("x-ratelimit-reset", "3, x, 7")], Some(7000)),
        (
            &[("ratelimit", r#""burst";r=0;t=3, "daily";r=0;t=70"#)],
            Some(70_000),
        ),
        (
            &[("ratelimit", r#""burst";r=0;t=3, "daily";r=8;t=70"#)],
            Some(3000),
        ),
        (
            &[("ratelimit", r#""burst";r=1;t=3, "daily";r=8;t=70"#)],
            None,
        ),
        (
            &[
                ("ratelimit", r#""burst";r=0;t=3"#),
                ("ratelimit", r#""daily";r=0;t=70"#),
            ],
            Some(70_000),
        ),
        (
            &[
                ("ratelimit", "limit=10, remaining=0"),
                ("ratelimit", "reset=7"),
            ],
            Some(7000),
        ),
        (&[("ratelimit", "limit=10, remaining=1, reset=7")], None),
        // Only the bad member is lost.
        (&[("ratelimit", r#";;, "b";r=0;t=3, ?"#)], Some(3000)),
    ];
    for (headers, wait) in CASES {
        assert_eq!(waited(429, headers).await, *wait, "{headers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_field_is_read_as_a_structured_field() {
    for value in [
        r#""default";r=0;t=30"#,
        r#"  "default" ; r=0 ; t=30  "#,
        r#""default";t=30;r=0"#,
        r#""default";r=0;t=030"#,
        r#""default";q=100;r=0;pk=:AbC+/w==:;qu="content-bytes";t=30;flag"#,
        // Separators and escapes within a string are none.
        r#""a,b;r=9;t=99";r=0;t=30"#,
        r#""a\",\\";r=0;t=30"#,
        r#""a=b";r=0;t=30"#,
        r#""remaining=9";r=0;t=30;c=",";d=";t=99""#,
        // A name without quotes, as some servers have it.
        "default;r=0;t=30",
        // The last of several values counts.
        r#""default";r=5;t=99;r=0;t=30"#,
        "limit=10,remaining=0,reset=30",
        "limit=10;w=60, remaining=0;x=1, reset=30;y=2",
        "remaining=4, reset=99, remaining=0, reset=30",
    ] {
        let wait = waited(503, &[("ratelimit", value)]).await;
        assert_eq!(wait, Some(30_000), "{value}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_only_announced_counts_only_where_something_was_limited() {
    let headers = [("beta-ratelimit", r#""tenant";r=0;t=2788"#)];
    assert_eq!(waited(429, &headers).await, Some(2_788_000));
    assert_eq!(waited(503, &headers).await, None);
}

#[tokio::test(start_paused = true)]
async fn go_durations_are_read_in_all_their_units() {
    for (value, wait) in [
        ("1s", 1000),
        ("6m0s", 360_000),
        ("12ms", 12),
        ("1h2m3.5s", 3_723_500),
        ("8.64s", 8640),
        ("2m59.56s", 179_560),
        ("1h0m0s", 3_600_000),
        // Rounded up to the timer's resolution.
        ("1ns", 1),
        ("1500us", 2),
        ("1500\u{b5}s", 2),
        ("1500\u{3bc}s", 2),
        ("1ms1ns", 2),
        ("1.0000000001ms", 2),
        ("0.0000000000001s", 1),
        ("0h0m0.5s", 500),
    ] {
        let wait = Some(wait);
        assert_eq!(
            waited(429, &[("x-ratelimit-reset-tokens", value)]).await,
            wait
        );
    }
}

#[tokio::test(start_paused = true)]
async fn dates_are_read_with_offsets_fractions_and_without_seconds() {
    for (value, wait) in [
        ("2024-02-29T12:00:00Z", 60_000),
        ("2024-02-29t12:00:00z", 60_000),
        ("2024-02-29T12:00Z", 60_000),
        ("2024-02-29T14:00+02:00", 60_000),
        ("2024-02-29T14:00:00+02:00", 60_000),
        ("2024-02-29T07:30:00-04:30", 60_000),
        ("2024-03-01T00:30:00+12:30", 60_000),
        ("2024-02-29T12:00:00-00:00", 60_000),
        ("2024-02-29T12:00:00.0Z", 60_000),
        ("2024-02-29T12:00:00.0001Z", 60_001),
        ("2024-02-29T12:00:00.123456789123Z", 60_124),
        // A second of 60 is the one after 59.
        ("2024-02-29T11:59:60Z", 60_000),
        ("2024-03-01T11:59:00Z", 86_400_000),
        // The number rule: Unix times in seconds, milliseconds and microseconds.
        ("1709208000", 60_000),
        ("1709208000.5", 60_500),
        ("1709208000000", 60_000),
        ("1709208000000000", 60_000),
        ("1709208000000001", 60_001),
        ("Thu, 29 Feb 2024 12:00:00 GMT", 60_000),
        ("Thursday, 29-Feb-24 12:00:00 GMT", 60_000),
        ("Thu Feb 29 12:00:00 2024", 60_000),
    ] {
        for (name, _) in RESETS {
            let headers = [("date", "Thu, 29 Feb 2024 11:59:00 GMT"), (*name, value)];
            assert_eq!(waited(429, &headers).await, Some(wait), "{name}: {value}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_reset_time_that_has_passed_is_no_hint() {
    for value in [
        "2024-02-29T11:59:00Z",
        "2024-02-29T11:58Z",
        "1970-01-01T00:00:00Z",
        "1970-01-01T00:00:00+23:59",
        "1969-12-31T23:59:59Z",
        "0000-01-01T00:00:00Z",
        "1709207940",
        "1709207940000",
        "1000000000",
        "Thu, 29 Feb 2024 11:59:00 GMT",
    ] {
        for (name, _) in RESETS {
            let headers = [("date", "Thu, 29 Feb 2024 11:59:00 GMT"), (*name, value)];
            assert_eq!(waited(429, &headers).await, None, "{name}: {value}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_reset_time_is_compared_with_the_local_clock_where_the_response_has_no_own() {
    let now = SystemTime::now();
    let reset = (now + Duration::from_secs(3600))
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs()
        .to_string();
    let old = "Sat, 31 Dec 2016 23:59:59 GMT";
    let cases: [&Headers<'_>; 3] = [
        &[("x-ratelimit-reset", &reset)],
        &[("x-ratelimit-reset", &reset), ("date", "yesterday")],
        // Out of a cache, its date is as old as it is.
        &[("x-ratelimit-reset", &reset), ("date", old), ("age", "5")],
    ];
    for headers in cases {
        let wait = waited(429, headers).await.unwrap();
        assert!(
            (3_590_000..=3_600_000).contains(&wait),
            "{headers:?}: {wait}"
        );
    }
    let headers = [
        ("x-ratelimit-reset", reset.as_str()),
        ("date", old),
        ("age", "0"),
    ];
    assert!(waited(429, &headers).await.unwrap() > 100_000_000_000);
}

#[tokio::test(start_paused = true)]
async fn a_cached_response_says_nothing_in_seconds() {
    for (name, value) in [
        ("ratelimit", r#""default";r=0;t=30"#),
        ("ratelimit", "remaining=0, reset=30"),
        ("beta-ratelimit", r#""default";r=0;t=30"#),
        ("ratelimit-reset", "30"),
        ("x-ratelimit-reset", "30"),
        ("x-ratelimit-reset-after", "30"),
        ("x-ratelimit-reset-tokens", "30s"),
    ] {
        assert_eq!(waited(429, &[(name, value), ("age", "5")]).await, None);
        let fresh = waited(429, &[(name, value), ("age", "0")]).await;
        assert_eq!(fresh, Some(30_000), "{name}: {value}");
    }
}

/// A header, and its value that asks for so many seconds.
type Asking = (&'static str, fn(u64) -> String);

/// From the strongest to the weakest.
const PRECEDENCE: &[Asking] = &[
    ("x-own", |seconds| format!("{seconds}000")),
    ("retry-after-ms", |seconds| format!("{seconds}000")),
    ("x-ms-retry-after-ms", |seconds| format!("{seconds}000")),
    ("x-amz-retry-after", |seconds| format!("{seconds}000")),
    ("grpc-retry-pushback-ms", |seconds| format!("{seconds}000")),
    ("retry-after", |seconds| seconds.to_string()),
    ("ratelimit", |seconds| format!(r#""a";r=0;t={seconds}"#)),
    ("beta-ratelimit", |seconds| {
        format!(r#""a";r=0;t={seconds}"#)
    }),
    ("x-ratelimit-retry-after", |seconds| seconds.to_string()),
    ("x-ratelimit-reset-after", |seconds| seconds.to_string()),
    ("x-ratelimit-reset", |seconds| seconds.to_string()),
    ("x-beta-ratelimit-reset", |seconds| seconds.to_string()),
];

#[tokio::test(start_paused = true)]
async fn conflicts_follow_the_precedence_but_never_undercut_retry_after() {
    let own = HeaderName::from_static("x-own");
    let hints = DelayHints::vendors().with_header(own, HintUnit::Milliseconds);
    for (rank, (strong, stronger)) in PRECEDENCE.iter().enumerate() {
        for (weak, weaker) in &PRECEDENCE[rank + 1..] {
            for (first, second) in [(3, 5), (5, 3)] {
                let (one, other) = (stronger(first), weaker(second));
                let headers = [(*strong, one.as_str()), (*weak, other.as_str())];
                let wait = waited_with(hints.clone(), 429, &headers).await;
                let expected = if *weak == "retry-after" {
                    first.max(second)
                } else {
                    first
                };
                assert_eq!(wait, Some(expected * 1000), "{headers:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn discord_is_waited_for_as_long_as_retry_after_says() {
    // A limit that all users of a resource share: what is left of one's own has no part in it.
    let shared = [
        ("retry-after", "1337"),
        ("x-ratelimit-limit", "10"),
        ("x-ratelimit-remaining", "9"),
        ("x-ratelimit-reset", "1470173023.123"),
        ("x-ratelimit-reset-after", "64.57"),
        ("x-ratelimit-scope", "shared"),
    ];
    assert_eq!(waited(429, &shared).await, Some(1_337_000));
    assert_eq!(waited(429, &shared[1..]).await, None);
    let user = [
        ("retry-after", "65"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset-after", "64.57"),
        ("x-ratelimit-scope", "user"),
    ];
    assert_eq!(waited(429, &user).await, Some(65_000));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_makes_no_sense_is_too_long() {
    const CASES: &[(&str, &str)] = &[
        // Prisjakt counts in milliseconds, which nothing tells from a week in seconds.
        ("x-rate-limit-reset", "600000"),
        ("x-rate-limit-reset", "999999999999999999999999999999"),
        ("x-ratelimit-reset-tokens", "99999999999999999999999h"),
        ("x-ratelimit-reset-tokens", "18446744073709551615h59m"),
        ("x-ratelimit-reset", "9999-12-31T23:59:60.999-23:59"),
        ("ratelimit", r#""a";r=0;t=99999999999999999999999"#),
        ("x-amz-retry-after", "99999999999999999999999"),
        ("grpc-retry-pushback-ms", "2147483647"),
    ];
    for (name, value) in CASES {
        let origin = ScriptedOrigin::new([answer(429, &[(name, value)])]);
        let retry = JitteredRetryMiddleware::default().with_hints(DelayHints::vendors());
        let response = origin.client(retry).get(URL).send().await.unwrap();
        let stop = RetryReport::of(&response).unwrap().stop();
        assert!(
            matches!(stop, StopReason::RetryAfterTooLong { retry_after } if retry_after >= Duration::from_secs(600_000)),
            "{name}: {value}: {stop:?}"
        );
        assert_eq!(origin.count(), 1);
    }
}

/// How often a request is sent, and why no longer.
async fn sent(
    retry: &JitteredRetryMiddleware,
    method: Method,
    answer: Answer,
) -> (usize, Option<StopReason>, Option<Cause>) {
    let origin = ScriptedOrigin::new([answer, status(200)]);
    let client = origin.client(retry.clone());
    let response = client.request(method, URL).send().await.unwrap();
    let report = RetryReport::of(&response);
    (
        origin.count(),
        report.map(RetryReport::stop),
        report.and_then(RetryReport::last_cause),
    )
}

#[tokio::test(start_paused = true)]
async fn a_signal_to_stop_makes_any_answer_final() {
    const STOPS: &[&Headers<'static>] = &[
        &[("x-should-retry", "false")],
        &[("x-should-retry", "False")],
        &[("stripe-should-retry", "false")],
        &[("grpc-retry-pushback-ms", "-1")],
        &[("grpc-retry-pushback-ms", "-2147483648")],
        &[("grpc-retry-pushback-ms", "")],
        &[("grpc-retry-pushback-ms", "soon")],
        &[("grpc-retry-pushback-ms", "+5")],
        &[("grpc-retry-pushback-ms", "1.5")],
        &[("grpc-retry-pushback-ms", "2147483648")],
        &[("grpc-retry-pushback-ms", "100, 200")],
        &[
            ("grpc-retry-pushback-ms", "100"),
            ("grpc-retry-pushback-ms", "200"),
        ],
        &[("retry-after", "1"), ("x-should-retry", "false")],
        &[("x-should-retry", "true"), ("x-should-retry", "false")],
        &[("x-should-retry", "true, false")],
        &[("x-should-retry", "true"), ("stripe-should-retry", "false")],
        &[("x-should-retry", "false"), ("stripe-should-retry", "true")],
        &[
            ("stripe-should-retry", "true"),
            ("grpc-retry-pushback-ms", "-1"),
        ],
    ];
    let vendors = retry(DelayHints::vendors());
    let standard = retry(DelayHints::standard());
    for headers in STOPS {
        // By default, by a classifier's word, and because of a hint.
        for code in [429, 500, 503, 403] {
            let (count, stop, _) = sent(&vendors, Method::GET, answer(code, headers)).await;
            assert_eq!(
                (count, stop),
                (1, Some(StopReason::Rejected)),
                "{headers:?}"
            );
            let (count, ..) = sent(&standard, Method::GET, answer(code, headers)).await;
            assert_eq!(count, 2, "{headers:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_signal_to_go_on_makes_a_final_answer_retryable() {
    let vendors = retry(DelayHints::vendors());
    let standard = retry(DelayHints::standard());
    for name in ["x-should-retry", "stripe-should-retry"] {
        for code in [400, 404, 409, 425, 501, 511] {
            let answer = status(code).header(name, "true");
            let (count, _, cause) = sent(&vendors, Method::GET, answer.clone()).await;
            assert_eq!((count, cause), (2, Some(Cause::Other("should_retry"))));
            // The server wants it, but has not said that it did nothing.
            let (count, stop, _) = sent(&vendors, Method::POST, answer.clone()).await;
            assert_eq!(
                (count, stop),
                (1, Some(StopReason::NotReplayable)),
                "{code}"
            );
            let (count, stop, _) = sent(&standard, Method::GET, answer).await;
            assert_eq!((count, stop), (1, Some(StopReason::Rejected)), "{code}");
        }
        // What is retried anyway is what it was: a 429 has had no effect.
        let answer = status(429).header(name, "true");
        let (count, _, cause) = sent(&vendors, Method::POST, answer).await;
        assert_eq!((count, cause), (2, Some(Cause::Throttled)));
    }
    for value in ["", "yes", "1", "truely", "true;x"] {
        let answer = status(409).header("x-should-retry", value);
        let (count, ..) = sent(&vendors, Method::GET, answer).await;
        assert_eq!(count, 1, "{value}");
        let answer = status(429).header("x-should-retry", value);
        let (count, ..) = sent(&vendors, Method::GET, answer).await;
        assert_eq!(count, 2, "{value}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_success_is_accepted_whatever_the_signals_say() {
    let vendors = retry(DelayHints::vendors());
    for code in [200, 204, 304] {
        for value in ["true", "false"] {
            let answer = status(code).header("x-should-retry", value);
            let (count, stop, _) = sent(&vendors, Method::GET, answer).await;
            // No report at all: it was accepted at the first send.
            assert_eq!((count, stop), (1, None), "{code} {value}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_that_was_made_final_stays_final() {
    let classifier = DefaultClassifier::new()
        .without_status(409)
        .without_status(503);
    let vendors = retry(DelayHints::vendors()).with_classifier(classifier);
    for code in [409, 503] {
        let answer = status(code).header("x-should-retry", "true");
        let (count, stop, _) = sent(&vendors, Method::GET, answer).await;
        assert_eq!((count, stop), (1, Some(StopReason::Rejected)), "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_goes_on_is_waited_for_as_it_asks() {
    let headers = [("x-should-retry", "true"), ("retry-after-ms", "1500")];
    assert_eq!(waited(409, &headers).await, Some(1500));
}

#[tokio::test(start_paused = true)]
async fn a_quota_does_not_say_that_a_write_was_turned_away() {
    let vendors = retry(DelayHints::vendors());
    // It is sent with answers of all kinds, and after the last request that it allows it reads zero.
    let quotas: [&Headers<'_>; 3] = [
        &[("ratelimit", r#""default";r=0;t=1"#)],
        &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1")],
        &[
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset-after", "1"),
        ],
    ];
    for headers in quotas {
        assert_eq!(waited(503, headers).await, Some(1000), "{headers:?}");
        let (count, stop, _) = sent(&vendors, Method::POST, answer(503, headers)).await;
        assert_eq!((count, stop), (1, Some(StopReason::NotReplayable)));
    }
    for name in [
        "retry-after",
        "retry-after-ms",
        "x-amz-retry-after",
        "grpc-retry-pushback-ms",
    ] {
        let (count, ..) = sent(&vendors, Method::POST, answer(503, &[(name, "1")])).await;
        assert_eq!(count, 2, "{name}");
    }
}

/// What a classifier of one's own is told.
fn told<V: AsRef<[u8]>>(
    hints: DelayHints,
    headers: &[(&'static str, V)],
) -> (Option<Duration>, Option<bool>) {
    let seen = Arc::new(Mutex::new(None));
    let slot = Arc::clone(&seen);
    let answer = headers.iter().fold(status(429), |answer, (name, value)| {
        answer.header(name, value)
    });
    let classifier = classify_fn(move |attempt| {
        *slot.lock().unwrap() = Some((attempt.hint(), attempt.should_retry()));
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

#[test]
fn a_classifier_sees_the_signal() {
    let go = [("x-should-retry", "true")];
    let stop = [("stripe-should-retry", "false")];
    let pushback = [("grpc-retry-pushback-ms", "7")];
    let wait = Some(Duration::from_millis(7));
    assert_eq!(told(DelayHints::vendors(), &go), (None, Some(true)));
    assert_eq!(told(DelayHints::vendors(), &stop), (None, Some(false)));
    // A wait is not a wish: whether it is worth it, the status says.
    assert_eq!(told(DelayHints::vendors(), &pushback), (wait, None));
    for hints in [DelayHints::standard(), DelayHints::none()] {
        for headers in [go, stop, pushback] {
            assert_eq!(told(hints.clone(), &headers), (None, None));
        }
    }
}

/// All that are read, and two that others depend on.
fn any_header() -> impl Strategy<Value = &'static str> {
    let resets = RESETS.iter().flat_map(|(reset, left)| [*reset, *left]);
    let others = [
        "retry-after-ms",
        "x-ms-retry-after-ms",
        "x-amz-retry-after",
        "grpc-retry-pushback-ms",
        "x-should-retry",
        "stripe-should-retry",
        "ratelimit",
        "beta-ratelimit",
        "x-ratelimit-retry-after",
        "date",
    ];
    prop::sample::select(resets.chain(others).collect::<Vec<_>>())
}

/// Any bytes that HTTP lets through, and what looks more like a value than those ever will.
fn any_value() -> impl Strategy<Value = Vec<u8>> {
    let byte = any::<u8>().prop_filter("HTTP forbids it", |byte| *byte >= b' ' && *byte != 0x7f);
    let piece = prop::sample::select(vec![
        "0",
        "9",
        "00",
        "17",
        "999999999",
        "1000000000",
        "1709208000",
        "18446744073709551616",
        ".",
        "-",
        "+",
        ":",
        "T",
        "Z",
        "h",
        "m",
        "s",
        "ms",
        "\u{b5}s",
        "\"",
        "\\",
        ";r=",
        ";t=",
        "=",
        "remaining=",
        "reset=",
        ", ",
        ",",
        ";",
        " ",
        "2024-02-29",
        "9999-12-31",
        "23:59:60",
        "true",
        "false",
        "Thu, 29 Feb 2024 12:00:00 GMT",
        "\u{664}",
    ]);
    prop_oneof![
        (0_u64..1_000_000).prop_map(|number| number.to_string().into_bytes()),
        prop::collection::vec(byte, 0..40),
        prop::collection::vec(piece, 0..10).prop_map(|pieces| pieces.concat().into_bytes()),
    ]
}

proptest! {
    #[test]
    fn nothing_that_a_server_sends_panics_or_undercuts_retry_after(
        headers in prop::collection::vec((any_header(), any_value()), 0..12),
        retry_after in prop::option::of(0_u64..1_000_000),
    ) {
        let mut headers = headers;
        headers.extend(retry_after.map(|seconds| ("retry-after", seconds.to_string().into_bytes())));
        let (wait, _) = told(DelayHints::vendors(), &headers);
        prop_assert!(wait >= retry_after.map(Duration::from_secs));
    }

    #[test]
    fn dates_mean_what_the_calendar_of_another_crate_says(
        // 9999 ends with 253402300799.
        then in 86_401_u64..253_402_214_400,
        ahead in 1_u64..86_400,
        offset in -1439_i64..=1439,
    ) {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let local = httpdate::fmt_http_date(at(then.checked_add_signed(offset * 60).unwrap()));
        let [_, day, month, year, time, _] = local.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{local}");
        };
        let names = "JanFebMarAprMayJunJulAugSepOctNovDec";
        let month = names.find(month).unwrap() / 3 + 1;
        let sign = if offset < 0 { '-' } else { '+' };
        let (hours, minutes) = (offset.abs() / 60, offset.abs() % 60);
        let reset = format!("{year}-{month:02}-{day}T{time}{sign}{hours:02}:{minutes:02}");
        let headers = [
            ("date", httpdate::fmt_http_date(at(then - ahead))),
            ("x-ratelimit-reset", reset),
        ];
        let (wait, _) = told(DelayHints::vendors(), &headers);
        prop_assert_eq!(wait, Some(Duration::from_secs(ahead)), "{:?}", headers);
    }
}
