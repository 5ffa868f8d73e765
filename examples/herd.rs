//! The thundering herd: many clients fail in the same instant, and what becomes of them depends on when they return.
//!
//! ```sh
//! cargo run --release --example herd -- --clients 500
//! cargo run --release --example herd -- --clients 1000000
//! ```
//!
//! The retry layer and the gate are the real ones, under tokio's virtual time; only the host below them is a model.

#[path = "support/contention.rs"]
mod contention;
#[path = "support/crowd.rs"]
mod crowd;
#[path = "support/plot.rs"]
mod plot;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use crowd::{BIN, Host, Outcome};
use plot::Panel;
use reqwest_jitter::{Backoff, HostGate, Jitter, JitteredRetryMiddleware, RetryPolicy};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};

/// Shows what a crowd of clients does to a host when all of them fail at once.
#[derive(Parser)]
struct Arguments {
    /// How many clients call in the same instant, 1 to 1000000
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    clients: u32,
    /// How many requests the host serves per second [default: a fifth of the clients, at most 5000]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: Option<u32>,
    /// The longest first delay
    #[arg(long, default_value = "500ms", value_parser = humantime::parse_duration)]
    base: Duration,
    /// The longest delay at all
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration)]
    cap: Duration,
    /// How often each client tries, 1 to 20
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=20))]
    max_attempts: u32,
    /// What the delays are drawn from
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// Where the pictures go
    #[arg(long, default_value = "target/herd")]
    out: PathBuf,
}

/// A way to come back, and the picture's title of it.
struct Scenario {
    name: &'static str,
    jitter: Jitter,
    is_gated: bool,
}

const SCENARIOS: [Scenario; 5] = [
    Scenario {
        name: "no jitter",
        jitter: Jitter::None,
        is_gated: false,
    },
    Scenario {
        name: "equal jitter",
        jitter: Jitter::Equal,
        is_gated: false,
    },
    Scenario {
        name: "full jitter",
        jitter: Jitter::Full,
        is_gated: false,
    },
    Scenario {
        name: "decorrelated jitter",
        jitter: Jitter::Decorrelated,
        is_gated: false,
    },
    Scenario {
        name: "full jitter and gate",
        jitter: Jitter::Full,
        is_gated: true,
    },
];

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() => return refuse(&reason(&error)),
        Err(help) => {
            print!("{help}");
            return ExitCode::SUCCESS;
        }
    };
    if let Err(error) = writable(&arguments.out) {
        return refuse(&format!(
            "can't write to {}: {error}",
            arguments.out.display()
        ));
    }
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("herd: {error}");
            ExitCode::FAILURE
        }
    }
}

fn refuse(reason: &str) -> ExitCode {
    eprintln!("herd: {reason}");
    ExitCode::from(2)
}

/// The first line of clap's complaint, which is the one that says what is wrong.
fn reason(error: &clap::Error) -> String {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    first.trim_start_matches("error: ").to_owned()
}

/// Found out before the simulation, which may take minutes.
fn writable(directory: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let probe = directory.join(".herd-probe");
    std::fs::write(&probe, "")?;
    std::fs::remove_file(probe)
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let rate = arguments
        .rate
        .unwrap_or((arguments.clients / 5).clamp(1, 5000));
    let ideal = f64::from(arguments.clients) / f64::from(rate);
    println!(
        "{} clients call at once; the host serves {rate} per second, so that {ideal:.1} s would do.",
        arguments.clients
    );
    println!("Requests per 100 ms, the first 6 s, and what it came to:\n");
    let mut panels = Vec::new();
    for scenario in &SCENARIOS {
        let outcome = gather(arguments, rate, scenario)?;
        print(scenario.name, &outcome);
        panels.push(panel(scenario.name, &outcome));
    }
    contention();
    let svg = arguments.out.join("herd.svg");
    plot::bars(
        &svg,
        Some(&arguments.out.join("herd.png")),
        &format!(
            "{} clients fail at once; the host serves {rate} per second",
            arguments.clients
        ),
        "time in s",
        "requests per 100 ms",
        false,
        &panels,
    )
    .map_err(|error| anyhow::anyhow!("{}: {error}", svg.display()))?;
    println!("\npictures: {} and herd.png beside it", svg.display());
    Ok(())
}

