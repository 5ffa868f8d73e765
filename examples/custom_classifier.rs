//! A server with ways of its own: a 200 that says in a header that it is an error, and a 403 that is a rate limit.
//!
//! ```sh
//! cargo run --example custom_classifier
//! ```

use std::error::Error;
use std::time::Duration;

use reqwest_jitter::{
    Attempt, Backoff, Cause, Classifier, DefaultClassifier, DelaySource, Effect,
    JitteredRetryMiddleware, RetryPolicy, Verdict, classify_fn,
};
use reqwest_middleware::ClientBuilder;
use wiremock::matchers::path;
use wiremock::{Mock, MockServer, ResponseTemplate};

fn classify(attempt: &Attempt<'_>) -> Verdict {
    let status = attempt.status().map(|status| status.as_u16());
    let says_busy = attempt
        .headers()
        .and_then(|headers| headers.get("x-result"))
        .is_some_and(|result| result == "busy");
    match status {
        // It fails before it does anything, so that even a POST can be sent again.
        Some(200) if says_busy => Verdict::retry(Cause::Other("busy"), Effect::None),
        // A 403 that names a moment to come back is a limit; without one it means what it says.
        Some(403) if attempt.hint().is_some() => Verdict::retry(Cause::Throttled, Effect::None),
        _ => DefaultClassifier::new().classify(attempt),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = server_with_ways_of_its_own().await;
    let policy = RetryPolicy::new(Backoff::fixed(Duration::from_millis(30)));
    let retry = JitteredRetryMiddleware::new(policy)
        .with_classifier(classify_fn(classify))
        .on_retry(|event| {
            let whose = match event.source() {
                DelaySource::Hint => "as the server asked",
                _ => "as the policy says",
            };
            let status = event.status().map_or(0, |status| status.as_u16());
            let delay = event.delay();
            println!("  {status}: {}; wait {delay:?}, {whose}", event.cause());
        });
    let http = reqwest::Client::builder().no_proxy().build()?; // The server is on this machine.
    let client = ClientBuilder::new(http).with(retry).build();

    for path in ["/report", "/search", "/forbidden"] {
        println!("POST {path}");
        let response = client
            .post(format!("{}{path}", server.uri()))
            .send()
            .await?;
        println!(
            "  {}: {}",
            response.status().as_u16(),
            response.text().await?
        );
    }
    Ok(())
}

async fn server_with_ways_of_its_own() -> MockServer {
    let server = MockServer::start().await;
    let busy = ResponseTemplate::new(200).insert_header("x-result", "busy");
    let limited = ResponseTemplate::new(403).insert_header("retry-after", "0.2");
    let fine = ResponseTemplate::new(200).set_body_string("here you are");
    for (at, odd) in [("/report", busy), ("/search", limited)] {
        let first = Mock::given(path(at)).respond_with(odd);
        first.up_to_n_times(1).mount(&server).await;
        let then = Mock::given(path(at)).respond_with(fine.clone());
        then.mount(&server).await;
    }
    let forbidden = ResponseTemplate::new(403).set_body_string("not for you");
    Mock::given(path("/forbidden"))
        .respond_with(forbidden)
        .mount(&server)
        .await;
    server
}
