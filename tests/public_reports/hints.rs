//! Reports about what a server says of when to come back.

use std::process::Command;
use std::time::{Duration, SystemTime};

use http::HeaderName;
use reqwest::{Request, Response};
use reqwest_jitter::{
    Attempt, Backoff, Cause, Classifier, DefaultClassifier, DelayHints, DelaySource, Effect,
    HintUnit, JitteredRetryMiddleware, RetryBudget, RetryOverride, RetryPolicy, RetryReport,
    StopReason, Verdict, classify_fn,
};
use reqwest_middleware::{ClientBuilder, Error, Middleware, Next};
use tokio::time::Instant;

use crate::case::{DATE, DATE_AS_UNIX, JITTERS, curve, get};
use crate::marking::Marking;
use crate::support::{Answer, ScriptedOrigin, URL, fixed, ms, secs, status};
use crate::wire::{Reply, Wire, client, response};

fn asking(code: u16, retry_after: impl AsRef<[u8]>) -> Answer {
    status(code).header("retry-after", retry_after)
}

/// Counted from the response's own date.
fn dated(code: u16, retry_after: impl AsRef<[u8]>) -> Answer {
    asking(code, retry_after).header("date", DATE)
}

/// With the headers that vendors have made up.
fn reading_all(policy: RetryPolicy) -> JitteredRetryMiddleware {
    JitteredRetryMiddleware::new(policy).with_hints(DelayHints::vendors())
}

fn too_long(retry_after: Duration) -> StopReason {
    StopReason::RetryAfterTooLong { retry_after }
}

/// `TrueLayer/reqwest-middleware#146`: what picked the wait was never shown the response.
#[tokio::test(start_paused = true)]
pub(crate) async fn ra_01_the_wait_that_the_server_names_is_waited() {
    let policy = RetryPolicy::new(Backoff::exponential(ms(50), ms(200))).with_max_attempts(3);
    let done = get([asking(429, "3"), status(200)])
        .policy(policy)
        .run()
        .await;
    done.answers(200, [3000]);
    assert_eq!(done.report().history()[0].source(), DelaySource::Hint);

    let done = get([status(429), status(200)]).policy(policy).run().await;
    assert!(done.report().slept() <= ms(50));
    assert_eq!(done.report().history()[0].source(), DelaySource::Computed);
}

/// `urllib3/urllib3#2861`: a decimal failed the request that it was meant to help.
#[tokio::test(start_paused = true)]
pub(crate) async fn ra_02_a_decimal_is_waited_to_the_millisecond() {
    get([asking(429, "0.503"), asking(429, "0.5031"), status(200)])
        .run()
        .await
        .answers(200, [503, 504]);
}

/// `pydantic/pydantic-ai#7065`: a negative wait was handed to the sleep, or ended a throttle early.
#[tokio::test(start_paused = true)]
pub(crate) async fn ra_04_a_number_with_a_sign_is_no_hint() {
    get([
        asking(429, "-1"),
        asking(429, "+5"),
        asking(429, "-0"),
        asking(429, "1"),
        status(200),
    ])
    .run()
    .await
    .answers(200, [100, 200, 400, 1000]);
}

/// `urllib3/urllib3#3743`: ten digits overflowed the sleep.
#[tokio::test(start_paused = true)]
pub(crate) async fn ra_05_a_huge_number_ends_the_call_at_once() {
    let policy = fixed(ms(1)).with_max_elapsed(secs(5));
    // So many digits are a Unix time, in the year 2286.
    let wait = secs(9_999_999_999 - DATE_AS_UNIX);
    get([dated(429, "9999999999")])
        .policy(policy)
        .run()
        .await
        .stops(429, [], too_long(wait));
    // Nine digits are seconds.
    get([dated(429, "999999999")])
        .policy(policy)
        .run()
        .await
        .stops(429, [], too_long(secs(999_999_999)));
    let done = get([dated(429, "9999999999")])
        .policy(policy.with_max_retry_after(Duration::MAX))
        .run()
        .await;
    done.stops(429, [], StopReason::ElapsedExhausted);
    assert_eq!(done.took, Duration::ZERO);
}

