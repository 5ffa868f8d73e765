//! One report as a script: a request, what the origin answers to its attempts, and what has to come of it.

use std::time::Duration;

use http::Extensions;
use reqwest::{Method, Request, Response};
use reqwest_jitter::{
    Backoff, Jitter, JitteredRetryMiddleware, RetryEvent, RetryPolicy, RetryReport, StopReason,
};
use reqwest_middleware::Error;
use tokio::time::Instant;

use crate::support::{Answer, ScriptedOrigin, URL, ms};

pub(crate) const JITTERS: [Jitter; 4] = [
    Jitter::None,
    Jitter::Full,
    Jitter::Equal,
    Jitter::Decorrelated,
];
/// A moment far from every local clock.
pub(crate) const DATE: &str = "Sat, 31 Dec 2016 23:59:59 GMT";
pub(crate) const DATE_AS_UNIX: u64 = 1_483_228_799;

/// Doubling waits without jitter.
pub(crate) const fn curve(base: u64, cap: u64) -> RetryPolicy {
    RetryPolicy::new(Backoff::exponential(ms(base), ms(cap)).with_jitter(Jitter::None))
}

/// A GET, unless it says otherwise, under a policy that would wait 100, 200, 400 and 800 ms.
pub(crate) struct Case {
    origin: ScriptedOrigin,
    retry: JitteredRetryMiddleware,
    request: Request,
    extensions: Extensions,
}

/// The last answer is repeated for ever.
pub(crate) fn get<const N: usize>(script: [Answer; N]) -> Case {
    send(Method::GET, script)
}

pub(crate) fn post<const N: usize>(script: [Answer; N]) -> Case {
    send(Method::POST, script).body("an order")
}

pub(crate) fn send<const N: usize>(method: Method, script: [Answer; N]) -> Case {
    Case {
        origin: ScriptedOrigin::new(script),
        retry: JitteredRetryMiddleware::new(curve(100, 30_000)),
        request: Request::new(method, URL.parse().unwrap()),
        extensions: Extensions::new(),
    }
}

impl Case {
    pub(crate) fn policy(self, policy: RetryPolicy) -> Self {
        self.retry(JitteredRetryMiddleware::new(policy))
    }

    pub(crate) fn retry(self, retry: JitteredRetryMiddleware) -> Self {
        Self { retry, ..self }
    }

    pub(crate) fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.request
            .headers_mut()
            .insert(name, value.parse().unwrap());
        self
    }

    pub(crate) fn body(mut self, body: impl Into<reqwest::Body>) -> Self {
        *self.request.body_mut() = Some(body.into());
        self
    }

    /// The timeout of each attempt.
    pub(crate) fn timeout(mut self, timeout: Duration) -> Self {
        *self.request.timeout_mut() = Some(timeout);
        self
    }

    pub(crate) fn extension<T: Clone + Send + Sync + 'static>(mut self, extension: T) -> Self {
        self.extensions.insert(extension);
        self
    }

    pub(crate) async fn run(mut self) -> Done {
        let client = self.origin.client(self.retry);
        let start = Instant::now();
        let result = client
            .execute_with_extensions(self.request, &mut self.extensions)
            .await;
        Done {
            took: start.elapsed(),
            report: RetryReport::from_extensions(&self.extensions).cloned(),
            origin: self.origin,
            result,
        }
    }
}

pub(crate) struct Done {
    pub(crate) result: Result<Response, Error>,
    pub(crate) report: Option<RetryReport>,
    pub(crate) origin: ScriptedOrigin,
    pub(crate) took: Duration,
}

impl Done {
    /// Accepted after these waits, in milliseconds.
    #[track_caller]
    pub(crate) fn answers<const N: usize>(&self, status: u16, waits: [u64; N]) -> &Self {
        self.ends(
            Some(status),
            &waits,
            (N > 0).then_some(StopReason::Accepted),
        );
        self
    }

    /// The last response comes back as it is, for this reason.
    #[track_caller]
    pub(crate) fn stops<const N: usize>(
        &self,
        status: u16,
        waits: [u64; N],
        stop: StopReason,
    ) -> &Self {
        self.ends(Some(status), &waits, Some(stop));
        self
    }

    /// The last error comes back as it is, for this reason.
    #[track_caller]
    pub(crate) fn fails<const N: usize>(&self, waits: [u64; N], stop: StopReason) -> &Self {
        self.ends(None, &waits, Some(stop));
        assert!(matches!(self.result, Err(Error::Reqwest(_))), "untouched");
        self
    }

    /// What was really waited and sent is what the report says.
    #[track_caller]
    fn ends(&self, status: Option<u16>, waits: &[u64], stop: Option<StopReason>) {
        let waits: Vec<_> = waits.iter().copied().map(ms).collect();
        let answered = self.result.as_ref().ok();
        assert_eq!(
            answered.map(|response| response.status().as_u16()),
            status,
            "{:?}",
            self.result
        );
        assert_eq!(self.origin.rests(), waits, "what was waited");
        assert_eq!(self.origin.count(), waits.len() + 1, "what was sent");
        assert_eq!(self.report.as_ref().map(RetryReport::stop), stop);
        if let Some(report) = &self.report {
            let told: Vec<_> = report.history().iter().map(RetryEvent::delay).collect();
            assert_eq!(told, waits, "what the report says");
            assert_eq!(report.slept(), waits.iter().sum());
            assert_eq!(report.attempts() as usize, waits.len() + 1);
        }
    }

    #[track_caller]
    pub(crate) fn report(&self) -> &RetryReport {
        self.report.as_ref().expect("a report")
    }

    #[track_caller]
    pub(crate) fn response(self) -> Response {
        self.result.unwrap()
    }
}
