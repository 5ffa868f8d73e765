//! Retries for [`reqwest`] that come back when the server allows it, at a moment of their own, and never repeat a write
//! blindly.
//!
//! ```no_run
//! use reqwest_jitter::JitteredRetryMiddleware;
//! use reqwest_middleware::ClientBuilder;
//!
//! # async fn run() -> reqwest_middleware::Result<()> {
//! let client = ClientBuilder::new(reqwest::Client::new())
//!     .with(JitteredRetryMiddleware::default())
//!     .build();
//! let response = client.get("https://example.com/").send().await?;
//! # Ok(())
//! # }
//! ```
//!
//! That is all it takes. The defaults make five attempts, wait a random part of 1, 2, 4 and 8 seconds in between, do
//! exactly what `Retry-After` asks for, send a POST again only where the server certainly has not acted on it, and keep
//! to a budget per host. The rest of this page says how to choose otherwise; the pages of the [`guide`] say why.
//!
//! # How a call goes on
//!
//! ```text
//! Request -> attempt -> outcome -> Verdict -> decision -> delay -> sleep -> attempt ... -> Response | Error
//!                          |          |          |          |
//!                     DelayHints  Classifier  Replay     Backoff, Jitter     with a RetryReport beside it
//!                                             policy
//!                                             RetryBudget
//! ```
//!
//! An *attempt* is one send of the request, numbered from 1; a *retry* is an attempt after the first. Each outcome is
//! classified: accept, reject, or worth a retry, and then with what the server may have done about the failed attempt.
//! Whether a retry is made depends on that effect, the method, the attempts, the time and the budget; its *delay* is the
//! server's *hint* if there is one, and is computed otherwise. The response or error that comes back is untouched.
//!
//! # Choosing a policy
//!
//! A [`RetryPolicy`] is plain `Copy` data, and `const`. Every setter clamps instead of failing.
//!
//! ```
//! use std::time::Duration;
//! use reqwest_jitter::{Backoff, Jitter, JitteredRetryMiddleware, Replay, RetryPolicy};
//!
//! const POLICY: RetryPolicy =
//!     RetryPolicy::new(Backoff::exponential(Duration::from_millis(200), Duration::from_secs(10)))
//!         .with_jitter(Jitter::Decorrelated)
//!         .with_max_attempts(6)
//!         .with_max_elapsed(Duration::from_secs(60))
//!         .with_max_retry_after(Duration::from_secs(30))
//!         .with_replay(Replay::WhenUnprocessed);
//!
//! let retry = JitteredRetryMiddleware::new(POLICY);
//! # let _ = retry;
//! ```
//!
//! | jitter | delay, with `t = min(cap, base * factor^(retry - 1))` | take it |
//! |---|---|---|
//! | [`Full`](Jitter::Full) | `random(0, t)` | by default: the widest spread |
//! | [`Equal`](Jitter::Equal) | `random(t/2, t)` | where every wait should have a floor |
//! | [`Decorrelated`](Jitter::Decorrelated) | `min(cap, random(base, previous * 3))` | where attempts should move apart even after many rounds |
//! | [`None`](Jitter::None) | `t` | alone, or in tests |
//!
//! [`Backoff::delays`] shows what a policy would wait, without sending anything.
//!
//! # What is retried
//!
//! 429, 5xx (but those that will not mend: 501, 505, 506, 508, 510, 511), and transport errors that may; the table is
//! at [`DefaultClassifier`]. An idempotent request is sent again after any of them, another one only after those that
//! certainly had no effect: 429, a 503 that names a wait, a connection that never came about, an HTTP/2 stream that the
//! server refused. [`Replay`] moves that line, an `Idempotency-Key` or [`RetryOverride::assume_idempotent`] lifts a
//! request over it, and [`guide::safety`] says what it protects from. A [`Classifier`] of one's own has the first word:
//!
//! ```
//! use reqwest_jitter::{Cause, Classifier, DefaultClassifier, Effect, JitteredRetryMiddleware, Verdict, classify_fn};
//!
//! let retry = JitteredRetryMiddleware::default().with_classifier(classify_fn(|attempt| match attempt.status() {
//!     Some(status) if status == 409 => Verdict::retry(Cause::Other("locked"), Effect::None),
//!     _ => DefaultClassifier::new().classify(attempt),
//! }));
//! # let _ = retry;
//! ```
//!
//! # What the server asks for
//!
//! A hint is waited to the millisecond: never earlier, never jittered, never clamped. One that is longer than
//! `max_retry_after`, and any delay that doesn't fit `max_elapsed` or the deadline, returns the response at once instead
//! of sleeping for nothing. [`DelayHints`] says which headers are read; [`DelayHints::vendors`] adds what GitHub,
//! Discord and a dozen others have made up.
//!
//! # How much a host can bear
//!
//! A [`RetryBudget`] limits the retries of all calls to an origin; it is on by default. A [`HostGate`] below the retry
//! layer holds every request back while its host can't serve. [`guide::neighbours`] says when to take which.
//!
//! # One request, one task
//!
//! ```no_run
//! # async fn run(client: reqwest_middleware::ClientWithMiddleware) -> reqwest_middleware::Result<()> {
//! use std::time::Duration;
//! use reqwest_jitter::RetryOverride;
//! use tokio::time::Instant;
//!
//! // This request, whatever the client's policy says.
//! let settings = RetryOverride::new().with_max_attempts(2).assume_idempotent(true);
//! client.post("https://example.com/orders").with_extension(settings).send().await?;
//!
//! // Everything that is sent within this future.
//! let deadline = Instant::now() + Duration::from_secs(3);
//! RetryOverride::new()
//!     .with_deadline(deadline)
//!     .scope(async { client.get("https://example.com/").send().await })
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! A streaming upload can be sent again if it can be made again: [`ReplayableBody`].
//!
//! # Seeing what happened
//!
//! [`RetryReport::of`] a response tells the attempts, the waits and why there was no further attempt;
//! [`on_retry`](JitteredRetryMiddleware::on_retry) and [`on_give_up`](JitteredRetryMiddleware::on_give_up) tell it
//! while it happens; a [`RetryAttempt`] in the extensions tells the middlewares below. For logs there is a `tracing`
//! event for each retry, and a warning for each call that is given up. [`guide::observability`] has the fields, spans
//! and metrics.
//!
//! # More
//!
//! [`guide::chain`] says where to sit among other middlewares, [`guide::time`] how timeouts, `max_elapsed` and deadlines add
//! up, [`guide::testing`] how to test code that uses this crate, and [`guide::migration`] what changes for those who come from
//! `reqwest-retry` or `backon`.
//!
//! # What it does not do
//!
//! - It can't see errors in a response's body: those come to light when the caller reads it, after the middlewares. The
//!   answer is to read the body inside of what is retried, with a middleware of one's own below this one.
//! - It doesn't interrupt an attempt: that is what reqwest's timeouts are for. [`guide::time`] has the three clocks.
//! - It doesn't hedge, and it doesn't repeat a call that succeeded.
//! - It can't open a fresh connection for a retry; reqwest decides about connections. Over HTTP/2 a dead one is used
//!   until keep-alive pings find out: set `http2_keep_alive_interval` and `http2_keep_alive_timeout`.
//! - It doesn't support wasm.
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `tracing` | yes | an event per retry and per give-up; no crate that reqwest doesn't bring |
//! | `http2` | no | reads HTTP/2's own refusals; to be set where reqwest's `http2` is |
//! | `idempotency-keys` | no | `with_idempotency_keys`: a key for every POST and PATCH |
//! | `serde` | no | a [`RetryPolicy`] from a configuration file, and into one |
//!
//! No feature changes what another setting does.

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
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod gate;
pub mod guide;
mod hint;
mod jitter;
mod middleware;
mod origin;
mod overrides;
mod policy;
mod report;
mod session;
mod telemetry;

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

// The README's code is held to the same tests as the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
