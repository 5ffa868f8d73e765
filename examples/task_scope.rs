//! A service that has to answer within a quarter of a second: the deadline holds for every request that its handler
//! sends, without being passed around.
//!
//! ```sh
//! cargo run --example task_scope
//! ```

use std::error::Error;
use std::time::Duration;

use reqwest_jitter::{Backoff, JitteredRetryMiddleware, RetryOverride, RetryPolicy, RetryReport};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use tokio::time::Instant;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = MockServer::start().await;
    let overloaded = ResponseTemplate::new(503);
    Mock::given(any())
        .respond_with(overloaded)
        .mount(&server)
        .await;

    let policy = RetryPolicy::new(Backoff::fixed(Duration::from_millis(100))).with_max_attempts(8);
    let http = reqwest::Client::builder().no_proxy().build()?; // The server is on this machine.
    let client = ClientBuilder::new(http)
        .with(JitteredRetryMiddleware::new(policy))
        .build();

    println!("Eight attempts, 100 ms apart, to a server that answers 503.\n");
    fetch("without a scope", &client, &server.uri()).await?;

    let deadline = Instant::now() + Duration::from_millis(250);
    let in_time = RetryOverride::new().with_deadline(deadline);
    in_time
        .scope(handle_inbound_request(client, server.uri(), in_time))
        .await
}

/// Knows nothing of deadlines, but for the task that it starts.
async fn handle_inbound_request(
    client: ClientWithMiddleware,
    url: String,
    in_time: RetryOverride,
) -> Result<(), Box<dyn Error>> {
    // What is awaited here is in the scope, together with everything else that is.
    let (one, other) = tokio::join!(
        fetch("in the scope", &client, &url),
        fetch("in the scope, side by side", &client, &url),
    );
    one.and(other)?;

    // A spawned task is not: its future is wrapped once more.
    let task = tokio::spawn(in_time.scope(async move {
        let result = fetch("spawned, deadline has passed", &client, &url).await;
        result.map_err(|error| error.to_string())
    }));
    Ok(task.await??)
}

async fn fetch(
    what: &str,
    client: &ClientWithMiddleware,
    url: &str,
) -> reqwest_middleware::Result<()> {
    let started = Instant::now();
    let response = client.get(url).send().await?;
    let took = started.elapsed().as_millis();
    let report = RetryReport::of(&response).expect("a 503 leaves a report");
    println!(
        "{what:<30}attempts: {}, in {took:>3} ms, ended by: {}",
        report.attempts(),
        report.stop()
    );
    Ok(())
}
