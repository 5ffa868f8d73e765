//! Fetches any number of URLs at once, and comes back to the ones that are turned away.
//!
//! ```sh
//! cargo run --example fetch -- --jitter equal --base 200ms --max-elapsed 1m http://localhost:8080/ http://example.com/
//! cargo run --example fetch --features reqwest/rustls -- https://example.com/
//! ```
//!
//! One line per URL goes to stdout, in the order in which they finish; what is being waited for goes to stderr: as a
//! countdown on a terminal, as plain lines elsewhere. The exit status is 0 if every URL was fetched, 1 if one was not,
//! and 2 if the arguments were no good.

#[path = "support/console.rs"]
mod console;

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::error::ErrorKind;
use clap::{Parser, ValueEnum};
use console::{check_cap, complain, first_paragraph, in_one_line, say};
use http::Extensions;
use humantime::{format_duration, parse_duration};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use reqwest::{Method, Request, Response, StatusCode, Url};
use reqwest_jitter::{
    Backoff, DelaySource, Jitter, JitteredRetryMiddleware, RetryEvent, RetryPolicy, RetryReport,
    StopReason,
};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Fetch URLs, and retry politely.
///
/// Bodies are read and counted, not kept. An attempt is given up when no connection comes about within 10 s or nothing
/// arrives for 30 s. An answer of 400 or more is a failure.
#[derive(Parser)]
struct Arguments {
    /// How the waits are spread at random.
    #[arg(long, value_enum, default_value = "full")]
    jitter: JitterName,

    /// How often a URL is asked for at most, the first time included.
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u32).range(1..))]
    max_attempts: u32,

    /// How long the first wait is; the following ones double.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration)]
    base: Duration,

    /// How long a wait is at most [default: 30s, or the base if that is longer]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    cap: Option<Duration>,

    /// How long after its start a URL may still be asked for again [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    max_elapsed: Option<Duration>,

    /// What to fetch; https where the example was built with `--features reqwest/rustls`.
    #[arg(value_name = "URL", required = true, value_parser = web_url)]
    urls: Vec<Url>,
}

#[derive(Clone, Copy, ValueEnum)]
enum JitterName {
    Full,
    Equal,
    Decorrelated,
    None,
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if error.kind() == ErrorKind::DisplayHelp => {
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        Err(error) => return complain(&first_paragraph(&error.to_string()), 2),
    };
    let policy = match arguments.policy() {
        Ok(policy) => policy,
        Err(reason) => return complain(&format!("error: {reason}"), 2),
    };
    let is_secure = arguments.urls.iter().any(|url| url.scheme() == "https");
    if is_secure && !has_tls() {
        let reason = "error: https needs a build with TLS: cargo run --example fetch --features reqwest/rustls -- URL...";
        return complain(reason, 2);
    }
    match run(policy, arguments.urls) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => complain(&format!("error: {}", root_cause(&error)), 1),
    }
}

/// Whether reqwest was built with TLS. It only tells when it is asked for https, so ask, at a port that nobody has.
#[tokio::main(flavor = "current_thread")]
async fn has_tls() -> bool {
    let client = reqwest::Client::builder().no_proxy().build();
    let Ok(client) = client else {
        return true; // Only TLS can fail here; what is wrong comes to light in a moment.
    };
    match client.get("https://127.0.0.1:0/").send().await {
        Ok(_) => true,
        Err(error) => !root_cause(&error).contains("scheme is not http"),
    }
}

/// Fetches everything, and says whether all of it went well.
#[tokio::main]
async fn run(policy: RetryPolicy, urls: Vec<Url>) -> reqwest::Result<bool> {
    let screen = Screen::new(urls.len());
    let http = reqwest::Client::builder()
        .connect_timeout(Duration::from_secs(10))
        .read_timeout(Duration::from_secs(30))
        // reqwest would repeat what an HTTP/2 server refuses by itself, at once and unseen.
        .retry(reqwest::retry::never())
        .build()?;
    let client = ClientBuilder::new(http)
        .with(
            JitteredRetryMiddleware::new(policy)
                // How often is what the user says; how much at once is limited below.
                .without_budget()
                .on_retry({
                    let screen = screen.clone();
                    // A hook runs within the call that it tells about, so the task's URL is the right one.
                    move |event| URL.with(|url| screen.waits(url, event))
                }),
        )
        .with(InFlight::at_most(100))
        .build();

    let mut fetches = JoinSet::new();
    for url in urls {
        let fetch = fetch(client.clone(), url.clone(), screen.clone());
        fetches.spawn(URL.scope(url, fetch));
    }
    Ok(fetches.join_all().await.into_iter().all(|is_fine| is_fine))
}

tokio::task_local! {
    /// What the current task fetches.
    static URL: Url;
}

async fn fetch(client: ClientWithMiddleware, url: Url, screen: Screen) -> bool {
    let started = Instant::now();
    // The report is found here even where no response can carry it.
    let mut extensions = Extensions::new();
    let result = get(&client, &url, &mut extensions).await;
    let report = RetryReport::from_extensions(&extensions);

    let url = without_user_info(&url);
    let attempts = match report.map_or(1, RetryReport::attempts) {
        1 => "1 attempt".to_owned(),
        attempts => format!("{attempts} attempts"),
    };
    let effort = format!("{attempts}, {:.3}s", started.elapsed().as_secs_f64());
    let stop = report.map_or_else(String::new, |report| why_no_more(report.stop()));
    let is_fine = matches!(&result, Ok((status, _)) if status.as_u16() < 400);
    screen.finished(&match result {
        Ok((status, size)) if is_fine => {
            format!(
                "ok      {}  {url}  ({effort}, {size} bytes)",
                status.as_u16()
            )
        }
        Ok((status, _)) => format!("failed  {}  {url}  ({effort}{stop})", status.as_u16()),
        Err(reason) => format!("failed  ---  {url}  ({effort}{stop}: {reason})"),
    });
    is_fine
}