/// `notatallshaw/nab#596`: what looked like a number or a date failed in its conversion, and the call with it.
#[tokio::test(start_paused = true)]
pub(crate) async fn ra_06_endless_digits_are_a_long_wait_and_an_impossible_year_is_no_hint() {
    let digits = "99999999999999999999999999999999";
    // The largest number there is, by its size a Unix time in microseconds.
    let wait = Duration::from_micros(u64::MAX - DATE_AS_UNIX * 1_000_000);
    get([dated(503, digits)]).run().await.stops(
        503,
        [],
        too_long(ms(1 + u64::try_from(wait.as_millis()).unwrap())),
    );
    // Told to wait however long it takes, a call still ends where its time does.
    get([dated(503, digits)])
        .policy(
            fixed(ms(1))
                .with_max_retry_after(Duration::MAX)
                .with_max_elapsed(secs(60)),
        )
        .run()
        .await
        .stops(503, [], StopReason::ElapsedExhausted);
    get([dated(503, "Fri, 31 Dec 99999 23:59:59 GMT"), status(200)])
        .run()
        .await
        .answers(200, [100]);
}

/// `tavily-ai/tavily-python#166`: a parser of floats took "not a number" and "infinite" for waits.
#[tokio::test(start_paused = true)]
pub(crate) async fn ra_07_what_only_a_float_parser_reads_is_no_hint() {
    get([
        asking(429, "inf"),
        asking(429, "NaN"),
        asking(429, "1e3"),
        status(200),
    ])
    .run()
    .await
    .answers(200, [100, 200, 400]);
}

/// `hashicorp/go-retryablehttp#144`: only seconds were understood, no date.
#[tokio::test(start_paused = true)]
pub(crate) async fn ra_08_a_date_is_waited_for() {
    get([dated(503, "Sun, 01 Jan 2017 00:00:02 GMT"), status(200)])
        .run()
        .await
        .answers(200, [3000]);

    // Without the response's own date the local clock stands in. A date in a header has lost its milliseconds.
    let then = httpdate::fmt_http_date(SystemTime::now() + secs(3));
    let done = get([asking(503, then), status(200)]).run().await;
    let slept = done.report().slept();
    assert!((ms(1000)..=ms(3000)).contains(&slept), "{slept:?}");
    assert_eq!(done.report().history()[0].source(), DelaySource::Hint);
}

/// `urllib3/urllib3#1896`: a date was read in the local time zone, and two minutes became four hours.
#[test]
pub(crate) fn ra_10_a_date_means_the_same_in_every_time_zone() {
    let path = std::env::current_exe().unwrap();
    for zone in ["America/New_York", "Asia/Kolkata", "Pacific/Kiritimati"] {
        let run = Command::new(&path)
            .args(["ra_08_a_date_is_waited_for", "--test-threads=1"])
            .env("TZ", zone)
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success(), "{zone}: {told}");
        assert!(told.contains("1 passed"), "{zone}: {told}");
    }
}

/// `nodejs/undici#4084`: the parser of dates was handed the result of a failed parse of a number.
#[tokio::test(start_paused = true)]
pub(crate) async fn ra_12_what_is_no_number_is_read_as_a_date() {
    get([dated(429, "Sun, 01 Jan 2017 00:00:01 GMT"), status(200)])
        .policy(fixed(ms(1)))
        .run()
        .await
        .answers(200, [2000]);
}

/// `earendil-works/pi#9724`: an unreadable date became "now", and the retries a burst.
#[tokio::test(start_paused = true)]
pub(crate) async fn ra_13_an_unreadable_date_leaves_the_computed_wait() {
    get([
        dated(429, "Wed, 99 Foo 2026 25:61:61 GMT"),
        dated(429, "tomorrow"),
        status(200),
    ])
    .policy(curve(200, 30_000))
    .run()
    .await
    .answers(200, [200, 400]);
}

/// `sindresorhus/got#2468`: a wait of zero meant "do not retry".
#[tokio::test(start_paused = true)]
pub(crate) async fn ra_14_zero_means_now() {
    let done = get([asking(503, "0"), status(200)]).run().await;
    done.answers(200, [0]);
    assert_eq!(done.report().history()[0].source(), DelaySource::Hint);
}

