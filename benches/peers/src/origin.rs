//! The cheapest origin there is: whatever a call takes beside it is the way of retrying.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Middleware, Next};

/// Answers with 200, or with 503 where it is to fail, in one boxed future.
#[derive(Clone)]
pub(crate) struct Origin {
    count: Arc<AtomicU64>,
    fails: fn(u64) -> bool,
}

impl Origin {
    /// `fails` gets the number of the request, counted from 0.
    pub(crate) fn new(fails: fn(u64) -> bool) -> Self {
        Self {
            count: Arc::default(),
            fails,
        }
    }
}

impl Middleware for Origin {
    fn handle<'a, 'b, 'c, 'd>(
        &'a self,
        _request: Request,
        _extensions: &'b mut Extensions,
        _next: Next<'c>,
    ) -> Pin<Box<dyn Future<Output = Result<Response, Error>> + Send + 'd>>
    where
        'a: 'd,
        'b: 'd,
        'c: 'd,
        Self: 'd,
    {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let mut response = http::Response::new("");
        if (self.fails)(count) {
            *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
        }
        Box::pin(ready(Ok(response.into())))
    }
}

pub(crate) const URL: &str = "http://origin.test/some/path?query";
