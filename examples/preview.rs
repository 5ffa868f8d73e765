//! What a policy means: how long each retry waits, how long all of them wait, and how widely they are spread.
//!
//! ```sh
//! cargo run --example preview -- --jitter decorrelated --base 200ms --cap 10s --max-attempts 8
//! ```
//!
//! The schedule goes to stdout. `preview.svg` and `preview.png`, in `target/preview` below the current directory or
//! where `--out` says, show the same policy with each jitter. Nothing is sent. The exit status is 2 if the arguments
//! were no good or the pictures can't be written.

#[path = "support/console.rs"]
mod console;
#[path = "support/plot.rs"]
mod plot;

use std::error::Error;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Parser, ValueEnum};
use console::{check_cap, complain, first_paragraph, say};
use humantime::{format_duration, parse_duration};
use plot::Panel;
use reqwest_jitter::{Backoff, Jitter};

/// Show what a policy would wait, without sending anything.
#[derive(Parser)]
struct Arguments {
    /// How the waits are spread at random.
    #[arg(long, value_enum, default_value = "full")]
    jitter: JitterName,

    /// How long the first wait is before it is spread.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration)]
    base: Duration,

    /// How long a wait is at most [default: 30s, or the base if that is longer]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    cap: Option<Duration>,

    /// What an exponential wait is multiplied with each time [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    factor: Option<u32>,

    /// How the waits grow; decorrelated jitter grows by itself.
    #[arg(long, value_enum, default_value = "exponential")]
    curve: CurveName,

    /// How often a request is sent at most, the first time included.
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u32).range(2..=20))]
    max_attempts: u32,

    /// What is drawn from.
    #[arg(long, value_name = "N", default_value = "7")]
    seed: u64,

    /// The directory for the pictures.
    #[arg(long, value_name = "DIR", default_value = "target/preview")]
    out: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum JitterName {
    None,
    Full,
    Equal,
    Decorrelated,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CurveName {
    Exponential,
    Linear,
    Fixed,
}

/// How many calls are imagined where no formula tells.
const DRAWS: u64 = 1_000_000;
/// How many calls make a picture.
const PICTURED: u64 = 200_000;
const BINS: usize = 80;
const DEFAULT_CAP: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if error.kind() == ErrorKind::DisplayHelp => {
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        Err(error) => return complain(&first_paragraph(&error.to_string()), 2),
    };
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&format!("error: {error}"), 2),
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let backoff = arguments.backoff()?;
    let svg = arguments.out.join("preview.svg");
    let png = arguments.out.join("preview.png");
    plot::check_writable(&[&svg, &png])?;

    let retries = arguments.max_attempts - 1;
    let rows = schedule(backoff, arguments.jitter, retries, arguments.seed);
    say(&arguments.heading());
    say(&table(&rows));
    if matches!(arguments.jitter, JitterName::Decorrelated) {
        say(&format!(
            "mean, p50 and p99 are those of {DRAWS} draws; the rest is exact\n"
        ));
    }
    plot::bars(
        &svg,
        &png,
        &format!(
            "Total wait of a call whose every attempt fails: {}",
            arguments.limits()
        ),
        "total wait in s",
        "calls in %",
        false,
        &panels(backoff, retries, arguments.seed),
    )
    .map_err(|error| format!("can't write the pictures: {error}"))?;
    say(&format!(
        "\npictures: {} and preview.png beside it\n",
        svg.display()
    ));
    Ok(())
}

/// How long one retry waits, in milliseconds.
struct Row {
    min: u64,
    mean: f64,
    p50: u64,
    p99: u64,
    max: u64,
}

fn schedule(backoff: Backoff, jitter: JitterName, retries: u32, seed: u64) -> Vec<Row> {
    let ceilings = (1..=retries).map(|retry| milliseconds(backoff.ceiling(retry)));
    match jitter {
        JitterName::None => ceilings.map(|t| Row::uniform(t, t)).collect(),
        JitterName::Full => ceilings.map(|t| Row::uniform(0, t)).collect(),
        JitterName::Equal => ceilings.map(|t| Row::uniform(t.div_ceil(2), t)).collect(),
        JitterName::Decorrelated => {
            let shortest = milliseconds(base_of(backoff));
            let mut calls: Vec<_> = (0..DRAWS)
                .map(|call| backoff.delays(seed.wrapping_add(call)))
                .collect();
            let mut drawn = Vec::new();
            ceilings
                .map(|longest| {
                    drawn.clear();
                    let delays = calls.iter_mut().filter_map(Iterator::next);
                    drawn.extend(delays.map(milliseconds));
                    Row::drawn(shortest, longest, &mut drawn)
                })
                .collect()
        }
    }
}