/// `kubescape/kubevuln#754`: "now", said again and again, was answered with thousands of requests.
#[tokio::test(start_paused = true)]
pub(crate) async fn ra_15_a_server_that_always_says_now_meets_a_backoff_a_cap_and_a_budget() {
    for answer in [
        asking(429, "0"),
        dated(429, "Sat, 31 Dec 2016 23:59:54 GMT"),
    ] {
        get([answer.clone()]).run().await.stops(
            429,
            [0, 200, 400, 800],
            StopReason::AttemptsExhausted,
        );
        let budget = RetryBudget::new()
            .with_burst(1)
            .with_reserve_per_sec(0)
            .with_extra_load_percent(0);
        get([answer])
            .retry(JitteredRetryMiddleware::new(curve(100, 30_000)).with_budget(budget))
            .run()
            .await
            .stops(429, [0], StopReason::BudgetExhausted);
    }
    // Said now and then, it is believed each time.
    get([
        asking(429, "0"),
        status(429),
        asking(429, "0"),
        asking(429, "1"),
        status(200),
    ])
    .run()
    .await
    .answers(200, [0, 200, 0, 1000]);
}

/// `macanderson/stella#361`: the cap of the own backoff cut the server's wait, so that every retry came too early.
#[tokio::test(start_paused = true)]
pub(crate) async fn ra_17_the_cap_of_the_backoff_does_not_shorten_a_hint() {
    get([asking(429, "3"), status(429), status(429), status(200)])
        .policy(curve(400, 500))
        .run()
        .await
        .answers(200, [3000, 500, 500]);
}

/// `OpenHikmah/openhikmah-web#547`: a random factor undercut half of the server's waits.
#[tokio::test(start_paused = true)]
pub(crate) async fn ra_18_no_jitter_touches_a_hint() {
    let spread = |policy: RetryPolicy, seed| async move {
        get([asking(429, "2"), status(200)])
            .retry(JitteredRetryMiddleware::new(policy).with_seed(seed))
            .run()
            .await
    };
    for jitter in JITTERS {
        let policy = RetryPolicy::default().with_jitter(jitter);
        for seed in 0..200 {
            spread(policy, seed).await.answers(200, [2000]);
        }
        // Spread on request, and then later only.
        let policy = policy.with_hint_spread(ms(500));
        let mut waits = Vec::new();
        for seed in 0..200 {
            waits.push(spread(policy, seed).await.report().slept());
        }
        waits.sort();
        assert!(ms(2000) <= waits[0] && waits[199] <= ms(2500));
        assert!(waits[199] > waits[0] + ms(400), "{waits:?}");
    }
}

/// `hashicorp/go-retryablehttp#247`: a wait of an hour was slept, whatever the caller's limit.
#[tokio::test(start_paused = true)]
pub(crate) async fn ra_20_a_wait_beyond_the_limit_brings_the_response_back_at_once() {
    let policy = fixed(ms(1)).with_max_retry_after(secs(30));
    let done = get([asking(429, "3600")]).policy(policy).run().await;
    done.stops(429, [], too_long(secs(3600)));
    assert_eq!(done.took, Duration::ZERO);
    assert_eq!(done.response().headers()["retry-after"], "3600");

    get([asking(429, "30.001")])
        .policy(policy)
        .run()
        .await
        .stops(429, [], too_long(ms(30_001)));
    get([asking(429, "30"), status(200)])
        .policy(policy)
        .run()
        .await
        .answers(200, [30_000]);
    // Whoever sets no limit gets what the server asks for.
    get([asking(429, "3600"), status(200)])
        .policy(policy.with_max_retry_after(Duration::MAX))
        .run()
        .await
        .answers(200, [3_600_000]);
}

/// `wojtekmach/req#463`: nobody could tell whether the header or the configured wait wins.
#[tokio::test(start_paused = true)]
pub(crate) async fn ra_22_a_hint_goes_before_the_configured_wait_unless_hints_are_off() {
    let retry = JitteredRetryMiddleware::new(fixed(ms(10)));
    for (hints, wait) in [(DelayHints::standard(), 2000), (DelayHints::none(), 10)] {
        get([asking(429, "2"), status(200)])
            .retry(retry.clone().with_hints(hints))
            .run()
            .await
            .answers(200, [wait]);
    }
}

/// `cloudfoundry/cloud_controller_ng#2544`: the header held the Unix time of the reset, fifty years as seconds.
#[tokio::test(start_paused = true)]
pub(crate) async fn ra_24_a_unix_time_is_a_moment_and_not_a_wait() {
    let policy = fixed(ms(1)).with_max_elapsed(secs(5));
    let at = |later: u64| dated(429, (DATE_AS_UNIX + later).to_string());
    get([at(2), status(200)])
        .policy(policy)
        .run()
        .await
        .answers(200, [2000]);
    get([at(6)])
        .policy(policy)
        .run()
        .await
        .stops(429, [], StopReason::ElapsedExhausted);
}

