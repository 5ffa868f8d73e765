//! Measures ways of retrying side by side, and prints the table that compares them.
//!
//! Each figure is a count, or a ratio of times that were taken in turns within this run: none depends on how fast the
//! machine is. What a cell has no figure for is said below the table.

mod connections;
mod contender;
mod cost;
mod crates;
mod fleet;
#[path = "../../../tests/support/host.rs"]
mod host;
mod origin;
mod server;
#[path = "../../../tests/support/wire.rs"]
mod wire;

use std::fmt;

use contender::Contender;

fn main() {
    print!("{}", Table::measure());
}

struct Table {
    rows: Vec<Row>,
    /// Why a cell, or a whole column, is empty.
    gaps: Vec<String>,
}

struct Row {
    measure: &'static str,
    explanation: &'static str,
    cells: [String; 4],
}

impl Table {
    fn measure() -> Self {
        let gaps = Contender::COLUMNS
            .into_iter()
            .filter(|contender| !contender.is_built())
            .map(|contender| {
                let name = contender.name();
                let reason = std::env::var(format!("WITHOUT_{}", name.to_uppercase()));
                format!("{name}: {}", reason.unwrap_or_else(|_| "left out".into()))
            })
            .collect();
        let mut table = Self {
            rows: Vec::new(),
            gaps,
        };
        table.add_costs();
        table.add_connections();
        table.add_fleets();
        table.add(
            "crates added",
            "over reqwest and reqwest-middleware, with default features, as `cargo tree` lists them",
            |contender| crates::added(contender).map(|count| count.to_string()),
        );
        table
    }

    fn add_costs(&mut self) {
        self.add(
            "allocations added to a GET that succeeds",
            "in the thread that sends, over the same client without retries; an origin within the process answers \
             (for reqwest's own, which is below every middleware: a server on loopback)",
            |contender| Ok(cost::allocations_of_a_get(contender)),
        );
        self.add(
            "instructions added to it",
            "callgrind's count for 4000 calls less that for 2000, likewise; in brackets: once the origin has failed, \
             so that the budget keeps an account of it / without a budget",
            |contender| {
                let added = cost::instructions(contender)?;
                if contender != Contender::Here {
                    return Ok(added.to_string());
                }
                let after = cost::instructions(Contender::HereAfterFailure)?;
                let without = cost::instructions(Contender::HereWithoutBudget)?;
                Ok(format!("{added} ({after} / {without})"))
            },
        );
        self.add(
            "allocations added to a streamed upload",
            "likewise, for a body that can't be cloned",
            |contender| Ok(cost::allocations_of_a_stream(contender)),
        );
        self.add(
            "allocations added with retries disabled",
            "likewise, for a GET that asks for no retries",
            |contender| Ok(cost::allocations_when_disabled(contender)),
        );
        let ratios = cost::retries_at_once(&Contender::COLUMNS);
        self.add(
            "one retry without a delay: on loopback / within the process",
            "what a call takes longer if its first attempt fails, in times of an attempt without a retry layer; \
             median of 40 rounds, taken in turns",
            |contender| {
                let ratio = ratios.iter().find(|(other, _)| *other == contender);
                Ok(ratio.map_or_else(String::new, |(_, ratio)| ratio.clone()))
            },
        );
    }

    fn add_connections(&mut self) {
        self.add(
            "new connections per retry: after 1 KiB / 64 KiB",
            "40 calls, one after another, each first answered with a 503 with a body of that size, and retried after \
             20 ms",
            |contender| {
                let per_retry = |kib| connections::per_retry(contender, kib);
                Ok([1, 64].map(per_retry).join(" / "))
            },
        );
        self.add(
            "new connections for 50 others: after 16 KiB / 64 KiB",
            "50 calls wait to be retried after a 503 with a body of that size; meanwhile 50 others are sent",
            |contender| {
                let of_others = |kib| connections::of_others(contender, kib);
                match contender {
                    Contender::Own => Ok("never waits".into()),
                    _ => Ok([16, 64].map(of_others).join(" / ")),
                }
            },
        );
    }

    fn add_fleets(&mut self) {
        self.add(
            "retries sent too early",
            "before the moment that `Retry-After` named: 1000 calls, all turned away for 5 s; backoff from 1 s on, \
             with jitter, up to 4 retries",
            |contender| Ok(fleet::early_retries(contender)),
        );
        self.add(
            "requests per call in an outage",
            "10 000 calls within 10 s, each answered with 503; backoff from 100 ms on, up to 3 retries, and the \
             budget that each has by default",
            |contender| Ok(fleet::requests_in_an_outage(contender)),
        );
        self.add(
            "500 at once at 100/s: requests per call / time / gave up",
            "calls at a host that serves 100 per second and answers the others with 503; the time is that until the \
             last call is over, in times of the ideal; up to 5 retries, here with a `HostGate` and without a budget; \
             medians of 5 seeds",
            |contender| Ok(overload(contender, 500, 100)),
        );
        self.add("10 000 at once at 1000/s", "likewise", |contender| {
            Ok(overload(contender, 10_000, 1000))
        });
        self.add(
            "time with a gate over time without: 5 % random 500s / a pause of 2 s",
            "5000 calls within 10 s, where a gate can't help and must not harm; medians of 5 seeds",
            |contender| match contender {
                Contender::Here => Ok([false, true].map(fleet::gate_over_none).join(" / ")),
                _ => Ok("no gate".into()),
            },
        );
    }

    fn add(
        &mut self,
        measure: &'static str,
        explanation: &'static str,
        cell: impl Fn(Contender) -> Result<String, String>,
    ) {
        eprintln!("measuring: {measure}");
        let cells = Contender::COLUMNS.map(|contender| {
            if !contender.is_built() {
                return String::new();
            }
            cell(contender).unwrap_or_else(|reason| {
                let name = contender.name();
                self.gaps.push(format!("{measure}, {name}: {reason}"));
                String::new()
            })
        });
        self.rows.push(Row {
            measure,
            explanation,
            cells,
        });
    }
}

fn overload(contender: Contender, calls: u32, per_second: u32) -> String {
    match contender {
        // It is below every middleware, and the host is one.
        Contender::Own => "n/a".into(),
        Contender::Here => fleet::overload(Contender::HereWithGate, calls, per_second),
        peer => fleet::overload(peer, calls, per_second),
    }
}

impl fmt::Display for Table {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "| |")?;
        for contender in Contender::COLUMNS {
            let name = contender.name();
            write!(formatter, " {name} {} |", version(name))?;
        }
        writeln!(formatter, "\n|---|---|---|---|---|")?;
        for row in &self.rows {
            writeln!(formatter, "| {} | {} |", row.measure, row.cells.join(" | "))?;
        }
        writeln!(formatter)?;
        for row in &self.rows {
            writeln!(formatter, "- *{}*: {}.", row.measure, row.explanation)?;
        }
        for (number, gap) in self.gaps.iter().enumerate() {
            if number == 0 {
                writeln!(formatter, "\nNot measured:\n")?;
            }
            writeln!(formatter, "- {gap}")?;
        }
        Ok(())
    }
}

/// The version that was built, as the lock file has it.
fn version(name: &str) -> &'static str {
    let lock = include_str!("../Cargo.lock");
    let name = format!("name = \"{name}\"");
    lock.split("[[package]]")
        .find(|package| package.lines().any(|line| line == name))
        .and_then(|package| package.split("version = \"").nth(1)?.split('"').next())
        .unwrap_or_default()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
