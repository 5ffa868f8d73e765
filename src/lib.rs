//! Retries for `reqwest`.

#![warn(missing_docs)]
// Here and not in Cargo.toml, so that tests and examples stay readable.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used
    )
)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod backoff;
mod body;
mod bucket;
mod budget;
mod classify;
mod drain;
mod entropy;
mod gate;
mod hint;
mod jitter;
mod middleware;
mod origin;
mod overrides;
mod policy;
mod report;
mod session;

pub use task_local_extensions;

pub use crate::backoff::Backoff;
pub use crate::body::ReplayableBody;
pub use crate::budget::RetryBudget;
pub use crate::classify::{
    Attempt, Cause, Classifier, ClassifyFn, DefaultClassifier, Effect, Verdict, classify_fn,
};
pub use crate::gate::HostGate;
pub use crate::gate::closed::GateClosed;
pub use crate::hint::{DelayHints, HintUnit};
pub use crate::jitter::Jitter;
pub use crate::middleware::JitteredRetryMiddleware;
pub use crate::overrides::RetryOverride;
pub use crate::policy::{Replay, RetryPolicy};
pub use crate::report::{DelaySource, RetryAttempt, RetryEvent, RetryReport, StopReason};
