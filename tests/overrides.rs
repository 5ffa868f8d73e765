//! Owns the rule of who has the last word about a call: the request before the task, the task before the client.

mod support;

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use reqwest_jitter::task_local_extensions::{
    Extensions, get_local_item, set_local_item, with_extensions,
};
use reqwest_jitter::{
    Backoff, Jitter, JitteredRetryMiddleware, Replay, RetryOverride, RetryPolicy, RetryReport,
    StopReason,
};
use reqwest_middleware::ClientWithMiddleware;
use support::{Answer, ScriptedOrigin, URL, fixed, ms, report, secs, status};
use tokio::time::Instant;

/// What a call did: its waits, and why it ended.
type Done = (Vec<Duration>, Option<StopReason>);

/// Sends one request, with the request's own settings and within those of its task.
async fn call(
    policy: RetryPolicy,
    task: Option<RetryOverride>,
    request: Option<RetryOverride>,
    answer: Answer,
    method: &str,
) -> Done {
    let origin = ScriptedOrigin::new([answer]);
    let client = origin.client(JitteredRetryMiddleware::new(policy).with_seed(1));
    let mut builder = client.request(method.parse().unwrap(), URL);
    if let Some(request) = request {
        builder = builder.with_extension(request);
    }
    let result = match task {
        Some(task) => task.scope(builder.send()).await,
        None => builder.send().await,
    };
    let report = RetryReport::of(result.as_ref().unwrap()).map(RetryReport::stop);
    (origin.gaps(), report)
}

/// One field: how a client, and how an override sets it, to values 0, 1 and 2 that can be told apart.
struct Field {
    name: &'static str,
    client: fn(RetryPolicy, u32) -> RetryPolicy,
    other: fn(RetryOverride, u32) -> RetryOverride,
    answer: fn() -> Answer,
    method: &'static str,
}

fn backoff_of(value: u32) -> Backoff {
    Backoff::fixed(secs(1) * (value + 1))
}

/// Ways of drawing that differ for the first two retries, whatever the dice say.
fn jitter_of(value: u32) -> Jitter {
    [Jitter::None, Jitter::Full, Jitter::Decorrelated][value as usize]
}

fn replay_of(value: u32) -> Replay {
    [
        Replay::IdempotentOnly,
        Replay::WhenUnprocessed,
        Replay::Always,
    ][value as usize]
}

const FIELDS: [Field; 7] = [
    Field {
        name: "backoff",
        client: |policy, value| policy.with_backoff(backoff_of(value)),
        other: |other, value| other.with_backoff(backoff_of(value)),
        answer: || status(503),
        method: "GET",
    },
    Field {
        name: "jitter",
        client: |policy, value| policy.with_jitter(jitter_of(value)),
        other: |other, value| other.with_jitter(jitter_of(value)),
        answer: || status(503),
        method: "GET",
    },
    Field {
        name: "max_attempts",
        client: |policy, value| policy.with_max_attempts(value + 1),
        other: |other, value| other.with_max_attempts(value + 1),
        answer: || status(503),
        method: "GET",
    },
    Field {
        name: "max_elapsed",
        client: |policy, value| policy.with_max_elapsed(secs(1) * value),
        other: |other, value| other.with_max_elapsed(secs(1) * value),
        answer: || status(503),
        method: "GET",
    },
    Field {
        name: "max_retry_after",
        client: |policy, value| policy.with_max_retry_after(ms(100) * value),
        other: |other, value| other.with_max_retry_after(ms(100) * value),
        // Fits the last of the three alone.
        answer: || status(503).header("retry-after", "0.15"),
        method: "GET",
    },
    Field {
        name: "replay",
        client: |policy, value| policy.with_replay(replay_of(value)),
        other: |other, value| other.with_replay(replay_of(value)),
        answer: || status(500),
        method: "POST",
    },
    Field {
        name: "hint_spread",
        client: |policy, value| policy.with_hint_spread(secs(1000) * value),
        other: |other, value| other.with_hint_spread(secs(1000) * value),
        answer: || status(503).header("retry-after", "1"),
        method: "GET",
    },
];

