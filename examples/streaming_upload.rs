//! The upload of a file as a stream: it can be read only once, so the file is opened anew for every attempt.
//!
//! ```sh
//! cargo run --example streaming_upload
//! ```

use std::error::Error;
use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::Body;
use reqwest::header::CONTENT_LENGTH;
use reqwest_jitter::{Backoff, JitteredRetryMiddleware, ReplayableBody, RetryPolicy, RetryReport};
use reqwest_middleware::ClientBuilder;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = server_that_is_slow_to_warm_up().await;
    let policy = RetryPolicy::new(Backoff::fixed(Duration::from_millis(50)));
    let http = reqwest::Client::builder().no_proxy().build()?; // The server is on this machine.
    let client = ClientBuilder::new(http)
        .with(JitteredRetryMiddleware::new(policy))
        .build();

    let path = file_of(300_000)?;
    let length = path.metadata()?.len();
    // Where opening fails, its error is what `send` returns.
    let opened_anew = path.clone();
    let body = ReplayableBody::try_new(move || {
        println!("opening the file");
        File::open(&opened_anew).map(|file| Body::from(tokio::fs::File::from_std(file)))
    });
    let response = client
        .put(server.uri())
        .header(CONTENT_LENGTH, length) // A stream doesn't tell its length.
        .with_extension(body)
        .send()
        .await?;

    let attempts = RetryReport::of(&response).map_or(1, RetryReport::attempts);
    println!(
        "{} after {attempts} attempts: {}",
        response.status(),
        response.text().await?
    );

    // Without it a stream is sent once; if it fails, so does the call.
    let file = tokio::fs::File::open(&path).await?;
    let request = client.put(server.uri()).body(Body::from(file));
    let response = request.header(CONTENT_LENGTH, length).send().await?;
    let stop = RetryReport::of(&response).map(|report| report.stop().to_string());
    println!(
        "{} for a plain stream: {}",
        response.status(),
        stop.unwrap_or_default()
    );
    std::fs::remove_file(path)?;
    Ok(())
}

fn file_of(bytes: usize) -> std::io::Result<PathBuf> {
    let name = format!("streaming_upload-{}.bin", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, vec![b'.'; bytes])?;
    Ok(path)
}

/// Reads the whole upload and answers 503, then takes the next one, and so on.
async fn server_that_is_slow_to_warm_up() -> MockServer {
    let server = MockServer::start().await;
    let refusal = Mock::given(any()).respond_with(ResponseTemplate::new(503));
    refusal.up_to_n_times(1).mount(&server).await;
    let count = |request: &Request| {
        let text = format!("{} bytes arrived", request.body.len());
        ResponseTemplate::new(201).set_body_string(text)
    };
    let taken = Mock::given(any()).respond_with(count);
    taken.up_to_n_times(1).mount(&server).await;
    let again = Mock::given(any()).respond_with(ResponseTemplate::new(503));
    again.mount(&server).await;
    server
}
