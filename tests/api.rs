//! Owns the shape of the public API: what implements what, what is `const`, and what can be built from outside.

mod support;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use reqwest::Body;
use reqwest_jitter::{
    Attempt, Backoff, Cause, Classifier, ClassifyFn, DefaultClassifier, DelayHints, DelaySource,
    Effect, HintUnit, Jitter, JitteredRetryMiddleware, Replay, ReplayableBody, RetryAttempt,
    RetryBudget, RetryEvent, RetryOverride, RetryPolicy, RetryReport, StopReason, Verdict,
    classify_fn,
};
use reqwest_middleware::Middleware;
use support::{ScriptedOrigin, URL, fixed, ms, report, status};

const BASE: Duration = Duration::from_millis(200);
const CAP: Duration = Duration::from_secs(10);
const POLICY: RetryPolicy = RetryPolicy::new(Backoff::exponential(BASE, CAP))
    .with_backoff(Backoff::linear(BASE, CAP).with_factor(3))
    .with_jitter(Jitter::Decorrelated)
    .with_max_attempts(6)
    .with_max_elapsed(Duration::from_secs(60))
    .with_max_retry_after(Duration::from_secs(30))
    .with_replay(Replay::WhenUnprocessed)
    .with_hint_spread(Duration::from_secs(1));
const FIXED: Backoff = Backoff::fixed(BASE).with_jitter(Jitter::Equal);
const HINTS: [DelayHints; 3] = [
    DelayHints::none(),
    DelayHints::standard(),
    DelayHints::vendors(),
];
const CLASSIFIER: DefaultClassifier = DefaultClassifier::new();
const VERDICT: Verdict = Verdict::retry(Cause::Other("const"), Effect::None);
#[cfg(feature = "idempotency-keys")]
const KEYED: RetryPolicy = POLICY.with_idempotency_keys();

#[test]
fn policies_are_const_and_plain_data() {
    fn is_plain<T: Copy + PartialEq + Eq + Send + Sync + Debug + 'static>(_: T) {}
    is_plain(POLICY);
    is_plain(FIXED);
    is_plain(VERDICT);
    is_plain(RetryOverride::new());
    is_plain(Jitter::Full);
    is_plain(Replay::Always);
    is_plain(Effect::None);
    is_plain(Cause::Dns);
    is_plain(HintUnit::Seconds);
    is_plain(DelaySource::Hint);
    is_plain(StopReason::Accepted);
    assert_eq!(HINTS[1], DelayHints::default());
    assert_ne!(HINTS[0], HINTS[1]);
    assert_ne!(HINTS[1], HINTS[2]);
    assert_eq!(
        format!("{CLASSIFIER:?}"),
        format!("{:?}", DefaultClassifier::default())
    );
    #[cfg(feature = "idempotency-keys")]
    assert_ne!(KEYED, POLICY);
}

#[test]
fn defaults_are_what_the_documentation_says() {
    let policy = RetryPolicy::default();
    assert_eq!(policy, RetryPolicy::new(Backoff::default()));
    let said = RetryPolicy::new(Backoff::exponential(
        Duration::from_secs(1),
        Duration::from_secs(30),
    ))
    .with_jitter(Jitter::Full)
    .with_max_attempts(5)
    .with_max_retry_after(Duration::from_secs(120))
    .with_replay(Replay::WhenUnprocessed)
    .with_hint_spread(Duration::ZERO);
    assert_eq!(policy, said);
    assert_eq!(
        (Jitter::default(), Replay::default()),
        (Jitter::Full, Replay::WhenUnprocessed)
    );
    assert_eq!(RetryOverride::new(), RetryOverride::default());
    assert_ne!(RetryOverride::new(), RetryOverride::disabled());
    // Each setter sets something of its own.
    let changed = [
        policy.with_max_attempts(6),
        policy.with_max_elapsed(Duration::MAX),
        policy.with_max_retry_after(Duration::MAX),
        policy.with_replay(Replay::Always),
        policy.with_hint_spread(CAP),
        policy.with_jitter(Jitter::None),
        policy.with_backoff(FIXED),
    ];
    for (index, one) in changed.iter().enumerate() {
        assert_ne!(*one, policy);
        assert!(changed[..index].iter().all(|other| other != one));
    }
    // Values that clamp are equal to what they clamp to.
    assert_eq!(policy.with_max_attempts(0), policy.with_max_attempts(1));
    assert_eq!(FIXED.with_factor(0), FIXED.with_factor(1));
}

