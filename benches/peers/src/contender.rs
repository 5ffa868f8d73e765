//! The ways of retrying that are compared, each set up as its own documentation does it.

use std::time::Duration;

use http::Extensions;
use reqwest::{Request, Response};
use reqwest_jitter::{Backoff, HostGate, Jitter, JitteredRetryMiddleware, RetryPolicy};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Error, Middleware};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contender {
    /// No retries: what the others are measured against.
    Alone,
    /// `reqwest::retry`, part of the client itself: it can't be put above an origin within the process.
    Own,
    ReqwestRetry,
    Backon,
    Here,
    /// Like `Here`, where the origin has failed once, so that the budget has something to look up.
    HereAfterFailure,
    HereWithoutBudget,
    HereWithGate,
}

/// How long and how often to retry; a plan without jitter is for one call at a time, and without a budget, too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) base: Duration,
    pub(crate) cap: Duration,
    pub(crate) is_jittered: bool,
    pub(crate) retries: u32,
}

/// Something that sends a request until it succeeds or is given up.
#[derive(Clone)]
pub(crate) enum Client {
    Layered(ClientWithMiddleware),
    #[cfg(feature = "backon")]
    Backon(ClientWithMiddleware, backon::ExponentialBuilder),
}

impl Plan {
    pub(crate) const fn fixed(delay: Duration, retries: u32) -> Self {
        Self {
            base: delay,
            cap: delay,
            is_jittered: false,
            retries,
        }
    }

    pub(crate) const fn exponential(base: Duration, cap: Duration, retries: u32) -> Self {
        Self {
            base,
            cap,
            is_jittered: true,
            retries,
        }
    }
}

impl Contender {
    /// The columns of the table.
    pub(crate) const COLUMNS: [Self; 4] = [Self::Own, Self::ReqwestRetry, Self::Backon, Self::Here];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Own => "reqwest",
            Self::ReqwestRetry => "reqwest-retry",
            Self::Backon => "backon",
            Self::Here => "reqwest-jitter",
            Self::HereAfterFailure => "reqwest-jitter-after-failure",
            Self::HereWithoutBudget => "reqwest-jitter-without-budget",
            Self::HereWithGate => "reqwest-jitter-with-gate",
        }
    }

    #[allow(dead_code)] // Only `send` is told names.
    pub(crate) fn named(name: &str) -> Option<Self> {
        [
            Self::Alone,
            Self::Own,
            Self::ReqwestRetry,
            Self::Backon,
            Self::Here,
            Self::HereAfterFailure,
            Self::HereWithoutBudget,
            Self::HereWithGate,
        ]
        .into_iter()
        .find(|contender| contender.name() == name)
    }

    pub(crate) fn is_built(self) -> bool {
        (self != Self::ReqwestRetry || cfg!(feature = "reqwest-retry"))
            && (self != Self::Backon || cfg!(feature = "backon"))
    }

    /// A client that speaks to a server.
    pub(crate) fn client(self, plan: Plan) -> Client {
        self.above(plan, 0, |builder| builder)
    }

    /// A client whose requests end at an origin within the process.
    pub(crate) fn client_to(self, origin: impl Middleware, plan: Plan, seed: u64) -> Client {
        assert_ne!(
            self,
            Self::Own,
            "reqwest's own retry is below every middleware"
        );
        self.above(plan, seed, |builder| builder.with(origin))
    }

    fn above(
        self,
        plan: Plan,
        seed: u64,
        end: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) -> Client {
        // Zero, since reqwest makes a copy of each request that it may retry, `never` or not.
        let retries = match self {
            Self::Own => own(plan),
            _ => reqwest::retry::never().max_retries_per_request(0),
        };
        let client = reqwest::Client::builder()
            .no_proxy()
            .retry(retries)
            .build()
            .expect("a client");
        let builder = ClientBuilder::new(client);
        let builder = match self {
            Self::Alone | Self::Own => builder,
            Self::Here | Self::HereAfterFailure => builder.with(here(plan, seed)),
            Self::HereWithoutBudget => builder.with(here(plan, seed).without_budget()),
            Self::HereWithGate => builder
                .with(here(plan, seed).without_budget())
                .with(HostGate::new().with_seed(seed)),
            #[cfg(feature = "reqwest-retry")]
            Self::ReqwestRetry => builder.with(reqwest_retry(plan)),
            #[cfg(feature = "backon")]
            Self::Backon => return Client::Backon(end(builder).build(), backon(plan)),
            #[allow(unreachable_patterns)] // With all features there is none left.
            other => unreachable!("{} is not built", other.name()),
        };
        Client::Layered(end(builder).build())
    }
}

