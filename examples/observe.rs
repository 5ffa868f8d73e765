//! Three ways to see what the retry layer did: `tracing` events, metrics from the hooks, and the report of a call.
//!
//! ```sh
//! cargo run --example observe
//! ```

use std::error::Error;
use std::time::Duration;

use http::Extensions;
use metrics::{counter, histogram};
use reqwest::{Method, Request};
use reqwest_jitter::{
    Backoff, Jitter, JitteredRetryMiddleware, RetryEvent, RetryPolicy, RetryReport,
};
use reqwest_middleware::ClientBuilder;
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use wiremock::matchers::path;
use wiremock::{Mock, MockServer, ResponseTemplate};

#[path = "support/recorder.rs"]
mod recorder;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // DEBUG has a line for each retry, WARN one for each call that was given up.
    tracing_subscriber::registry()
        .with(fmt::layer().without_time().with_ansi(false))
        .with(Targets::new().with_target("reqwest_jitter", Level::DEBUG))
        .init();
    let recorder = recorder::install()?;
    let server = misbehaving_server().await;

    let backoff = Backoff::exponential(Duration::from_millis(20), Duration::from_millis(100));
    let policy = RetryPolicy::new(backoff.with_jitter(Jitter::Equal)).with_max_attempts(3);
    let retry = JitteredRetryMiddleware::new(policy)
        .on_retry(count_retry)
        .on_give_up(count_give_up);
    let http = reqwest::Client::builder().no_proxy().build()?; // The server is on this machine.
    let client = ClientBuilder::new(http).with(retry).build();

    println!("--- events");
    let recovered = client.get(format!("{}/flaky", server.uri())).send().await?;
    // With extensions of one's own there is a report after an error, too.
    let mut extensions = Extensions::new();
    let url = format!("{}/down", server.uri()).parse()?;
    let request = Request::new(Method::GET, url);
    let _ = client
        .execute_with_extensions(request, &mut extensions)
        .await;

    println!("\n--- metrics");
    print!("{recorder}");

    println!("\n--- reports");
    let reports = [
        RetryReport::of(&recovered),
        RetryReport::from_extensions(&extensions),
    ];
    for report in reports.into_iter().flatten() {
        print_report(report);
    }
    Ok(())
}

fn count_retry(event: &RetryEvent) {
    let labels = [
        ("origin", event.origin().to_owned()),
        ("cause", event.cause().to_string()),
    ];
    counter!("http_client_retries_total", &labels).increment(1);
    let source = event.source().to_string();
    histogram!("http_client_retry_delay_seconds", "source" => source).record(event.delay());
}

fn count_give_up(report: &RetryReport) {
    let labels = [
        ("origin", report.origin().to_owned()),
        ("stop", report.stop().to_string()),
    ];
    counter!("http_client_give_ups_total", &labels).increment(1);
}

fn print_report(report: &RetryReport) {
    println!(
        "{}: {} attempts, {:?} asleep, ended by {}",
        report.origin(),
        report.attempts(),
        report.slept(),
        report.stop()
    );
    for event in report.history() {
        println!(
            "  retry {} after {}: {:?}, {}",
            event.retry(),
            event.cause(),
            event.delay(),
            event.source()
        );
    }
}

/// `/flaky` names a wait, then fails, then works; `/down` never does.
async fn misbehaving_server() -> MockServer {
    let server = MockServer::start().await;
    let limited = ResponseTemplate::new(429).insert_header("retry-after", "0.04");
    for failure in [limited, ResponseTemplate::new(502)] {
        let once = Mock::given(path("/flaky")).respond_with(failure);
        once.up_to_n_times(1).mount(&server).await;
    }
    let works = Mock::given(path("/flaky")).respond_with(ResponseTemplate::new(200));
    works.mount(&server).await;
    let down = Mock::given(path("/down")).respond_with(ResponseTemplate::new(503));
    down.mount(&server).await;
    server
}