#[test]
fn everything_crosses_threads_can_be_moved_and_can_be_printed() {
    fn printed<T: Debug>() {}
    fn ordinary<T: Send + Sync + Unpin + Debug + 'static>() {}
    fn cloned<T: Clone + Send + Sync + Unpin + Debug + 'static>() {}
    ordinary::<Backoff>();
    cloned::<RetryPolicy>();
    cloned::<RetryOverride>();
    cloned::<RetryBudget>();
    cloned::<DelayHints>();
    cloned::<DefaultClassifier>();
    cloned::<Verdict>();
    cloned::<JitteredRetryMiddleware>();
    // What goes into extensions has to be `Clone`.
    cloned::<RetryReport>();
    cloned::<RetryEvent>();
    cloned::<RetryAttempt>();
    cloned::<ReplayableBody>();
    cloned::<ClassifyFn<fn(&Attempt<'_>) -> Verdict>>();
    printed::<Attempt<'_>>();
}

#[test]
fn a_call_can_be_spawned_and_so_can_a_scope() {
    fn spawned<T: Send + 'static>(_: T) {}
    let client = ScriptedOrigin::new([status(200)]).client(JitteredRetryMiddleware::default());
    spawned(client.get(URL).send());
    spawned(RetryOverride::new().scope(client.get(URL).send()));
}

#[test]
fn a_preview_is_independent_of_what_it_was_made_from() {
    fn owned<T: Iterator<Item = Duration> + Send + 'static>(delays: T) -> T {
        delays
    }
    let delays = owned(Backoff::exponential(BASE, CAP).delays(1));
    assert_eq!(delays.take(3).count(), 3);
}

/// A classifier with a state of its own.
struct Counting(std::sync::atomic::AtomicU32);

impl Classifier for Counting {
    fn classify(&self, _attempt: &Attempt<'_>) -> Verdict {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        VERDICT
    }
}

#[tokio::test(start_paused = true)]
async fn a_classifier_may_be_shared_boxed_as_a_trait_object_or_a_closure() {
    let counting = Arc::new(Counting(0.into()));
    let object: Arc<dyn Classifier> = counting.clone();
    let closure = {
        let counting = Arc::clone(&counting);
        classify_fn(move |attempt| counting.classify(attempt))
    };
    let retry = JitteredRetryMiddleware::new(fixed(ms(0)).with_max_attempts(2));
    for retry in [
        retry.clone().with_classifier(Arc::clone(&counting)),
        retry.clone().with_classifier(object),
        retry.with_classifier(closure),
    ] {
        let client = ScriptedOrigin::new([status(200)]).client(retry);
        assert_eq!(report(&client.get(URL).send().await).attempts(), 2);
    }
    assert_eq!(counting.0.load(std::sync::atomic::Ordering::SeqCst), 6);
}

#[tokio::test(start_paused = true)]
async fn the_middleware_is_one_for_any_client_also_as_a_trait_object() {
    let origin = ScriptedOrigin::new([status(503), status(200)]);
    let retry: Arc<dyn Middleware> = Arc::new(JitteredRetryMiddleware::default());
    let client = reqwest_middleware::ClientBuilder::new(reqwest::Client::new())
        .with_arc(retry)
        .with(origin.clone())
        .build();
    assert_eq!(client.get(URL).send().await.unwrap().status(), 200);
    assert_eq!(origin.count(), 2);
}

#[test]
fn a_verdict_can_be_built_and_taken_apart_outside_the_crate() {
    let built = Verdict::Retry {
        cause: Cause::Other("mine"),
        effect: Effect::Unknown,
        after: Some(BASE),
    };
    match built {
        Verdict::Retry {
            cause,
            effect,
            after,
        } => {
            assert_eq!(
                (cause, effect, after),
                (Cause::Other("mine"), Effect::Unknown, Some(BASE))
            );
        }
        other => panic!("{other:?}"),
    }
    assert_ne!(Verdict::Accept, Verdict::Reject);
    let without = Verdict::Retry {
        cause: Cause::Dns,
        effect: Effect::None,
        after: None,
    };
    assert_eq!(Verdict::retry(Cause::Dns, Effect::None), without);
}

#[test]
fn setters_chain_on_everything() {
    let retry = JitteredRetryMiddleware::new(POLICY)
        .with_hints(
            DelayHints::standard()
                .with_header(HeaderName::from_static("x-wait"), HintUnit::Seconds),
        )
        .with_budget(
            RetryBudget::new()
                .with_burst(20)
                .with_reserve_per_sec(2)
                .with_extra_load_percent(20),
        )
        .without_budget()
        .with_classifier(
            DefaultClassifier::new()
                .with_status(408, Effect::Unknown)
                .without_status(500),
        )
        .on_retry(|event| drop(event.clone()))
        .on_give_up(|report| drop(report.clone()))
        .with_seed(7);
    let printed = format!("{retry:?}");
    assert!(
        printed.contains("Decorrelated") && printed.contains("x-wait"),
        "{printed}"
    );
    let body = ReplayableBody::try_new(|| Ok::<_, std::io::Error>(Body::from("made")));
    assert!(format!("{body:?}").contains("ReplayableBody"));
    assert!(format!("{:?}", classify_fn(|_| VERDICT)).contains("ClassifyFn"));
}