impl Row {
    /// Every whole millisecond from the one to the other is as likely as any other.
    fn uniform(min: u64, max: u64) -> Self {
        let count = max - min + 1;
        Self {
            min,
            mean: number(min + max) / 2.0,
            p50: min + rank(count, 50),
            p99: min + rank(count, 99),
            max,
        }
    }

    fn drawn(min: u64, max: u64, delays: &mut [u64]) -> Self {
        let count = delays.len() as u64;
        let total: u64 = delays.iter().sum();
        Self {
            min,
            mean: number(total) / number(count),
            p50: percentile(delays, 50),
            p99: percentile(delays, 99),
            max,
        }
    }
}

/// The place, counted from 0, of the first of so many sorted values that this many per cent do not exceed.
fn rank(count: u64, percent: u64) -> u64 {
    (count * percent).div_ceil(100) - 1
}

fn percentile(delays: &mut [u64], percent: u64) -> u64 {
    let rank = usize::try_from(rank(delays.len() as u64, percent)).unwrap_or(0);
    *delays.select_nth_unstable(rank).1
}

fn table(rows: &[Row]) -> String {
    let mut text = "retry         min        mean         p50         p99         max\n".to_owned();
    for (index, row) in rows.iter().enumerate() {
        let Row {
            min,
            mean,
            p50,
            p99,
            max,
        } = *row;
        let _ = write!(text, "{:>5}", index + 1);
        for value in [number(min), mean, number(p50), number(p99), number(max)] {
            let _ = write!(text, " {:>11.3}", value / 1000.0);
        }
        text.push('\n');
    }
    let expected: f64 = rows.iter().map(|row| row.mean).sum();
    let worst: f64 = rows.iter().map(|row| number(row.max)).sum();
    let _ = write!(
        text,
        "\nexpected total   {:>11.3}\nworst-case total {:>11.3}\n",
        expected / 1000.0,
        worst / 1000.0
    );
    text
}

/// One panel per jitter: the total that a call has waited when its last attempt begins.
fn panels(backoff: Backoff, retries: u32, seed: u64) -> Vec<Panel> {
    let totals: Vec<(&str, Vec<f64>)> = [
        ("no jitter", Jitter::None, 1),
        ("full jitter", Jitter::Full, PICTURED),
        ("equal jitter", Jitter::Equal, PICTURED),
        ("decorrelated jitter", Jitter::Decorrelated, PICTURED),
    ]
    .map(|(name, jitter, calls)| {
        let backoff = backoff.with_jitter(jitter);
        let total = |call| {
            let delays = backoff.delays(seed.wrapping_add(call));
            let total: Duration = delays.take(retries as usize).sum();
            total.as_secs_f64()
        };
        (name, (0..calls).map(total).collect())
    })
    .into();
    let longest = totals
        .iter()
        .flat_map(|(_, totals)| totals)
        .copied()
        .fold(0.0, f64::max);
    // The longest falls into the last bin, not behind it; a bin narrower than a millisecond would tell of the clock.
    let width = (longest * 1.001 / number(BINS as u64)).max(0.001);
    let panel = |(name, totals): (&str, Vec<f64>)| {
        let share = 100.0 / number(totals.len() as u64);
        let mean = totals.iter().sum::<f64>() / number(totals.len() as u64);
        let mut y = vec![0.0; BINS];
        for total in totals {
            y[bin(total / width)] += share;
        }
        Panel {
            title: format!("{name}: {mean:.3} s on average"),
            x: (0..BINS).map(|bin| number(bin as u64) * width).collect(),
            y,
            width,
        }
    };
    totals.into_iter().map(panel).collect()
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Neither large nor negative.
fn bin(place: f64) -> usize {
    (place as usize).min(BINS - 1)
}

#[allow(clippy::cast_precision_loss)] // 2^53 ms are 285 thousand years.
fn number(value: u64) -> f64 {
    value as f64
}

/// The delays of a backoff are whole milliseconds.
fn milliseconds(delay: Duration) -> u64 {
    u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)
}

/// The first delay of the curve, which no decorrelated one falls below.
fn base_of(backoff: Backoff) -> Duration {
    backoff.with_jitter(Jitter::None).ceiling(1)
}

