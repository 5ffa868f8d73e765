//! What a gate says to whom it turns away.

use std::fmt;
use std::sync::Arc;

use reqwest_middleware::Error;
use tokio::time::Instant;

/// The error of a request that a [`HostGate`](crate::HostGate) turned away: it was never sent.
///
/// It comes at once, as an [`Error::Middleware`], when the wait would be longer
/// than the gate's `max_wait` or the request's deadline allows. It is not retried by the retry layer above, and costs
/// no retry of the budget.
///
/// ```
/// use reqwest_jitter::GateClosed;
///
/// fn retry_at(error: &reqwest_middleware::Error) -> Option<tokio::time::Instant> {
///     GateClosed::of(error).map(GateClosed::retry_at)
/// }
/// # let _ = retry_at;
/// ```
#[derive(Clone, Debug)]
pub struct GateClosed {
    pub(crate) origin: Arc<str>,
    pub(crate) retry_at: Instant,
}

impl GateClosed {
    /// Finds this error in one that a client returned, also where another middleware has wrapped it.
    #[must_use]
    pub fn of(error: &Error) -> Option<&Self> {
        match error {
            Error::Middleware(error) => error.chain().find_map(|link| link.downcast_ref()),
            Error::Reqwest(_) => None,
        }
    }

    /// Returns the gate's key: scheme, host and port, as in `https://example.com`, or what
    /// [`with_key`](crate::HostGate::with_key) made of the request.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Returns when it is worth to come back: the moment until which the gate is closed, or, while a probe is out, one
    /// round trip from now.
    #[must_use]
    pub fn retry_at(&self) -> Instant {
        self.retry_at
    }
}

impl fmt::Display for GateClosed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the gate for {} is closed", self.origin)
    }
}

impl std::error::Error for GateClosed {}
