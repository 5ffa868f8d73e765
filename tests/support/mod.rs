//! The scripted origin: a terminal middleware that answers from a script and writes down when it was asked.
//!
//! It sends nothing, so that tests can run under paused time and assert exact moments.

#![allow(dead_code)] // Every test binary uses its own part of this.

use std::collections::VecDeque;
use std::future::{pending, ready};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Extensions;
use reqwest::dns::{Name, Resolve, Resolving};
use reqwest::{Request, Response, ResponseBuilderExt, Url};
use reqwest_jitter::{Backoff, JitteredRetryMiddleware, RetryPolicy, RetryReport};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Error, Middleware, Next};
use tokio::time::Instant;

/// One answer of the origin, or the lack of one.
#[derive(Clone)]
pub(crate) struct Answer {
    outcome: Outcome,
    headers: Vec<(&'static str, Vec<u8>)>,
    url: Option<&'static str>,
    takes: Duration,
    body: &'static str,
}

#[derive(Clone, Copy)]
enum Outcome {
    Status(u16),
    Unreachable,
    TimedOut,
}

pub(crate) fn status(status: u16) -> Answer {
    Answer::of(Outcome::Status(status))
}

/// reqwest's own error for a name that nobody knows: never sent.
pub(crate) fn unreachable() -> Answer {
    Answer::of(Outcome::Unreachable)
}

/// reqwest's own error for an attempt that took longer than its timeout of 10 ms: nobody knows what came of it.
pub(crate) fn timed_out() -> Answer {
    Answer::of(Outcome::TimedOut)
}

impl Answer {
    fn of(outcome: Outcome) -> Self {
        Self {
            outcome,
            headers: Vec::new(),
            url: None,
            takes: Duration::ZERO,
            body: "",
        }
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name, value.as_ref().to_vec()));
        self
    }

    pub(crate) fn body(self, body: &'static str) -> Self {
        Self { body, ..self }
    }

    /// The URL that answers, if a redirect was followed.
    pub(crate) fn at(self, url: &'static str) -> Self {
        Self {
            url: Some(url),
            ..self
        }
    }

    /// How long the origin takes to answer.
    pub(crate) fn after(self, takes: Duration) -> Self {
        Self { takes, ..self }
    }

    async fn give(&self, request: &Request) -> Result<Response, Error> {
        if !self.takes.is_zero() {
            tokio::time::sleep(self.takes).await;
        }
        match self.outcome {
            Outcome::Status(status) => Ok(self.response(status, request.url())),
            Outcome::Unreachable => fail(Resolver { answers: true }, request).await,
            Outcome::TimedOut => fail(Resolver { answers: false }, request).await,
        }
    }

    fn response(&self, status: u16, asked: &Url) -> Response {
        let url = self
            .url
            .map_or_else(|| asked.clone(), |url| url.parse().unwrap());
        let mut builder = http::Response::builder().status(status).url(url);
        for (name, value) in &self.headers {
            builder = builder.header(*name, value.as_slice());
        }
        builder.body(self.body).unwrap().into()
    }
}

/// An attempt without a timeout of its own fails after 10 ms.
async fn fail(resolver: Resolver, request: &Request) -> Result<Response, Error> {
    let client = reqwest::Client::builder()
        .no_proxy()
        .dns_resolver(resolver)
        .build()
        .unwrap();
    let timeout = request.timeout().copied().unwrap_or(ms(10));
    Ok(client
        .get(request.url().clone())
        .timeout(timeout)
        .send()
        .await?)
}

/// Fails without a socket: at once, or by never answering.
#[derive(Clone, Copy)]
struct Resolver {
    answers: bool,
}

impl Resolve for Resolver {
    fn resolve(&self, _name: Name) -> Resolving {
        if self.answers {
            Box::pin(ready(Err("no such host".into())))
        } else {
            Box::pin(pending())
        }
    }
}

/// What arrived at the origin.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) at: Instant,
    /// When it was answered.
    pub(crate) until: Option<Instant>,
    pub(crate) method: http::Method,
    pub(crate) url: Url,
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) headers: http::HeaderMap,
    pub(crate) extensions: Extensions,
}

/// Answers from a script; once that is used up, the last answer is repeated for ever.
#[derive(Clone)]
pub(crate) struct ScriptedOrigin {
    state: Arc<Mutex<State>>,
}

struct State {
    script: VecDeque<Answer>,
    arrivals: Vec<Arrival>,
    count: usize,
    is_forgetting: bool,
}

impl ScriptedOrigin {
    pub(crate) fn new(script: impl IntoIterator<Item = Answer>) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                script: script.into_iter().collect(),
                arrivals: Vec::new(),
                count: 0,
                is_forgetting: false,
            })),
        }
    }

    /// Only counts what arrives, for tests that send a lot.
    pub(crate) fn forgetting(self) -> Self {
        self.state.lock().unwrap().is_forgetting = true;
        self
    }

    /// A client whose requests pass this retry layer and end here.
    pub(crate) fn client(&self, retry: JitteredRetryMiddleware) -> ClientWithMiddleware {
        ClientBuilder::new(reqwest::Client::new())
            .with(retry)
            .with(self.clone())
            .build()
    }

    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        self.state.lock().unwrap().arrivals.clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.state.lock().unwrap().count
    }

    /// The waits between an answer and the next arrival.
    pub(crate) fn rests(&self) -> Vec<Duration> {
        let arrivals = self.arrivals();
        arrivals
            .windows(2)
            .map(|pair| pair[1].at - pair[0].until.expect("an answer"))
            .collect()
    }

    /// The time between one arrival and the next.
    pub(crate) fn gaps(&self) -> Vec<Duration> {
        let arrivals = self.arrivals();
        arrivals
            .windows(2)
            .map(|pair| pair[1].at - pair[0].at)
            .collect()
    }
}

#[async_trait::async_trait]
impl Middleware for ScriptedOrigin {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        _next: Next<'_>,
    ) -> Result<Response, Error> {
        let (answer, number) = {
            let mut state = self.state.lock().unwrap();
            state.count += 1;
            let number = state.arrivals.len();
            if !state.is_forgetting {
                state.arrivals.push(Arrival {
                    at: Instant::now(),
                    until: None,
                    method: request.method().clone(),
                    url: request.url().clone(),
                    body: request
                        .body()
                        .and_then(|body| body.as_bytes())
                        .map(<[u8]>::to_vec),
                    headers: request.headers().clone(),
                    extensions: extensions.clone(),
                });
            }
            let answer = if state.script.len() > 1 {
                state.script.pop_front().unwrap()
            } else {
                state
                    .script
                    .front()
                    .cloned()
                    .expect("a script has an answer")
            };
            (answer, number)
        };
        let outcome = answer.give(&request).await;
        if let Some(arrival) = self.state.lock().unwrap().arrivals.get_mut(number) {
            arrival.until = Some(Instant::now());
        }
        outcome
    }
}

/// What is left of a call that is over.
pub(crate) fn report(result: &Result<Response, Error>) -> RetryReport {
    let response = result.as_ref().unwrap();
    RetryReport::of(response).expect("a report").clone()
}

/// Waits that are the same every time, without jitter.
pub(crate) const fn fixed(delay: Duration) -> RetryPolicy {
    RetryPolicy::new(Backoff::fixed(delay))
}

pub(crate) const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

pub(crate) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) const URL: &str = "http://origin.test/resource";