/// `sindresorhus/got#1663`: a limit was derived before the request's own options were known, and was infinite.
#[tokio::test(start_paused = true)]
pub(crate) async fn ra_25_a_limit_of_the_request_bounds_the_wait() {
    let case = || get([asking(429, "60"), status(200)]);
    case().run().await.answers(200, [60_000]);
    case()
        .extension(RetryOverride::new().with_max_elapsed(secs(5)))
        .run()
        .await
        .stops(429, [], StopReason::ElapsedExhausted);
    case()
        .extension(RetryOverride::new().with_deadline(Instant::now() + secs(5)))
        .run()
        .await
        .stops(429, [], StopReason::ElapsedExhausted);
    case()
        .extension(RetryOverride::new().with_max_retry_after(secs(5)))
        .run()
        .await
        .stops(429, [], too_long(secs(60)));
}

/// `QVerisAI/qveris-agent-toolkit#142`: a superscript two passed for a digit and crashed the conversion.
#[tokio::test(start_paused = true)]
pub(crate) async fn ra_27_only_ascii_digits_are_digits_and_blanks_around_them_are_none() {
    get([
        asking(429, b"\xb2"),
        asking(429, "²"),
        asking(429, "٣"),
        asking(429, " 1 "),
        status(200),
    ])
    .run()
    .await
    .answers(200, [100, 200, 400, 1000]);
}

/// `aaronpowell/httpstatus#153`: two values in one answer, and no rule for them.
#[tokio::test(start_paused = true)]
pub(crate) async fn ra_29_of_several_values_the_longest_is_waited() {
    for answer in [
        asking(429, "1").header("retry-after", "30"),
        asking(429, "30").header("retry-after", "1"),
        asking(429, "1, 30"),
        asking(429, "30").header("retry-after", "soon"),
    ] {
        get([answer.clone(), status(200)])
            .run()
            .await
            .answers(200, [30_000]);
        get([answer])
            .policy(fixed(ms(1)).with_max_elapsed(secs(5)))
            .run()
            .await
            .stops(429, [], StopReason::ElapsedExhausted);
    }
}

/// What a middleware makes of a response that its user wants as an error.
struct ErrorForStatus;

#[async_trait::async_trait]
impl Middleware for ErrorForStatus {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut http::Extensions,
        next: Next<'_>,
    ) -> Result<Response, Error> {
        Ok(next.run(request, extensions).await?.error_for_status()?)
    }
}

/// `curl/curl#6408`: with statuses turned into errors, the headers were gone, and the hint with them.
#[tokio::test(start_paused = true)]
pub(crate) async fn ra_31_a_status_made_an_error_is_final_below_and_retried_above() {
    let retry = || JitteredRetryMiddleware::new(fixed(ms(10)).with_max_attempts(2));
    let origin = ScriptedOrigin::new([asking(429, "2")]);
    let below = ClientBuilder::new(reqwest::Client::new())
        .with(retry())
        .with(ErrorForStatus)
        .with(origin.clone())
        .build();
    let error = below.get(URL).send().await.unwrap_err();
    assert_eq!(error.status().unwrap(), 429);
    assert_eq!(origin.count(), 1);

    let origin = ScriptedOrigin::new([asking(429, "2")]);
    let above = ClientBuilder::new(reqwest::Client::new())
        .with(ErrorForStatus)
        .with(retry())
        .with(origin.clone())
        .build();
    let error = above.get(URL).send().await.unwrap_err();
    assert_eq!(error.status().unwrap(), 429);
    assert_eq!(origin.gaps(), [secs(2)]);

    // Whoever needs it below can say so.
    let origin = ScriptedOrigin::new([asking(429, "2"), status(200)]);
    let classifier =
        classify_fn(
            |attempt: &Attempt<'_>| match attempt.error().and_then(Error::status) {
                Some(status) if status == 429 => Verdict::retry(Cause::Throttled, Effect::None),
                _ => DefaultClassifier::new().classify(attempt),
            },
        );
    let below = ClientBuilder::new(reqwest::Client::new())
        .with(retry().with_classifier(classifier))
        .with(ErrorForStatus)
        .with(origin.clone())
        .build();
    assert_eq!(below.get(URL).send().await.unwrap().status(), 200);
    assert_eq!(origin.gaps(), [ms(10)]);
}

/// `open-telemetry/opentelemetry-go#8383`: seconds were taken for nanoseconds.
#[tokio::test(start_paused = true)]
pub(crate) async fn ra_32_the_unit_is_the_second() {
    get([asking(503, "2"), status(200)])
        .policy(fixed(ms(1)))
        .run()
        .await
        .answers(200, [2000]);
}

