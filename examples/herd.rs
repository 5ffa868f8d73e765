//! The thundering herd: many clients fail in the same instant, and what becomes of them depends on when they return.
//!
//! ```sh
//! cargo run --release --example herd -- --clients 500
//! cargo run --release --example herd -- --clients 1000000
//! ```
//!
//! The retry layer and the gate are the real ones, under tokio's virtual time; only the host below them is a model.

#[path = "support/console.rs"]
mod console;
#[path = "support/contention.rs"]
mod contention;
#[path = "support/crowd.rs"]
mod crowd;
#[path = "support/plot.rs"]
mod plot;

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use clap::error::ErrorKind;
use console::{check_cap, complain, first_paragraph, say};
use crowd::{BIN, Host, Outcome, float};
use humantime::parse_duration;
use plot::{Panel, number};
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
    #[arg(long, default_value = "500ms", value_parser = parse_duration)]
    base: Duration,
    /// The longest delay at all
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
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
        Err(error) if error.kind() == ErrorKind::DisplayHelp => {
            say(&error.to_string());
            return ExitCode::SUCCESS;
        }
        Err(error) => return complain(&first_paragraph(&error.to_string()), 2),
    };
    let (svg, png) = (
        arguments.out.join("herd.svg"),
        arguments.out.join("herd.png"),
    );
    // Found out before the simulation, which may take minutes.
    let checked = arguments
        .check()
        .and_then(|()| plot::check_writable(&[&svg, &png]));
    if let Err(reason) = checked {
        return complain(&format!("error: {reason}"), 2);
    }
    match run(&arguments, &svg, &png) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&format!("error: {error}"), 1),
    }
}

impl Arguments {
    fn check(&self) -> Result<(), String> {
        for (name, duration) in [("--base", self.base), ("--cap", self.cap)] {
            if duration > LONGEST {
                return Err(format!("{name} is longer than an hour"));
            }
        }
        if self.base.is_zero() {
            return Err("--base 0s means no wait at all: there is nothing to spread".to_owned());
        }
        check_cap(self.base, self.cap)
    }
}

const LONGEST: Duration = Duration::from_secs(60 * 60);

fn run(arguments: &Arguments, svg: &Path, png: &Path) -> anyhow::Result<()> {
    let rate = arguments
        .rate
        .unwrap_or((arguments.clients / 5).clamp(1, 5000));
    let ideal = f64::from(arguments.clients) / f64::from(rate);
    let title = format!(
        "{} clients fail at once; the host serves {} per second",
        number(f64::from(arguments.clients)),
        number(f64::from(rate))
    );
    say(&format!("{title}, so that {} s would do.\n", tenths(ideal)));
    say("Requests per 100 ms, the first 6 s, and what it came to:\n\n");
    let mut panels = Vec::new();
    for scenario in &SCENARIOS {
        let outcome = gather(arguments, rate, scenario)?;
        say(&bars_and_figures(scenario.name, &outcome));
        panels.push(panel(scenario.name, &outcome));
    }
    say(&contention());
    plot::bars(
        svg,
        png,
        &title,
        "time in s",
        "requests per 100 ms",
        dwarfs_the_rest(arguments.clients, rate),
        &panels,
    )
    .map_err(|error| anyhow::anyhow!("{}: {error}", svg.display()))?;
    say(&format!(
        "\npictures: {} and herd.png beside it\n",
        svg.display()
    ));
    Ok(())
}

/// Whether the herd itself, the first bar, is so high that what the host serves would not be seen beside it.
fn dwarfs_the_rest(clients: u32, rate: u32) -> bool {
    let served_per_bar = (rate / 10).max(1);
    clients / served_per_bar > 100
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
    if io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
    Ok(outcome)
}

fn progress(name: &str, so_far: &Outcome, clients: u32) {
    let line = format!(
        "{name}: {} requests, {} of {} clients are done",
        number(float(so_far.requests)),
        number(float(so_far.calls)),
        number(f64::from(clients))
    );
    if io::stderr().is_terminal() {
        eprint!("\r\x1b[K{line}");
        let _ = io::stderr().flush();
    } else if so_far.requests % (1 << 19) == 0 {
        eprintln!("{line}");
    }
}

fn bars_and_figures(name: &str, outcome: &Outcome) -> String {
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
    format!(
        "{name:<22}|{line:<60}|\n{:<22} {:.2} requests per call; done after {} s; at most {} retries in 100 ms; {} gave up\n\n",
        "",
        outcome.requests_per_call(),
        tenths(outcome.done.as_secs_f64()),
        number(float(outcome.peak)),
        number(float(outcome.given_up)),
    )
}

/// `68 400.2`.
fn tenths(value: f64) -> String {
    number((value * 10.0).round() / 10.0)
}

fn panel(name: &str, outcome: &Outcome) -> Panel {
    // So long that the slowest scenario that still matters is seen, and the others are legible.
    const SHOWN: usize = 150;
    let width = BIN.as_secs_f64();
    let shown = outcome.bins.iter().take(SHOWN);
    Panel {
        title: format!(
            "{name}: {:.2} requests per call, {} gave up",
            outcome.requests_per_call(),
            number(float(outcome.given_up))
        ),
        x: (0_u32..)
            .take(shown.len())
            .map(|index| f64::from(index) * width)
            .collect(),
        y: shown.map(|bin| float(bin.served + bin.refused)).collect(),
        width,
    }
}

fn contention() -> String {
    let mut text = "The published contention model: 100 clients write one row, one at a time can succeed; cap 2 s.\n\n\
                    \x20                   calls  published      done in ms  published\n"
        .to_owned();
    for row in contention::rows() {
        let (calls, milliseconds) = contention::simulate(row.backoff, 20);
        let _ = writeln!(
            text,
            "{:<16} {calls:>8.0} {:>10.0} {milliseconds:>15.0} {:>10.0}",
            row.name, row.published_calls, row.published_ms
        );
    }
    text
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
