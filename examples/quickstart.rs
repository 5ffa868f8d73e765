//! One request to a server that turns it away twice, and a timeline of what the retry layer does about it.
//!
//! ```sh
//! cargo run --example quickstart
//! ```

use std::error::Error;
use std::time::{Duration, Instant};

use reqwest_jitter::{DelaySource, JitteredRetryMiddleware, RetryEvent, RetryReport};
use reqwest_middleware::ClientBuilder;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = misbehaving_server().await;
    println!("GET {}\n", server.uri());
    println!("      at  attempt  answer                   cause         what now");

    // This is all that it takes; `on_retry` is here to see it happen.
    let started = Instant::now();
    let http = reqwest::Client::builder().no_proxy().build()?; // The server is on this machine.
    let client = ClientBuilder::new(http)
        .with(
            JitteredRetryMiddleware::default()
                .on_retry(move |event| print_retry(started.elapsed(), event)),
        )
        .build();
    let response = client.get(server.uri()).send().await?;

    // There is a report where at least one attempt failed.
    let report = RetryReport::of(&response).cloned();
    let attempts = report.as_ref().map_or(1, RetryReport::attempts);
    print_row(
        started.elapsed(),
        attempts,
        &response.status().to_string(),
        "",
        "done",
    );
    if let Some(report) = report {
        println!(
            "\n{} attempts, {} retries, {:.3}s spent waiting; ended by: {:?}",
            report.attempts(),
            report.retries(),
            report.slept().as_secs_f64(),
            report.stop(),
        );
    }
    println!("body: {}", response.text().await?);
    Ok(())
}

/// Answers 429 and asks for a second of patience, then 503 without a word, and from then on 200.
async fn misbehaving_server() -> MockServer {
    let server = MockServer::start().await;
    let too_fast = ResponseTemplate::new(429).insert_header("Retry-After", "1");
    let overloaded = ResponseTemplate::new(503);
    let fine = ResponseTemplate::new(200).set_body_string("worth the wait");
    for refusal in [too_fast, overloaded] {
        Mock::given(any())
            .respond_with(refusal)
            .up_to_n_times(1)
            .mount(&server)
            .await;
    }
    Mock::given(any()).respond_with(fine).mount(&server).await;
    server
}

fn print_retry(at: Duration, event: &RetryEvent) {
    let answer = event.status().map_or_else(
        || "no answer".to_owned(),
        |status| status.to_string(), // Number and name: "503 Service Unavailable".
    );
    let whose = match event.source() {
        DelaySource::Hint => "as the server asked",
        DelaySource::Classifier => "as the classifier says",
        _ => "drawn by backoff and jitter",
    };
    let what_now = format!("wait {:.3}s, {whose}", event.delay().as_secs_f64());
    // Retry n follows attempt n.
    print_row(
        at,
        event.retry(),
        &answer,
        &event.cause().to_string(),
        &what_now,
    );
}

fn print_row(at: Duration, attempt: u32, answer: &str, cause: &str, what_now: &str) {
    println!(
        "{:7.3}s  {attempt:>7}  {answer:<23}  {cause:<12}  {what_now}",
        at.as_secs_f64()
    );
}