/// `smithy-lang/smithy-rs#4749`: a limiter put its own wait in the place of the server's, and forgot its token.
#[tokio::test(start_paused = true)]
pub(crate) async fn ra_34_a_budget_says_yes_or_no_and_never_how_long() {
    let budget = RetryBudget::new()
        .with_burst(1)
        .with_reserve_per_sec(0)
        .with_extra_load_percent(0);
    let retry = JitteredRetryMiddleware::new(fixed(ms(1)).with_max_attempts(2)).with_budget(budget);
    get([asking(503, "3"), status(200)])
        .retry(retry.clone())
        .run()
        .await
        .answers(200, [3000]);
    let done = get([asking(503, "3"), status(200)])
        .retry(retry)
        .run()
        .await;
    done.stops(503, [], StopReason::BudgetExhausted);
    assert_eq!(done.took, Duration::ZERO, "a refusal is not waited for");
}

/// `seanmonstar/reqwest#925`: a redirect asked for a wait before it is followed.
#[tokio::test]
pub(crate) async fn ra_36_a_redirect_is_followed_below_without_a_wait_or_a_retry() {
    let head = "location: /next\r\nretry-after: 2\r\n";
    let server = Wire::serve(move |number| {
        let code = if number == 0 { 301 } else { 200 };
        Reply::Send(vec![response(code, head, b"")])
    })
    .await;
    let answer = client(JitteredRetryMiddleware::default())
        .get(server.url("/"))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.url().path(), "/next");
    assert!(RetryReport::of(&answer).is_none());
    assert_eq!(server.count(), 2);
}

/// A redirect that reqwest was told not to follow is an answer.
#[tokio::test(start_paused = true)]
async fn ra_36_a_redirect_that_is_not_followed_is_an_answer() {
    get([asking(301, "2"), status(200)])
        .run()
        .await
        .answers(301, []);
}

/// `Shopify/shopify-app-python#18`: whole seconds, written as a decimal, escaped the retry loop as an error.
#[tokio::test(start_paused = true)]
pub(crate) async fn ra_38_a_decimal_without_a_fraction_is_whole_seconds() {
    get([asking(429, "2.0"), status(200)])
        .policy(curve(100, 30_000).with_max_elapsed(secs(10)))
        .run()
        .await
        .answers(200, [2000]);
}

/// `can1357/oh-my-pi#7003`: a wait of days in a vendor's header got a client stuck that had somewhere else to go.
#[tokio::test(start_paused = true)]
pub(crate) async fn ra_39_a_wait_of_days_brings_the_response_back_at_once() {
    let done = get([asking(429, "302539").header("retry-after-ms", "302539000")])
        .policy(fixed(ms(1)).with_max_retry_after(secs(300)))
        .run()
        .await;
    done.stops(429, [], too_long(secs(302_539)));
    assert_eq!(done.took, Duration::ZERO);
    assert_eq!(done.response().headers()["retry-after-ms"], "302539000");

    get([
        asking(429, "2").header("retry-after-ms", "1500"),
        status(200),
    ])
    .run()
    .await
    .answers(200, [2000]);
}

/// `XAMPPRocky/octocrab#349`: a quota that is used up is announced by 403, which nobody expects to mend.
#[tokio::test(start_paused = true)]
pub(crate) async fn rl_03_a_403_is_final_unless_a_classifier_says_otherwise() {
    let refused = || asking(403, "2").header("x-ratelimit-remaining", "0");
    get([refused(), status(200)])
        .run()
        .await
        .stops(403, [], StopReason::Rejected);
    let classifier = classify_fn(|attempt| match (attempt.status(), attempt.hint()) {
        (Some(status), Some(_)) if status == 403 => Verdict::retry(Cause::Throttled, Effect::None),
        _ => DefaultClassifier::new().classify(attempt),
    });
    let retry = JitteredRetryMiddleware::default().with_classifier(classifier);
    get([refused(), status(200)])
        .retry(retry.clone())
        .run()
        .await
        .answers(200, [2000]);
    get([status(403), status(200)])
        .retry(retry)
        .run()
        .await
        .stops(403, [], StopReason::Rejected);
}