impl Client {
    pub(crate) async fn send(
        &self,
        request: Request,
        extensions: &mut Extensions,
    ) -> Result<Response, Error> {
        match self {
            Self::Layered(client) => client.execute_with_extensions(request, extensions).await,
            #[cfg(feature = "backon")]
            Self::Backon(client, builder) => {
                use backon::Retryable;

                // As in the documentation's examples: a closure that sends, and says what is an error.
                let attempt = || {
                    let copy = request.try_clone();
                    async move {
                        let copy =
                            copy.ok_or_else(|| anyhow::anyhow!("a body is not cloneable"))?;
                        Ok(client.execute(copy).await?.error_for_status()?)
                    }
                };
                attempt.retry(*builder).when(is_transient).await
            }
        }
    }
}

fn here(plan: Plan, seed: u64) -> JitteredRetryMiddleware {
    let jitter = if plan.is_jittered {
        Jitter::Full
    } else {
        Jitter::None
    };
    let backoff = Backoff::exponential(plan.base, plan.cap).with_jitter(jitter);
    let policy = RetryPolicy::new(backoff).with_max_attempts(plan.retries + 1);
    let retry = JitteredRetryMiddleware::new(policy).with_seed(seed);
    if plan.is_jittered {
        retry
    } else {
        retry.without_budget()
    }
}

fn own(plan: Plan) -> reqwest::retry::Builder {
    let builder = reqwest::retry::for_host("127.0.0.1")
        .max_retries_per_request(plan.retries)
        .classify_fn(|attempt| match attempt.status() {
            Some(status) if status == 429 || status.is_server_error() => attempt.retryable(),
            _ => attempt.success(),
        });
    if plan.is_jittered {
        builder
    } else {
        builder.no_budget()
    }
}

#[cfg(feature = "reqwest-retry")]
fn reqwest_retry(plan: Plan) -> reqwest_retry::RetryTransientMiddleware<impl RetryPolicyOfPeer> {
    use reqwest_retry::policies::ExponentialBackoff;
    use reqwest_retry::{Jitter, RetryTransientMiddleware};

    let jitter = if plan.is_jittered {
        Jitter::Full
    } else {
        Jitter::None
    };
    RetryTransientMiddleware::new_with_policy(
        ExponentialBackoff::builder()
            .retry_bounds(plan.base, plan.cap)
            .jitter(jitter)
            .build_with_max_retries(plan.retries),
    )
}

#[cfg(feature = "reqwest-retry")]
use reqwest_retry::RetryPolicy as RetryPolicyOfPeer;

#[cfg(feature = "backon")]
fn backon(plan: Plan) -> backon::ExponentialBuilder {
    let builder = backon::ExponentialBuilder::new()
        .with_min_delay(plan.base)
        .with_max_delay(plan.cap)
        .with_max_times(plan.retries as usize);
    if plan.is_jittered {
        builder.with_jitter()
    } else {
        builder
    }
}

#[cfg(feature = "backon")]
fn is_transient(error: &Error) -> bool {
    match error.status() {
        Some(status) => status == 429 || status.is_server_error(),
        None => error.is_connect() || error.is_timeout(),
    }
}