fn gather(arguments: &Arguments, rate: u32, scenario: &Scenario) -> anyhow::Result<Outcome> {
    let policy = RetryPolicy::new(Backoff::exponential(arguments.base, arguments.cap))
        .with_jitter(scenario.jitter)
        .with_max_attempts(arguments.max_attempts);
    let retry = JitteredRetryMiddleware::new(policy)
        .without_budget()
        .with_seed(arguments.seed);
    let gate = scenario.is_gated.then(|| {
        // Nobody is turned away: a crowd of this size takes as long as it takes.
        HostGate::new()
            .with_max_wait(Duration::MAX)
            .with_seed(arguments.seed)
    });
    let build = |host: Host| -> ClientWithMiddleware {
        let builder = ClientBuilder::new(reqwest::Client::new()).with(retry);
        match gate {
            Some(gate) => builder.with(gate),
            None => builder,
        }
        .with(host)
        .build()
    };
    let (clients, name) = (arguments.clients, scenario.name);
    let outcome = crowd::gather(clients, rate, build, move |so_far| {
        progress(name, so_far, clients);
    })?;
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
    Ok(outcome)
}

fn progress(name: &str, so_far: &Outcome, clients: u32) {
    let line = format!(
        "{name}: {} requests, {} of {clients} clients are done",
        so_far.requests, so_far.calls
    );
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K{line}");
        let _ = std::io::stderr().flush();
    } else if so_far.requests % (1 << 19) == 0 {
        eprintln!("{line}");
    }
}

fn print(name: &str, outcome: &Outcome) {
    const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let heights: Vec<u64> = outcome
        .bins
        .iter()
        .take(60)
        .map(|bin| bin.served + bin.refused)
        .collect();
    // The first bin holds the herd itself, which would flatten everything after it.
    let highest = heights.iter().skip(1).max().copied().unwrap_or(0).max(1);
    let line: String = heights
        .iter()
        .map(|height| {
            BARS[usize::try_from((height.min(&highest) * 8).div_ceil(highest)).unwrap_or(8)]
        })
        .collect();
    println!("{name:<22}|{line:<60}|");
    #[allow(clippy::cast_precision_loss)] // Counts that a person reads with two decimals.
    let per_call = outcome.requests as f64 / outcome.calls.max(1) as f64;
    println!(
        "{:<22} {per_call:.2} requests per call; done after {:.1} s; at most {} retries in 100 ms; {} gave up\n",
        "",
        outcome.done.as_secs_f64(),
        outcome.peak,
        outcome.given_up
    );
}

fn panel(name: &str, outcome: &Outcome) -> Panel {
    // So long that the slowest scenario that still matters is seen, and the others are legible.
    const SHOWN: usize = 150;
    let width = BIN.as_secs_f64();
    #[allow(clippy::cast_precision_loss)] // A plot has no use for the last digits.
    let (x, y) = outcome
        .bins
        .iter()
        .take(SHOWN)
        .enumerate()
        .map(|(index, bin)| (index as f64 * width, (bin.served + bin.refused) as f64))
        .unzip();
    #[allow(clippy::cast_precision_loss)]
    let per_call = outcome.requests as f64 / outcome.calls.max(1) as f64;
    Panel {
        title: format!(
            "{name}: {per_call:.2} requests per call, {} gave up",
            outcome.given_up
        ),
        x,
        y,
        width,
    }
}

fn contention() {
    println!(
        "The published contention model: 100 clients write one row, one at a time can succeed; cap 2 s.\n"
    );
    println!("                    calls  published      done in ms  published");
    for row in contention::rows() {
        let (calls, milliseconds) = contention::simulate(row.backoff, 20);
        println!(
            "{:<16} {calls:>8.0} {:>10.0} {milliseconds:>15.0} {:>10.0}",
            row.name, row.published_calls, row.published_ms
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_contention_model_is_met_within_two_per_cent() {
        for row in contention::rows() {
            let (calls, _) = contention::simulate(row.backoff, 25);
            let ratio = calls / row.published_calls;
            assert!(
                (0.98..=1.02).contains(&ratio),
                "{}: {calls}, {ratio:.3}",
                row.name
            );
        }
    }

    #[test]
    fn a_gate_spares_the_host() {
        let arguments = Arguments::parse_from(["herd"]);
        let outcomes = SCENARIOS.map(|scenario| gather(&arguments, 100, &scenario).unwrap());
        let requests = outcomes.each_ref().map(|outcome| outcome.requests);
        assert!(requests[4] < 1250, "{requests:?}");
        assert!(
            requests[..4]
                .iter()
                .all(|ungated| 2 * ungated > 3 * requests[4]),
            "{requests:?}"
        );
        assert_eq!(outcomes[4].given_up, 0);
        assert!(
            outcomes[0].peak > 400,
            "without jitter they return together: {}",
            outcomes[0].peak
        );
    }
}
