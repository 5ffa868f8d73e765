//! What `tracing` is told: one event per retry and one per give-up. The only file that names it.
//!
//! Fields are named after the OpenTelemetry conventions for HTTP where these have a name. None holds a path, a query,
//! user info or a header value; of the request they tell the method and the host, and nothing else.

use http::{Method, StatusCode};
use reqwest::Url;

use crate::report::{RetryEvent, RetryReport};

/// A call, as far as its events tell of it.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "tracing"), allow(dead_code))] // Nobody listens.
pub(crate) struct Subject<'a> {
    pub(crate) method: &'a Method,
    pub(crate) url: &'a Url,
    pub(crate) max_attempts: u32,
}

#[cfg(feature = "tracing")]
mod events {
    use std::time::Duration;

    use tracing::{Level, event};

    use super::{RetryEvent, RetryReport, StatusCode, Subject};
    use crate::classify::Cause;
    use crate::report::StopReason;

    const TARGET: &str = "reqwest_jitter";

    impl Subject<'_> {
        /// Tells of a retry before its wait begins.
        pub(crate) fn retries(self, event: &RetryEvent) {
            event!(
                target: TARGET,
                Level::DEBUG,
                http.request.method = self.known_method(),
                server.address = self.address(),
                server.port = self.url.port_or_known_default(),
                http.response.status_code = event.status().map(|status| status.as_u16()),
                http.request.resend_count = event.retry(),
                // Quoted, since `type` is a keyword to older macros.
                "error.type" = error_type(event.status(), Some(event.cause())),
                retry.delay_ms = milliseconds(event.delay()),
                retry.delay_source = event.source().as_str(),
                retry.max_attempts = self.max_attempts,
                "retrying"
            );
        }

        /// Tells of a failure that goes back to the caller. `status` is the answer to the last attempt, if it got one.
        pub(crate) fn gives_up(self, report: &RetryReport, status: Option<StatusCode>) {
            event!(
                target: TARGET,
                Level::WARN,
                http.request.method = self.known_method(),
                server.address = self.address(),
                server.port = self.url.port_or_known_default(),
                http.response.status_code = status.map(|status| status.as_u16()),
                // The convention leaves it out of a request that was sent once.
                http.request.resend_count = Some(report.retries()).filter(|retries| *retries > 0),
                "error.type" = error_type(status, report.last_cause()),
                retry.delay_ms = refused_delay(report.stop()).map(milliseconds),
                retry.max_attempts = self.max_attempts,
                retry.stop = report.stop().as_str(),
                "giving up"
            );
        }

        /// One of the methods that the convention knows. Every other one is a word of the caller's, and would be a new
        /// time series.
        fn known_method(self) -> &'static str {
            const KNOWN: [&str; 10] = [
                "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH",
                "QUERY",
            ];
            let method = self.method.as_str();
            KNOWN
                .into_iter()
                .find(|known| *known == method)
                .unwrap_or("_OTHER")
        }

        /// Without the brackets of an IPv6 address, which belong to the URL.
        fn address(&self) -> Option<&str> {
            let host = self.url.host_str()?;
            Some(host.trim_start_matches('[').trim_end_matches(']'))
        }
    }

    /// The status as it is where the server answered, and else what kept it from answering.
    fn error_type(status: Option<StatusCode>, cause: Option<Cause>) -> String {
        match (status, cause) {
            (Some(status), _) => status.as_str().to_owned(),
            (None, Some(cause)) => cause.to_string(),
            (None, None) => "_OTHER".to_owned(),
        }
    }

    /// The wait that was asked for, and was the reason to stop.
    fn refused_delay(stop: StopReason) -> Option<Duration> {
        match stop {
            StopReason::RetryAfterTooLong { retry_after } => Some(retry_after),
            _ => None,
        }
    }

    fn milliseconds(duration: Duration) -> u64 {
        u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(not(feature = "tracing"))]
#[allow(clippy::unused_self)] // Nobody listens.
impl Subject<'_> {
    pub(crate) fn retries(self, _event: &RetryEvent) {}

    pub(crate) fn gives_up(self, _report: &RetryReport, _status: Option<StatusCode>) {}
}
