//! What one request, or everything within one task, asks for beside the client's policy.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::Extensions;
use task_local_extensions::{get_local_item, set_local_item};
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::jitter::Jitter;
use crate::policy::{Replay, RetryPolicy, Terms};

/// Overrides the client's policy for one request, or for everything that one task sends.
///
/// For a request it goes into its extensions, for a task it is put in force by [`scope`](Self::scope). Field by field
/// the request's word counts before the task's, and the task's before the client's; of several deadlines the earliest
/// counts. What is not set changes nothing.
///
/// ```no_run
/// # async fn run(client: reqwest_middleware::ClientWithMiddleware) -> reqwest_middleware::Result<()> {
/// use reqwest_jitter::RetryOverride;
///
/// client
///     .post("https://example.com/orders")
///     .with_extension(RetryOverride::new().with_max_attempts(2).assume_idempotent(true))
///     .send()
///     .await?;
/// client.get("https://example.com/health").with_extension(RetryOverride::disabled()).send().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct RetryOverride {
    attempts: Option<Attempts>,
    backoff: Option<Backoff>,
    jitter: Option<Jitter>,
    max_elapsed: Option<Duration>,
    max_retry_after: Option<Duration>,
    replay: Option<Replay>,
    hint_spread: Option<Duration>,
    #[cfg(feature = "idempotency-keys")]
    idempotency_keys: Option<bool>,
    assume_idempotent: Option<bool>,
    deadline: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempts {
    /// The retry layer steps aside: no report, no cost.
    Disabled,
    AtMost(u32),
}

impl RetryOverride {
    /// Creates an override that changes nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an override that switches retries off: the request passes as if the retry layer were not there.
    ///
    /// It takes the place of [`with_max_attempts`](Self::with_max_attempts): a request that sets that one is retried
    /// again within a task that is disabled.
    pub fn disabled() -> Self {
        Self {
            attempts: Some(Attempts::Disabled),
            ..Self::default()
        }
    }

    /// Sets the backoff, its jitter included. See [`RetryPolicy::with_backoff`].
    pub fn with_backoff(self, backoff: Backoff) -> Self {
        Self {
            backoff: Some(backoff),
            jitter: None,
            ..self
        }
    }

    /// Sets the jitter alone. See [`RetryPolicy::with_jitter`].
    pub fn with_jitter(self, jitter: Jitter) -> Self {
        Self {
            jitter: Some(jitter),
            ..self
        }
    }

    /// Sets how often the request is sent at most. See [`RetryPolicy::with_max_attempts`].
    pub fn with_max_attempts(self, max_attempts: u32) -> Self {
        Self {
            attempts: Some(Attempts::AtMost(max_attempts)),
            ..self
        }
    }

    /// Sets how long after its start a call may still begin a retry. See [`RetryPolicy::with_max_elapsed`].
    pub fn with_max_elapsed(self, max_elapsed: Duration) -> Self {
        Self {
            max_elapsed: Some(max_elapsed),
            ..self
        }
    }

    /// Sets the longest wait a server may ask for. See [`RetryPolicy::with_max_retry_after`].
    pub fn with_max_retry_after(self, max_retry_after: Duration) -> Self {
        Self {
            max_retry_after: Some(max_retry_after),
            ..self
        }
    }

    /// Sets what may be sent again. See [`RetryPolicy::with_replay`].
    pub fn with_replay(self, replay: Replay) -> Self {
        Self {
            replay: Some(replay),
            ..self
        }
    }

    /// Sets how far retries after a hint are spread. See [`RetryPolicy::with_hint_spread`].
    pub fn with_hint_spread(self, spread: Duration) -> Self {
        Self {
            hint_spread: Some(spread),
            ..self
        }
    }

    /// Gives a POST or PATCH without an `Idempotency-Key` one. See [`RetryPolicy::with_idempotency_keys`].
    #[cfg(feature = "idempotency-keys")]
    #[cfg_attr(docsrs, doc(cfg(feature = "idempotency-keys")))]
    pub fn with_idempotency_keys(self) -> Self {
        Self {
            idempotency_keys: Some(true),
            ..self
        }
    }

    /// Says whether the request can be repeated without harm, whatever its method and its headers say.
    ///
    /// `false` is for a GET with side effects.
    pub fn assume_idempotent(self, is_idempotent: bool) -> Self {
        Self {
            assume_idempotent: Some(is_idempotent),
            ..self
        }
    }

    /// Sets the moment by which a retry must have begun; an attempt in flight is never interrupted.
    ///
    /// A retry that would begin later is neither made nor waited for: the last outcome is returned at once, with
    /// [`StopReason::ElapsedExhausted`](crate::StopReason::ElapsedExhausted).
    pub fn with_deadline(self, deadline: Instant) -> Self {
        Self {
            deadline: Some(deadline),
            ..self
        }
    }

