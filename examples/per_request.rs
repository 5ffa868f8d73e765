//! One client, and requests that know better: fewer attempts, a POST that may be repeated, no retries at all.
//!
//! ```sh
//! cargo run --example per_request
//! ```

use std::error::Error;
use std::time::Duration;

use reqwest_jitter::{Backoff, JitteredRetryMiddleware, RetryOverride, RetryPolicy, RetryReport};
use reqwest_middleware::{ClientBuilder, RequestBuilder};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

const POLICY: RetryPolicy = RetryPolicy::new(Backoff::exponential(
    Duration::from_millis(20),
    Duration::from_millis(200),
));

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = MockServer::start().await;
    let broken = ResponseTemplate::new(500);
    Mock::given(any()).respond_with(broken).mount(&server).await;
    let url = server.uri();

    let http = reqwest::Client::builder().no_proxy().build()?; // The server is on this machine.
    let client = ClientBuilder::new(http)
        .with(JitteredRetryMiddleware::new(POLICY))
        .build();

    println!("Every request is answered with 500.\n");
    show("GET, as the client's policy says", client.get(&url)).await?;

    let twice = RetryOverride::new().with_max_attempts(2);
    show(
        "GET, at most two attempts",
        client.get(&url).with_extension(twice),
    )
    .await?;

    // The server may have carried out the order before it failed: nobody repeats it without being told to.
    show("POST", client.post(&url)).await?;

    let repeatable = RetryOverride::new().assume_idempotent(true);
    show(
        "POST that may be repeated",
        client.post(&url).with_extension(repeatable),
    )
    .await?;

    let disabled = RetryOverride::disabled();
    show(
        "GET, retries disabled",
        client.get(&url).with_extension(disabled),
    )
    .await
}

async fn show(what: &str, request: RequestBuilder) -> Result<(), Box<dyn Error>> {
    let response = request.send().await?;
    // No report: the retry layer had nothing to do, or was told to do nothing.
    let report = RetryReport::of(&response);
    let attempts = report.map_or(1, RetryReport::attempts);
    let stop = report.map_or("-".to_owned(), |report| report.stop().to_string());
    println!("{what:<34}attempts: {attempts}, ended by: {stop}");
    Ok(())
}