/// The status of the last answer, and how long its body is.
async fn get(
    client: &ClientWithMiddleware,
    url: &Url,
    extensions: &mut Extensions,
) -> Result<(StatusCode, u64), String> {
    let request = Request::new(Method::GET, url.clone());
    let mut response = client
        .execute_with_extensions(request, extensions)
        .await
        .map_err(|error| root_cause(&error))?;
    let status = response.status();
    let mut size = 0;
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) => size += chunk.len() as u64,
            Ok(None) => return Ok((status, size)),
            // The answer was there already, so the retry layer is out of it.
            Err(error) => return Err(format!("its body broke off: {}", root_cause(&error))),
        }
    }
}

fn why_no_more(stop: StopReason) -> String {
    match stop {
        StopReason::Accepted => String::new(),
        StopReason::Rejected => ", final".to_owned(),
        StopReason::AttemptsExhausted => ", no attempts left".to_owned(),
        StopReason::ElapsedExhausted => ", no time left".to_owned(),
        StopReason::RetryAfterTooLong { retry_after } => {
            format!(", told to wait {}", format_duration(retry_after))
        }
        other => format!(", {other:?}"),
    }
}

/// Lets only so many attempts happen at once. It sits below the retry layer, so whoever waits does not count.
struct InFlight {
    slots: Arc<Semaphore>,
}

impl InFlight {
    fn at_most(attempts: usize) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(attempts)),
        }
    }
}

#[async_trait::async_trait]
impl Middleware for InFlight {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        let slot = Arc::clone(&self.slots).acquire_owned().await;
        let slot = slot.map_err(reqwest_middleware::Error::middleware)?;
        let mut response = next.run(request, extensions).await?;
        // The attempt is over when its response is gone.
        response.extensions_mut().insert(Arc::new(slot));
        Ok(response)
    }
}

/// Results on stdout; on stderr what is waited for.
#[derive(Clone)]
struct Screen {
    bars: MultiProgress,
    total: ProgressBar,
}

impl Screen {
    fn new(urls: usize) -> Self {
        let bars = MultiProgress::new();
        let total = ProgressBar::new(urls as u64);
        // Elsewhere than on a terminal, bars stay hidden.
        if !bars.is_hidden() {
            total.set_style(style("{spinner} {pos} of {len} done, {elapsed}"));
            bars.add(total.clone());
            total.enable_steady_tick(TICK);
        }
        Self { bars, total }
    }

    fn waits(&self, url: &Url, event: &RetryEvent) {
        let url = without_user_info(url);
        let failure = event.status().map_or_else(
            || event.cause().to_string(),
            |status| format!("{} ({})", status.as_u16(), event.cause()),
        );
        let whose = match event.source() {
            DelaySource::Hint => "as the server asked",
            _ => "drawn by backoff and jitter",
        };
        let retry = event.retry();
        if self.bars.is_hidden() {
            let delay = event.delay().as_secs_f64();
            let _ = writeln!(
                io::stderr(),
                "{url}: {failure}, retry {retry} in {delay:.3}s, {whose}"
            );
        } else {
            let text = format!("{url}: {failure}, retry {retry}, {whose}");
            tokio::spawn(count_down(self.clone(), text, event.delay()));
        }
    }

    fn finished(&self, result: &str) {
        self.total.inc(1);
        self.bars.suspend(|| {
            // Whoever closed the pipe has seen enough.
            say(&format!("{}\n", in_one_line(result)));
        });
        if self.total.length() == Some(self.total.position()) {
            self.total.finish_and_clear();
        }
    }
}

const TICK: Duration = Duration::from_millis(100);

async fn count_down(screen: Screen, text: String, delay: Duration) {
    let end = Instant::now() + delay;
    let bar = ProgressBar::new_spinner().with_style(style("{wide_msg}"));
    let bar = screen.bars.insert_before(&screen.total, bar);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        bar.set_message(format!("{:6.1}s  {text}", left.as_secs_f64()));
        bar.tick();
        tokio::time::sleep(left.min(TICK)).await;
    }
    bar.finish_and_clear();
    screen.bars.remove(&bar);
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the templates above are well-formed")
}

impl Arguments {
    fn policy(&self) -> Result<RetryPolicy, String> {
        let cap = self.cap.unwrap_or(self.base.max(DEFAULT_CAP));
        check_cap(self.base, cap)?;
        let jitter = match self.jitter {
            JitterName::Full => Jitter::Full,
            JitterName::Equal => Jitter::Equal,
            JitterName::Decorrelated => Jitter::Decorrelated,
            JitterName::None => Jitter::None,
        };
        let backoff = Backoff::exponential(self.base, cap).with_jitter(jitter);
        let policy = RetryPolicy::new(backoff).with_max_attempts(self.max_attempts);
        Ok(match self.max_elapsed {
            Some(max_elapsed) => policy.with_max_elapsed(max_elapsed),
            None => policy,
        })
    }
}

const DEFAULT_CAP: Duration = Duration::from_secs(30);

/// As it can be shown to whoever looks over one's shoulder, or reads the log.
fn without_user_info(url: &Url) -> Url {
    let mut url = url.clone();
    // Both fail for a URL without a host only, which is none of the web's.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url
}

fn web_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        other => Err(format!("{other} is neither http nor https")),
    }
}

/// The last error of the chain: the ones around it say little more than "a request failed".
fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