    /// Runs a future with this override in force for every request that it sends.
    ///
    /// Scopes within each other inherit: what the inner one leaves open, the outer one decides. The scope belongs to
    /// the future, not to what it spawns: a task started with `tokio::spawn` sees none of it, unless its own future is
    /// wrapped in a scope. A panic within leaves nothing behind, and dropping the future neither.
    ///
    /// It is kept in [`task_local_extensions`], without hiding what others keep there.
    ///
    /// ```no_run
    /// # async fn handle_inbound_request() {}
    /// # async fn run() {
    /// use std::time::Duration;
    /// use reqwest_jitter::RetryOverride;
    /// use tokio::time::Instant;
    ///
    /// let deadline = Instant::now() + Duration::from_secs(3);
    /// RetryOverride::new().with_deadline(deadline).scope(handle_inbound_request()).await;
    /// # }
    /// ```
    pub async fn scope<F: Future>(self, future: F) -> F::Output {
        let mut future = pin!(future);
        // What is in force around us is only known while we are polled.
        let mut in_force = None;
        poll_fn(move |context| {
            let outer = of_task();
            let inner = in_force.unwrap_or_else(|| self.within(outer.unwrap_or_default()));
            let swap = Swap {
                outer: outer.unwrap_or_default(),
                kept: &mut in_force,
            };
            put_in_force(inner);
            let polled = future.as_mut().poll(context);
            drop(swap);
            polled
        })
        .await
    }

    /// Fills what this override leaves open from another one.
    fn within(self, outer: Self) -> Self {
        let is_backoff_set = self.backoff.is_some();
        Self {
            attempts: self.attempts.or(outer.attempts),
            backoff: self.backoff.or(outer.backoff),
            // A backoff brings its own jitter along.
            jitter: if is_backoff_set {
                self.jitter
            } else {
                self.jitter.or(outer.jitter)
            },
            max_elapsed: self.max_elapsed.or(outer.max_elapsed),
            max_retry_after: self.max_retry_after.or(outer.max_retry_after),
            replay: self.replay.or(outer.replay),
            hint_spread: self.hint_spread.or(outer.hint_spread),
            #[cfg(feature = "idempotency-keys")]
            idempotency_keys: self.idempotency_keys.or(outer.idempotency_keys),
            assume_idempotent: self.assume_idempotent.or(outer.assume_idempotent),
            deadline: earliest(self.deadline, outer.deadline),
        }
    }

    fn apply(self, policy: RetryPolicy) -> Terms {
        let mut policy = RetryPolicy {
            backoff: self.backoff.unwrap_or(policy.backoff),
            max_elapsed: self.max_elapsed.or(policy.max_elapsed),
            max_retry_after: self.max_retry_after.unwrap_or(policy.max_retry_after),
            replay: self.replay.unwrap_or(policy.replay),
            hint_spread: self.hint_spread.unwrap_or(policy.hint_spread),
            #[cfg(feature = "idempotency-keys")]
            idempotency_keys: self.idempotency_keys.unwrap_or(policy.idempotency_keys),
            ..policy
        };
        if let Some(jitter) = self.jitter {
            policy = policy.with_jitter(jitter);
        }
        if let Some(Attempts::AtMost(max_attempts)) = self.attempts {
            policy = policy.with_max_attempts(max_attempts);
        }
        Terms {
            policy,
            assume_idempotent: self.assume_idempotent,
            deadline: self.deadline,
            is_disabled: self.attempts == Some(Attempts::Disabled),
        }
    }
}

/// Puts together what a call is held to.
#[inline(never)] // Within its caller, it costs every call thirty instructions more.
pub(crate) fn terms(policy: &RetryPolicy, extensions: &Extensions) -> Terms {
    let of_request = extensions.get::<RetryOverride>().copied();
    match (of_request, of_task()) {
        (None, None) => Terms::of(*policy),
        (of_request, of_task) => of_request
            .unwrap_or_default()
            .within(of_task.unwrap_or_default())
            .apply(*policy),
    }
}

/// The last moment at which a retry may begin. It lies in the extensions of its attempt, for whoever below lets it wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LatestBegin(pub(crate) Instant);

/// The moment after which there is no sense in sending a request any more, if there is one.
pub(crate) fn latest_begin(extensions: &Extensions) -> Option<Instant> {
    let of_request = extensions
        .get::<RetryOverride>()
        .and_then(|of_request| of_request.deadline);
    let of_retry = extensions.get().map(|&LatestBegin(latest)| latest);
    let deadline = earliest(of_request, of_task().and_then(|of_task| of_task.deadline));
    earliest(deadline, of_retry)
}

/// Restores what was in force around a scope, also while a panic passes, and keeps what the scope made of its own.
struct Swap<'a> {
    outer: RetryOverride,
    kept: &'a mut Option<RetryOverride>,
}

impl Drop for Swap<'_> {
    fn drop(&mut self) {
        *self.kept = of_task();
        // An item can't be taken out of the task's extensions again, so where there was none, one that says nothing
        // stays behind.
        put_in_force(self.outer);
    }
}

fn of_task() -> Option<RetryOverride> {
    ready_at_once(get_local_item()).flatten()
}

fn put_in_force(item: RetryOverride) {
    ready_at_once(set_local_item(item));
}

/// Polls a future of `task-local-extensions`: they are asynchronous by signature only, and never wait.
fn ready_at_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

pub(crate) fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