/// `octokit/plugin-throttling.js#566`: a moment in a vendor's header was left out, since requests seemed to remain.
#[tokio::test(start_paused = true)]
pub(crate) async fn rl_04_a_classifier_can_read_the_wait_from_any_header() {
    let classifier = classify_fn(|attempt: &Attempt<'_>| {
        let reset = attempt.headers().and_then(|headers| {
            let reset = headers.get("x-ratelimit-reset")?.to_str().ok()?;
            reset.parse::<u64>().ok()
        });
        match reset {
            Some(reset) if attempt.status().is_some_and(|status| status == 403) => Verdict::Retry {
                cause: Cause::Throttled,
                effect: Effect::None,
                after: Some(secs(reset - DATE_AS_UNIX)),
            },
            _ => DefaultClassifier::new().classify(attempt),
        }
    });
    let case = |policy| {
        let refused = status(403)
            .header("x-ratelimit-remaining", "7")
            .header("x-ratelimit-reset", (DATE_AS_UNIX + 3).to_string());
        get([refused, status(200)])
            .retry(JitteredRetryMiddleware::new(policy).with_classifier(classifier))
    };
    let done = case(fixed(ms(10))).run().await;
    done.answers(200, [3000]);
    assert_eq!(done.report().history()[0].source(), DelaySource::Classifier);
    case(fixed(ms(10)).with_max_elapsed(secs(2)))
        .run()
        .await
        .stops(403, [], StopReason::ElapsedExhausted);
    // By themselves, the vendors' headers are heeded where nothing remains, or where nothing is said about it.
    let throttled = |remaining: Option<&str>| {
        let answer = status(429)
            .header("date", DATE)
            .header("x-ratelimit-reset", (DATE_AS_UNIX + 3).to_string());
        let answer = match remaining {
            Some(remaining) => answer.header("x-ratelimit-remaining", remaining),
            None => answer,
        };
        get([answer, status(200)]).retry(reading_all(fixed(ms(10))))
    };
    for (remaining, wait) in [(Some("7"), 10), (Some("0"), 3000), (None, 3000)] {
        throttled(remaining).run().await.answers(200, [wait]);
    }
}

/// `digitalocean/droplet_kit#315`: the reset of a window won over the wait that was asked for, and a header had to be
/// misspelt to stop it.
#[tokio::test(start_paused = true)]
pub(crate) async fn rl_05_retry_after_goes_before_a_reset() {
    let reset = (DATE_AS_UNIX + 3600).to_string();
    for retry in [
        JitteredRetryMiddleware::new(fixed(ms(10)).with_max_elapsed(secs(10))),
        reading_all(fixed(ms(10)).with_max_elapsed(secs(10))),
    ] {
        get([
            dated(429, "1").header("ratelimit-reset", &reset),
            status(200),
        ])
        .retry(retry)
        .run()
        .await
        .answers(200, [1000]);
    }
    // By itself, the reset is too far away.
    get([status(429)
        .header("date", DATE)
        .header("ratelimit-reset", &reset)])
    .retry(reading_all(fixed(ms(10))))
    .run()
    .await
    .stops(429, [], too_long(secs(3600)));
}

/// `huggingface/huggingface_hub#3377`: eager retries of a 429 without a wait made the ban longer.
#[tokio::test(start_paused = true)]
pub(crate) async fn rl_08_a_429_without_a_hint_can_be_final_or_slower() {
    let eager = fixed(ms(10));
    let unsaid = |after: Option<Duration>| {
        classify_fn(move |attempt: &Attempt<'_>| match attempt.status() {
            Some(status) if status == 429 && attempt.hint().is_none() => match after {
                Some(_) => Verdict::Retry {
                    cause: Cause::Throttled,
                    effect: Effect::None,
                    after,
                },
                None => Verdict::Reject,
            },
            _ => DefaultClassifier::new().classify(attempt),
        })
    };
    let case = |after, script| {
        let retry = JitteredRetryMiddleware::new(eager).with_classifier(unsaid(after));
        let [first, second] = script;
        get([first, second]).retry(retry)
    };
    case(None, [status(429), status(200)])
        .run()
        .await
        .stops(429, [], StopReason::Rejected);
    case(Some(secs(5)), [status(429), status(200)])
        .run()
        .await
        .answers(200, [5000]);
    for after in [None, Some(secs(5))] {
        case(after, [asking(429, "2"), status(200)])
            .run()
            .await
            .answers(200, [2000]);
        case(after, [status(503), status(200)])
            .run()
            .await
            .answers(200, [10]);
    }
    // What is set for nobody in particular is slow from the start.
    let done = get([status(429)])
        .policy(RetryPolicy::default())
        .run()
        .await;
    assert_eq!(done.origin.count(), 5);
    assert_eq!(RetryPolicy::default(), RetryPolicy::new(Backoff::default()));
    assert_eq!(Backoff::default().ceiling(1), secs(1));
}

