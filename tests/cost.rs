//! Owns the rule of what the layer costs a call that needs none of it: counted allocations, never measured time.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{Extensions, StatusCode};
use reqwest::{Body, Method, Request, Response};
use reqwest_jitter::{Backoff, JitteredRetryMiddleware, RetryOverride, RetryPolicy};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Error, Middleware, Next};

/// Answers with 200, or with 500 and 200 in turn, in one boxed future.
struct Origin {
    fails_first: bool,
    answers: AtomicU64,
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
        let mut response = http::Response::new("");
        if self.fails_first && self.answers.fetch_add(1, Ordering::Relaxed) % 2 == 0 {
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        }
        Box::pin(ready(Ok(response.into())))
    }
}

fn client(retry: Option<JitteredRetryMiddleware>, fails_first: bool) -> ClientWithMiddleware {
    let origin = Origin {
        fails_first,
        answers: AtomicU64::new(0),
    };
    let builder = ClientBuilder::new(reqwest::Client::new());
    match retry {
        Some(retry) => builder.with(retry),
        None => builder,
    }
    .with(origin)
    .build()
}

fn allocations(
    client: &ClientWithMiddleware,
    request: impl Fn() -> Request,
    extensions: &Extensions,
) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let send = || {
        let (request, mut extensions) = (request(), extensions.clone());
        let call = async {
            client
                .execute_with_extensions(request, &mut extensions)
                .await
        };
        let mut status = None;
        let counted = allocation_counter::measure(|| {
            status = Some(runtime.block_on(call).unwrap().status());
        });
        assert_eq!(status.unwrap(), 200);
        counted.count_total
    };
    // The first call fills what is made once for each thread.
    send();
    send()
}

fn added(
    retry: &JitteredRetryMiddleware,
    request: impl Fn() -> Request,
    extensions: &Extensions,
) -> u64 {
    let plain = allocations(&client(None, false), &request, extensions);
    assert!(plain > 0, "the counter counts");
    allocations(&client(Some(retry.clone()), false), &request, extensions) - plain
}

fn get() -> Request {
    Request::new(
        Method::GET,
        "https://origin.test/some/path?query".parse().unwrap(),
    )
}

fn stream() -> Request {
    let mut request = get();
    *request.method_mut() = Method::PUT;
    *request.body_mut() = Some(Body::wrap_stream(futures_util::stream::pending::<
        Result<&str, Error>,
    >()));
    request
}

#[test]
fn a_success_pays_for_one_boxed_future_and_one_clone() {
    // Four of them are reqwest's clone: the URL, and a place for a timeout that it throws away again.
    assert_eq!(
        added(&JitteredRetryMiddleware::default(), get, &Extensions::new()),
        5
    );
}

#[test]
fn a_stream_pays_for_the_boxed_future_alone() {
    assert_eq!(
        added(
            &JitteredRetryMiddleware::default(),
            stream,
            &Extensions::new()
        ),
        1
    );
}

#[test]
fn a_call_whose_retries_are_disabled_pays_nothing() {
    let mut extensions = Extensions::new();
    extensions.insert(RetryOverride::disabled());
    for request in [get as fn() -> Request, stream] {
        assert_eq!(
            added(&JitteredRetryMiddleware::default(), request, &extensions),
            0
        );
    }
}

#[test]
fn a_single_attempt_needs_no_clone() {
    let mut extensions = Extensions::new();
    extensions.insert(RetryOverride::new().with_max_attempts(1));
    assert_eq!(
        added(&JitteredRetryMiddleware::default(), get, &extensions),
        1
    );
}

#[test]
fn the_last_attempt_needs_no_clone() {
    let policy = RetryPolicy::new(Backoff::fixed(Duration::ZERO));
    let of_a_retry = |max_attempts| {
        let retry = JitteredRetryMiddleware::new(policy.with_max_attempts(max_attempts));
        allocations(&client(Some(retry), true), get, &Extensions::new())
    };
    // The first retry is the last attempt of two and the middle one of three, which is all that tells them apart.
    assert_eq!(of_a_retry(3) - of_a_retry(2), 4);
    assert_eq!(of_a_retry(4), of_a_retry(3));
}