#[tokio::test(start_paused = true)]
async fn the_request_counts_before_the_task_and_the_task_before_the_client() {
    for field in FIELDS {
        let base =
            RetryPolicy::new(Backoff::exponential(secs(1), secs(30)).with_jitter(Jitter::None))
                .with_max_attempts(3);
        let set = |value| (field.other)(RetryOverride::new(), value);
        let by_client = async |value| {
            let policy = (field.client)(base, value);
            call(policy, None, None, (field.answer)(), field.method).await
        };
        let results = [by_client(0).await, by_client(1).await, by_client(2).await];
        assert_ne!(results[0], results[2], "{} can be observed", field.name);
        let choices = [None, Some(0), Some(1), Some(2)];
        for client in 0..3 {
            for task in choices {
                for request in choices {
                    let found = call(
                        (field.client)(base, client),
                        task.map(set),
                        request.map(set),
                        (field.answer)(),
                        field.method,
                    )
                    .await;
                    let winner = request.or(task).unwrap_or(client);
                    assert_eq!(
                        found, results[winner as usize],
                        "{}: client {client}, task {task:?}, request {request:?}",
                        field.name
                    );
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn fields_are_taken_one_by_one() {
    let policy = fixed(secs(1)).with_max_attempts(2);
    let task = RetryOverride::new().with_max_attempts(3);
    let request = RetryOverride::new().with_backoff(Backoff::fixed(secs(2)));
    let found = call(policy, Some(task), Some(request), status(503), "GET").await;
    assert_eq!(found.0, [secs(2); 2]);
    // What says nothing changes nothing.
    let none = RetryOverride::new();
    let found = call(policy, Some(none), Some(none), status(503), "GET").await;
    assert_eq!(found.0, [secs(1)]);
}

#[tokio::test(start_paused = true)]
async fn a_backoff_brings_its_own_jitter_and_a_jitter_keeps_the_backoff_of_others() {
    let curve = Backoff::exponential(secs(1), secs(30)).with_jitter(Jitter::None);
    let drawn = curve.with_jitter(Jitter::Full);
    let (none, full) = (
        RetryOverride::new().with_jitter(Jitter::None),
        RetryOverride::new().with_jitter(Jitter::Full),
    );
    let of = |backoff| RetryOverride::new().with_backoff(backoff);
    for (client, task, request, is_drawn) in [
        (curve, None, Some(full), true),
        (drawn, None, Some(none), false),
        (curve, Some(full), Some(of(curve)), false),
        (curve, Some(of(drawn)), Some(none), false),
        (drawn, Some(of(curve)), Some(full), true),
        // Within one override the later word counts.
        (curve, None, Some(full.with_backoff(curve)), false),
        (curve, None, Some(of(curve).with_jitter(Jitter::Full)), true),
    ] {
        let policy = RetryPolicy::new(client).with_max_attempts(4);
        let (gaps, _) = call(policy, task, request, status(503), "GET").await;
        assert_eq!(
            gaps != [1, 2, 4].map(secs),
            is_drawn,
            "{task:?}, {request:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn of_several_deadlines_the_earliest_counts() {
    let at = |seconds: Option<u64>| {
        seconds.map(|seconds| RetryOverride::new().with_deadline(Instant::now() + secs(seconds)))
    };
    for (task, request, retries) in [
        (None, None, 4),
        (Some(2), None, 2),
        (None, Some(2), 2),
        (Some(1), Some(3), 1),
        (Some(3), Some(1), 1),
    ] {
        let found = call(fixed(secs(1)), at(task), at(request), status(503), "GET").await;
        assert_eq!(found.0.len(), retries, "{task:?}, {request:?}");
    }
    // In scopes within each other, too, and whichever way round.
    for (outer, inner) in [(1, 3), (3, 1)] {
        let calls = call(fixed(secs(1)), at(Some(inner)), None, status(503), "GET");
        let found = at(Some(outer)).unwrap().scope(calls).await;
        assert_eq!(found.0.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn assume_idempotent_is_inherited_and_overruled_like_any_field() {
    let assume = |is_idempotent| RetryOverride::new().assume_idempotent(is_idempotent);
    for (method, task, request, is_repeated) in [
        ("POST", None, None, false),
        ("POST", Some(true), None, true),
        ("POST", Some(true), Some(false), false),
        ("POST", Some(false), Some(true), true),
        ("GET", Some(false), None, false),
        ("GET", Some(false), Some(true), true),
    ] {
        let (task, request) = (task.map(assume), request.map(assume));
        let (gaps, _) = call(fixed(secs(1)), task, request, status(500), method).await;
        assert_eq!(
            !gaps.is_empty(),
            is_repeated,
            "{method}, {task:?}, {request:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn disabled_retries_can_be_enabled_again_further_in() {
    let disabled = RetryOverride::disabled();
    let again = RetryOverride::new().with_max_attempts(3);
    for (task, request, retries) in [
        (Some(disabled), None, 0),
        (None, Some(disabled), 0),
        (Some(again), Some(disabled), 0),
        (Some(disabled), Some(again), 2),
        (
            None,
            Some(RetryOverride::disabled().with_max_attempts(3)),
            2,
        ),
        // Something else does not enable them.
        (
            Some(disabled),
            Some(RetryOverride::new().with_jitter(Jitter::Full)),
            0,
        ),
    ] {
        let found = call(fixed(secs(1)), task, request, status(503), "GET").await;
        let stop = (retries > 0).then_some(StopReason::AttemptsExhausted);
        assert_eq!(
            (found.0.len(), found.1),
            (retries, stop),
            "{task:?}, {request:?}"
        );
    }
}

/// How often one request is sent from here, by a client with five attempts.
async fn attempts() -> usize {
    attempts_of(|client| client.get(URL).send()).await
}

async fn attempts_of<F, R>(send: F) -> usize
where
    F: FnOnce(ClientWithMiddleware) -> R,
    R: Future<Output = reqwest_middleware::Result<reqwest::Response>>,
{
    let origin = ScriptedOrigin::new([status(503)]);
    let retry = JitteredRetryMiddleware::new(fixed(ms(1)));
    send(origin.client(retry)).await.unwrap();
    origin.count()
}

fn at_most(max_attempts: u32) -> RetryOverride {
    RetryOverride::new().with_max_attempts(max_attempts)
}

#[tokio::test(start_paused = true)]
async fn scopes_within_each_other_inherit_and_end() {
    assert_eq!(attempts().await, 5);
    at_most(2)
        .scope(async {
            assert_eq!(attempts().await, 2);
            at_most(3)
                .scope(async { assert_eq!(attempts().await, 3) })
                .await;
            RetryOverride::new()
                .with_jitter(Jitter::Full)
                .scope(async { assert_eq!(attempts().await, 2, "inherited") })
                .await;
            assert_eq!(attempts().await, 2);
        })
        .await;
    assert_eq!(attempts().await, 5);
}

#[tokio::test(start_paused = true)]
async fn scopes_that_run_side_by_side_do_not_see_each_other() {
    let run = |max_attempts| {
        at_most(max_attempts).scope(async move {
            for _ in 0..5 {
                assert_eq!(attempts().await, max_attempts as usize);
                tokio::task::yield_now().await;
            }
        })
    };
    let outside = async {
        for _ in 0..5 {
            assert_eq!(attempts().await, 5);
        }
    };
    tokio::join!(run(1), run(2), outside, run(3));
    let tasks: Vec<_> = [1, 2, 3].map(|number| tokio::spawn(run(number))).into();
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_spawned_task_inherits_nothing_unless_it_has_a_scope_of_its_own() {
    at_most(2)
        .scope(async {
            assert_eq!(tokio::spawn(attempts()).await.unwrap(), 5);
            assert_eq!(tokio::spawn(at_most(3).scope(attempts())).await.unwrap(), 3);
            assert_eq!(attempts().await, 2);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_scope_goes_where_its_future_goes() {
    // Begun here, ended in another task.
    let mut scope = Box::pin(at_most(2).scope(async {
        tokio::task::yield_now().await;
        attempts().await
    }));
    assert!(futures_util::poll!(scope.as_mut()).is_pending());
    assert_eq!(attempts().await, 5);
    assert_eq!(tokio::spawn(scope).await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_panic_within_a_scope_leaks_nothing() {
    // All tasks of this runtime run on one thread.
    let panicked = tokio::spawn(RetryOverride::disabled().scope(async {
        tokio::task::yield_now().await;
        panic!("on purpose")
    }));
    assert!(panicked.await.unwrap_err().is_panic());
    assert_eq!(attempts().await, 5);
    assert_eq!(tokio::spawn(attempts()).await.unwrap(), 5);

    // Nor out of an inner scope into the outer one.
    at_most(2)
        .scope(async {
            let inner = at_most(1).scope(async { panic!("on purpose") });
            let caught: Result<(), _> = AssertUnwindSafe(inner).catch_unwind().await;
            assert!(caught.is_err());
            assert_eq!(attempts().await, 2);
        })
        .await;
    assert_eq!(attempts().await, 5);
}

#[tokio::test(start_paused = true)]
async fn a_scope_that_is_dropped_halfway_leaves_nothing_behind() {
    let scope = at_most(1).scope(std::future::pending::<()>());
    assert!(tokio::time::timeout(ms(5), scope).await.is_err());
    assert_eq!(attempts().await, 5);
}

#[tokio::test(start_paused = true)]
async fn a_scope_hides_nobody_elses_entries_and_keeps_what_is_put_there() {
    let mut others = Extensions::new();
    others.insert("theirs");
    let (others, ()) = with_extensions(others, async {
        at_most(2)
            .scope(async {
                assert_eq!(get_local_item().await, Some("theirs"));
                set_local_item(7_u8).await;
                assert_eq!(attempts().await, 2);
                tokio::task::yield_now().await;
                assert_eq!(get_local_item().await, Some(7_u8));
            })
            .await;
        assert_eq!(get_local_item().await, Some(7_u8));
        assert_eq!(attempts().await, 5);
    })
    .await;
    assert_eq!(others.get(), Some(&"theirs"));
    assert_eq!(others.get(), Some(&7_u8));
}

#[tokio::test(start_paused = true)]
async fn entries_of_others_within_a_scope_are_theirs_alone() {
    at_most(2)
        .scope(async {
            // `with_extensions` hides whatever was there, a scope included; that is how it works.
            let (_, hidden) = with_extensions(Extensions::new(), attempts()).await;
            assert_eq!(hidden, 5);
            assert_eq!(attempts().await, 2);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_override_put_into_the_tasks_extensions_by_hand_works() {
    let mut extensions = Extensions::new();
    extensions.insert(at_most(2));
    let (extensions, ()) = with_extensions(extensions, async {
        assert_eq!(attempts().await, 2);
        at_most(3)
            .scope(async { assert_eq!(attempts().await, 3) })
            .await;
        assert_eq!(attempts().await, 2, "restored");
        set_local_item(at_most(4)).await;
        assert_eq!(attempts().await, 4);
    })
    .await;
    assert_eq!(extensions.get(), Some(&at_most(4)));
    assert_eq!(attempts().await, 5);
}

#[tokio::test(start_paused = true)]
async fn an_override_set_by_hand_within_a_scope_lasts_as_long_as_the_scope() {
    at_most(2)
        .scope(async {
            set_local_item(at_most(3)).await;
            tokio::task::yield_now().await;
            assert_eq!(attempts().await, 3);
        })
        .await;
    assert_eq!(attempts().await, 5);
}

#[tokio::test(start_paused = true)]
async fn a_scope_gives_back_what_its_future_gives_and_does_not_need_it_to_be_send() {
    let shared = std::rc::Rc::new(7);
    let scope = at_most(2).scope(async {
        tokio::task::yield_now().await;
        *shared
    });
    assert_eq!(scope.await, 7);
}

#[tokio::test(start_paused = true)]
async fn a_request_is_held_to_the_scope_it_is_sent_in_not_to_the_one_it_is_made_in() {
    let origin = ScriptedOrigin::new([status(503)]);
    let client = origin.client(JitteredRetryMiddleware::new(fixed(ms(1))));
    let mut made = None;
    at_most(2)
        .scope(async { made = Some(client.get(URL).send()) })
        .await;
    assert_eq!(report(&made.unwrap().await).attempts(), 5);
}
