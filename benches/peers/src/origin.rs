//! The cheapest origin there is: whatever a call takes beside it is the way of retrying.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Middleware, Next};

/// Answers every second request with 200, and the others as it is told, in one boxed future.
#[derive(Clone)]
pub(crate) struct Origin {
    count: Arc<AtomicU64>,
    others: u16,
}

impl Origin {
    pub(crate) fn new(others: u16) -> Self {
        Self {
            count: Arc::default(),
            others,
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
        if count.is_multiple_of(2) {
            *response.status_mut() = http::StatusCode::from_u16(self.others).expect("a status");
        }
        Box::pin(ready(Ok(response.into())))
    }
}

pub(crate) const URL: &str = "http://origin.test/some/path?query";
