//! The scripted origin: a terminal middleware that answers from a script and writes down when it was asked.
//!
//! It sends nothing, so that tests can run under paused time and assert exact moments.

#![allow(dead_code)] // Every test binary uses its own part of this.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Extensions;
use reqwest::{Request, Response, ResponseBuilderExt, Url};
use reqwest_jitter::JitteredRetryMiddleware;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Error, Middleware, Next};
use tokio::time::Instant;

/// One answer of the origin.
#[derive(Clone)]
pub(crate) struct Answer {
    status: u16,
    headers: Vec<(&'static str, Vec<u8>)>,
    url: Option<&'static str>,
    takes: Duration,
    body: &'static str,
}

pub(crate) fn status(status: u16) -> Answer {
    Answer {
        status,
        headers: Vec::new(),
        url: None,
        takes: Duration::ZERO,
        body: "",
    }
}

impl Answer {
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

    fn response(&self, asked: &Url) -> Response {
        let url = self
            .url
            .map_or_else(|| asked.clone(), |url| url.parse().unwrap());
        let mut builder = http::Response::builder().status(self.status).url(url);
        for (name, value) in &self.headers {
            builder = builder.header(*name, value.as_slice());
        }
        builder.body(self.body).unwrap().into()
    }
}

/// What arrived at the origin.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) at: Instant,
    pub(crate) method: http::Method,
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

    /// The waits between one arrival and the next.
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
        let answer = {
            let mut state = self.state.lock().unwrap();
            state.count += 1;
            if !state.is_forgetting {
                state.arrivals.push(Arrival {
                    at: Instant::now(),
                    method: request.method().clone(),
                    body: request
                        .body()
                        .and_then(|body| body.as_bytes())
                        .map(<[u8]>::to_vec),
                    headers: request.headers().clone(),
                    extensions: extensions.clone(),
                });
            }
            if state.script.len() > 1 {
                state.script.pop_front().unwrap()
            } else {
                state
                    .script
                    .front()
                    .cloned()
                    .expect("a script has an answer")
            }
        };
        if !answer.takes.is_zero() {
            tokio::time::sleep(answer.takes).await;
        }
        Ok(answer.response(request.url()))
    }
}

pub(crate) const URL: &str = "http://origin.test/resource";