/// `langchain-ai/langchainjs#1929`: a spent account answers 429 as well, and was asked again for minutes.
#[tokio::test(start_paused = true)]
pub(crate) async fn rl_09_a_classifier_can_end_a_call_by_what_a_middleware_read() {
    const SPENT: &str = r#"{"error":{"code":"insufficient_quota"}}"#;
    let classifier = classify_fn(|attempt: &Attempt<'_>| {
        let marked = attempt
            .headers()
            .is_some_and(|headers| headers.contains_key("x-spent"));
        if marked {
            Verdict::Reject
        } else {
            DefaultClassifier::new().classify(attempt)
        }
    });
    let retry = JitteredRetryMiddleware::new(curve(100, 800)).with_classifier(classifier);
    get([status(429).header("x-spent", "yes"), status(200)])
        .retry(retry.clone())
        .run()
        .await
        .stops(429, [], StopReason::Rejected);

    for (body, count) in [(SPENT, 1), ("slow down", 5)] {
        let origin = ScriptedOrigin::new([status(429).body(body)]);
        let client = ClientBuilder::new(reqwest::Client::new())
            .with(retry.clone())
            .with(Marking::new("insufficient_quota", "x-spent"))
            .with(origin.clone())
            .build();
        let response = client.get(URL).send().await.unwrap();
        assert_eq!((response.status().as_u16(), origin.count()), (429, count));
        assert_eq!(response.text().await.unwrap(), body);
    }
}

/// `huggingface/huggingface_hub#3553`: the structured field of the drafts was not understood.
#[tokio::test(start_paused = true)]
pub(crate) async fn rl_11_the_field_of_the_drafts_is_read_on_request() {
    let quota = |value: &str| {
        status(429)
            .header("ratelimit", value)
            .header("ratelimit-policy", "\"fixed window\";\"api\";q=500;w=300")
    };
    for (value, wait) in [
        ("\"api\";r=0;t=2", 2000),
        ("\"day\";r=9;t=86400, \"api\";r=0;t=2", 2000),
        // Some of it is left.
        ("\"api\";r=5;t=2", 10),
        // Oddly quoted, or not at all to the point.
        ("\"a;p\\\"i\";r=0;t=2", 2000),
        ("\"api;r=0;t=2", 10),
        ("\"api\";r=0;t=\"", 10),
        ("\"", 10),
    ] {
        get([quota(value), status(200)])
            .retry(reading_all(fixed(ms(10))))
            .run()
            .await
            .answers(200, [wait]);
        get([quota(value), status(200)])
            .policy(fixed(ms(10)))
            .run()
            .await
            .answers(200, [10]);
    }
}

/// `anthropics/anthropic-sdk-typescript#357`: a server that says whether to come back, and when, was not listened to.
#[tokio::test(start_paused = true)]
pub(crate) async fn rl_12_the_servers_word_on_whether_to_retry_is_heeded_on_request() {
    let said = |code, word: &str| status(code).header("x-should-retry", word);
    let vendors = || reading_all(fixed(ms(10)));
    get([said(429, "false"), status(200)])
        .run()
        .await
        .answers(200, [100]);
    get([said(429, "false"), status(200)])
        .retry(vendors())
        .run()
        .await
        .stops(429, [], StopReason::Rejected);
    get([said(409, "true"), status(200)])
        .retry(vendors())
        .run()
        .await
        .answers(200, [10]);
    get([status(409)])
        .retry(vendors())
        .run()
        .await
        .stops(409, [], StopReason::Rejected);
    let reset = status(429)
        .header("date", DATE)
        .header("anthropic-ratelimit-requests-remaining", "0")
        .header("anthropic-ratelimit-requests-reset", "2017-01-01T00:00:04Z");
    get([reset, status(200)])
        .retry(vendors())
        .run()
        .await
        .answers(200, [5000]);
    // A classifier can heed it without the others.
    let classifier = classify_fn(|attempt: &Attempt<'_>| {
        let word = attempt
            .headers()
            .and_then(|headers| headers.get("x-should-retry"));
        if word.is_some_and(|word| word == "false") {
            Verdict::Reject
        } else {
            DefaultClassifier::new().classify(attempt)
        }
    });
    get([said(429, "false"), status(200)])
        .retry(JitteredRetryMiddleware::default().with_classifier(classifier))
        .run()
        .await
        .stops(429, [], StopReason::Rejected);
}

