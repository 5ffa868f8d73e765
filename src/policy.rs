//! What a client is configured with: plain data.

#[cfg(feature = "serde")]
mod config;

use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::jitter::Jitter;

/// Says how often, how late and how long a call is retried.
///
/// Plain data, `Copy` and `const`. No value is refused: everything clamps or saturates as its setter says.
///
/// # Default
///
/// Five attempts, [`Backoff::default`], no `max_elapsed`, a `max_retry_after` of two minutes,
/// [`Replay::WhenUnprocessed`], no hint spread.
///
/// ```
/// use std::time::Duration;
/// use reqwest_jitter::{Backoff, Jitter, Replay, RetryPolicy};
///
/// const POLICY: RetryPolicy =
///     RetryPolicy::new(Backoff::exponential(Duration::from_millis(200), Duration::from_secs(10)))
///         .with_jitter(Jitter::Decorrelated)
///         .with_max_attempts(6)
///         .with_max_elapsed(Duration::from_secs(60))
///         .with_max_retry_after(Duration::from_secs(30))
///         .with_replay(Replay::IdempotentOnly);
/// # let _ = POLICY;
/// ```
///
/// # In a configuration file
///
/// With the feature `serde` a policy is a table of these keys. All of them are optional, and what is left out has its
/// default.
///
/// | key | value |
/// |---|---|
/// | `curve` | `exponential`, `linear` or `fixed` |
/// | `jitter` | `none`, `full`, `equal` or `decorrelated`; `none` is the default of a fixed curve |
/// | `base`, `cap` | durations such as `"200ms"` or `"1m 30s"`; a fixed curve waits its `base`, and has no use for a `cap` |
/// | `factor`, `max_attempts` | whole numbers |
/// | `max_elapsed`, `max_retry_after`, `hint_spread` | durations |
/// | `replay` | `idempotent-only`, `when-unprocessed` or `always` |
/// | `idempotency_keys` | `true` or `false`, with the feature `idempotency-keys` |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct RetryPolicy {
    pub(crate) backoff: Backoff,
    pub(crate) max_attempts: u32,
    pub(crate) max_elapsed: Option<Duration>,
    pub(crate) max_retry_after: Duration,
    pub(crate) replay: Replay,
    pub(crate) hint_spread: Duration,
    #[cfg(feature = "idempotency-keys")]
    pub(crate) idempotency_keys: bool,
}

impl RetryPolicy {
    /// Creates a policy with this backoff, and the defaults for everything else.
    pub const fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
            max_attempts: 5,
            max_elapsed: None,
            max_retry_after: Duration::from_secs(120),
            replay: Replay::WhenUnprocessed,
            hint_spread: Duration::ZERO,
            #[cfg(feature = "idempotency-keys")]
            idempotency_keys: false,
        }
    }

    /// Sets the backoff, its jitter included.
    pub const fn with_backoff(self, backoff: Backoff) -> Self {
        Self { backoff, ..self }
    }

    /// Sets the jitter of the backoff. Default: [`Jitter::Full`].
    pub const fn with_jitter(self, jitter: Jitter) -> Self {
        Self {
            backoff: self.backoff.with_jitter(jitter),
            ..self
        }
    }

    /// Sets how often a request is sent at most, the first time included. Default: 5. Zero reads as 1: no retry.
    pub const fn with_max_attempts(self, max_attempts: u32) -> Self {
        Self {
            max_attempts: if max_attempts == 0 { 1 } else { max_attempts },
            ..self
        }
    }

    /// Sets how long after its start a call may still begin a retry. Default: no limit.
    ///
    /// A retry that would begin later is not made, and not waited for either: the last outcome is returned at once,
    /// with [`StopReason::ElapsedExhausted`](crate::StopReason::ElapsedExhausted). An attempt in flight is never
    /// interrupted; that is what reqwest's own timeouts are for. Zero allows only retries without a delay.
    pub const fn with_max_elapsed(self, max_elapsed: Duration) -> Self {
        Self {
            max_elapsed: Some(max_elapsed),
            ..self
        }
    }

    /// Sets the longest wait a server may ask for. Default: two minutes.
    ///
    /// A response that asks for more is returned at once, with
    /// [`StopReason::RetryAfterTooLong`](crate::StopReason::RetryAfterTooLong); coming back sooner than asked would
    /// only earn the next refusal. Zero leaves only servers that say "now".
    pub const fn with_max_retry_after(self, max_retry_after: Duration) -> Self {
        Self {
            max_retry_after,
            ..self
        }
    }

    /// Sets what may be sent again. Default: [`Replay::WhenUnprocessed`].
    pub const fn with_replay(self, replay: Replay) -> Self {
        Self { replay, ..self }
    }

    /// Sets how far retries after a hint are spread: `random(0, spread)` is added, never subtracted. Default: zero.
    ///
    /// For fleets that share one limit: without it, everyone who was told "7 seconds" returns in the same instant.
    pub const fn with_hint_spread(self, spread: Duration) -> Self {
        Self {
            hint_spread: spread,
            ..self
        }
    }

    /// Gives every POST and PATCH without an `Idempotency-Key` one of its own. Default: off.
    ///
    /// The key is a quoted version 4 UUID, made once for a call and the same on every attempt, and it makes the request
    /// count as idempotent. Only for servers that honour the header: on others it makes a duplicate possible.
    /// Source: draft-ietf-httpapi-idempotency-key-header.
    #[cfg(feature = "idempotency-keys")]
    #[cfg_attr(docsrs, doc(cfg(feature = "idempotency-keys")))]
    pub const fn with_idempotency_keys(self) -> Self {
        Self {
            idempotency_keys: true,
            ..self
        }
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::new(Backoff::default())
    }
}

/// Says what may be sent again.
///
/// | | idempotent method, `Idempotency-Key`, or `assume_idempotent` | other methods |
/// |---|---|---|
/// | `IdempotentOnly` | retry | never |
/// | `WhenUnprocessed` | retry | retry where the failed attempt had no effect |
/// | `Always` | retry | retry |
///
/// Idempotent are GET, HEAD, OPTIONS, TRACE, PUT, DELETE and QUERY, and of `WebDAV` PROPFIND, REPORT and SEARCH.
/// Source: RFC 9110 section 9.2.2.
// Exhaustive on purpose: the three rows are all there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Replay {
    /// Only what can be repeated without harm.
    IdempotentOnly,
    /// That, and everything that the server certainly has not acted on. This is the default.
    #[default]
    WhenUnprocessed,
    /// Everything. A POST that the server carried out before its connection broke is carried out twice.
    Always,
}

/// What one call is held to, once the policy and what overrides it are put together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) policy: RetryPolicy,
    /// Overrules what the method and its headers say.
    pub(crate) assume_idempotent: Option<bool>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) is_disabled: bool,
}

impl Terms {
    pub(crate) const fn of(policy: RetryPolicy) -> Self {
        Self {
            policy,
            assume_idempotent: None,
            deadline: None,
            is_disabled: false,
        }
    }
}