impl Arguments {
    fn backoff(&self) -> Result<Backoff, String> {
        let cap = self.cap();
        for (name, duration) in [("--base", self.base), ("--cap", cap)] {
            if duration > LONGEST {
                return Err(format!("{name} is longer than a year"));
            }
        }
        if self.base.is_zero() {
            return Err("--base 0s means no wait at all: there is nothing to show".to_owned());
        }
        check_cap(self.base, cap)?;
        if self.factor.is_some() && self.curve != CurveName::Exponential {
            return Err("--factor goes with --curve exponential only".to_owned());
        }
        if self.cap.is_some() && self.curve == CurveName::Fixed {
            return Err(
                "--cap does not go with --curve fixed, whose waits are all --base".to_owned(),
            );
        }
        let backoff = match self.curve {
            CurveName::Exponential => {
                Backoff::exponential(self.base, cap).with_factor(self.factor.unwrap_or(2))
            }
            CurveName::Linear => Backoff::linear(self.base, cap),
            CurveName::Fixed => Backoff::fixed(self.base),
        };
        Ok(backoff.with_jitter(match self.jitter {
            JitterName::None => Jitter::None,
            JitterName::Full => Jitter::Full,
            JitterName::Equal => Jitter::Equal,
            JitterName::Decorrelated => Jitter::Decorrelated,
        }))
    }

    fn cap(&self) -> Duration {
        match self.curve {
            CurveName::Fixed => self.base,
            _ => self.cap.unwrap_or(self.base.max(DEFAULT_CAP)),
        }
    }

    fn heading(&self) -> String {
        let jitter = match self.jitter {
            JitterName::None => "no jitter",
            JitterName::Full => "full jitter",
            JitterName::Equal => "equal jitter",
            JitterName::Decorrelated => "decorrelated jitter",
        };
        let curve = match self.curve {
            CurveName::Exponential => format!("exponential by {}", self.factor.unwrap_or(2)),
            CurveName::Linear => "linear".to_owned(),
            CurveName::Fixed => "fixed".to_owned(),
        };
        // Decorrelated jitter has no use for a curve.
        let growth = match self.jitter {
            JitterName::Decorrelated => String::new(),
            _ => format!("{curve}, "),
        };
        format!("{growth}{jitter}, {}; all in seconds\n\n", self.limits())
    }

    fn limits(&self) -> String {
        format!(
            "base {}, cap {}, {} attempts",
            format_duration(self.base),
            format_duration(self.cap()),
            self.max_attempts
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIMULATED: u64 = 100_000;

    fn arguments(text: &str) -> Arguments {
        Arguments::parse_from(["preview"].into_iter().chain(text.split_whitespace()))
    }

    #[test]
    fn the_schedule_agrees_with_a_simulation_within_one_per_cent() {
        for jitter in ["none", "full", "equal", "decorrelated"] {
            let arguments = arguments(&format!(
                "--jitter {jitter} --base 200ms --cap 10s --max-attempts 8"
            ));
            let backoff = arguments.backoff().unwrap();
            let rows = schedule(backoff, arguments.jitter, 7, arguments.seed);
            let mut columns = vec![Vec::new(); rows.len()];
            for call in 0..SIMULATED {
                // Far from the seeds that the schedule was drawn from.
                let delays = backoff.delays((1 << 40) + call);
                for (column, delay) in columns.iter_mut().zip(delays) {
                    column.push(milliseconds(delay));
                }
            }
            let mut total = 0.0;
            for (row, column) in rows.iter().zip(&mut columns) {
                column.sort_unstable();
                let mean = number(column.iter().sum()) / number(SIMULATED);
                total += mean;
                close(jitter, mean, row.mean);
                close(jitter, number(column[49_999]), number(row.p50));
                close(jitter, number(column[98_999]), number(row.p99));
                // The extremes are bounds; a chain of extreme draws is too rare to be met.
                assert!(
                    column[0] >= row.min && column[99_999] <= row.max,
                    "{jitter}"
                );
                assert!(column[0] <= row.min + row.max / 100, "{jitter}");
            }
            close(jitter, total, rows.iter().map(|row| row.mean).sum());
        }
    }

    fn close(jitter: &str, simulated: f64, shown: f64) {
        let off = (simulated / shown - 1.0).abs();
        assert!(
            off <= 0.01,
            "{jitter}: {simulated} simulated, {shown} shown"
        );
    }

    #[test]
    fn every_call_is_in_the_picture_once() {
        for text in [
            "",
            "--base 1ms --curve fixed --max-attempts 2",
            "--cap 365d --factor 1000",
        ] {
            let backoff = arguments(text).backoff().unwrap();
            for panel in panels(backoff, 4, 7) {
                let sum: f64 = panel.y.iter().sum();
                assert!((sum - 100.0).abs() < 1e-6, "{text}: {} {sum}", panel.title);
            }
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in [
            "--base 0s",
            "--cap 9999y",
            "--base 2s --cap 1s",
            "--curve linear --factor 3",
            "--curve fixed --cap 3s",
        ] {
            let reason = arguments(text).backoff().unwrap_err();
            assert!(reason.starts_with("--"), "{reason}");
        }
    }
}