/// `xorbitsai/xllamacpp#155`: a date was compared with a clock that went wrong.
#[tokio::test(start_paused = true)]
pub(crate) async fn dt_01_a_date_is_counted_from_the_servers_own() {
    get([dated(429, "Sun, 01 Jan 2017 00:00:01 GMT"), status(200)])
        .policy(fixed(ms(10)))
        .run()
        .await
        .answers(200, [2000]);
    // A response out of a cache tells an old time: the moment has passed.
    get([
        dated(429, "Sun, 01 Jan 2017 00:00:01 GMT").header("age", "3600"),
        status(200),
    ])
    .policy(fixed(ms(10)))
    .run()
    .await
    .answers(200, [0]);
}

/// `denoland/std#7299`: parsers that take too much, or leave out the forms that are old.
#[tokio::test(start_paused = true)]
pub(crate) async fn dt_03_all_three_forms_of_a_date_are_read_and_nothing_beside_them() {
    get([
        dated(503, "Sunday, 01-Jan-17 00:00:01 GMT"),
        dated(503, "Sun Jan  1 00:00:01 2017"),
        dated(503, "Sun, 01 Jan 2017 00:00:01 GMT"),
        // A leap second is a second after the one before it.
        dated(503, "Sat, 31 Dec 2016 23:59:60 GMT"),
        status(200),
    ])
    .policy(fixed(ms(10)))
    .run()
    .await
    .answers(200, [2000, 2000, 2000, 1000]);
    get([
        dated(503, "+Sun, 01 Jan 2017 00:00:01 GMT"),
        dated(503, "Sun, 1 Jan 2017 00:00:01 GMT"),
        dated(503, "2017-01-01T00:00:01Z"),
        status(200),
    ])
    .policy(fixed(ms(10)))
    .run()
    .await
    .answers(200, [10, 10, 10]);
}

/// `will-ockmore/httpx-retries#58`: a date of no zone, or of another one, was taken for GMT.
#[tokio::test(start_paused = true)]
pub(crate) async fn dt_04_a_date_that_is_not_gmt_is_no_date() {
    get([
        dated(503, "1 Jan 2099 00:00:00"),
        dated(503, "Thu, 01 Jan 2099 00:00:00 XYZ"),
        dated(503, "Thu, 01 Jan 2099 00:00:00"),
        dated(503, "Thu, 01 Jan 2099 00:00:00 +0000"),
        status(200),
    ])
    .policy(fixed(ms(10)))
    .run()
    .await
    .answers(200, [10, 10, 10, 10]);
}

/// The name of a header that only this server has.
const OWN: HeaderName = HeaderName::from_static("x-come-back");

/// `Javacord/Javacord#783`: the unit of a vendor's header changed from milliseconds to seconds.
#[tokio::test(start_paused = true)]
pub(crate) async fn rl_02_every_header_has_the_unit_that_it_was_given() {
    let answer = || asking(429, "737").header("x-ratelimit-reset-after", "737.317");
    get([answer()])
        .policy(fixed(ms(1)).with_max_elapsed(secs(10)))
        .run()
        .await
        .stops(429, [], too_long(secs(737)));
    get([answer(), status(200)])
        .policy(fixed(ms(1)).with_max_retry_after(secs(3600)))
        .run()
        .await
        .answers(200, [737_000]);
    // Read with a vendor's eyes, the standard header still goes first.
    get([answer(), status(200)])
        .retry(reading_all(fixed(ms(1)).with_max_retry_after(secs(3600))))
        .run()
        .await
        .answers(200, [737_000]);
    get([
        status(429).header("x-ratelimit-reset-after", "64.57"),
        status(200),
    ])
    .retry(reading_all(fixed(ms(1))))
    .run()
    .await
    .answers(200, [64_570]);
    for (unit, wait) in [(HintUnit::Seconds, 737), (HintUnit::Milliseconds, 1)] {
        let retry = JitteredRetryMiddleware::new(fixed(ms(1)))
            .with_hints(DelayHints::standard().with_header(OWN, unit));
        get([status(429).header("x-come-back", "0.737"), status(200)])
            .retry(retry)
            .run()
            .await
            .answers(200, [wait]);
    }
}
