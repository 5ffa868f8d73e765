//! Measures the ways of retrying side by side, and prints the table that compares them.
//!
//! Each figure is a count, or a ratio of times that were taken in turns within this run: none depends on how fast the
//! machine is. What a column has no figure for says why, below the table.

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

use contender::Contender;

fn main() {
    print!("{}", Table::measure());
}

struct Table {
    rows: Vec<(&'static str, [String; 4])>,
    notes: Vec<String>,
}

impl Table {
    fn measure() -> Self {
        let mut table = Self {
            rows: Vec::new(),
            notes: Vec::new(),
        };
        for contender in Contender::COLUMNS {
            if !contender.is_built() {
                let name = contender.name();
                let reason = std::env::var(format!("WITHOUT_{}", name.to_uppercase()));
                let reason = reason.unwrap_or_else(|_| "left out".into());
                table
                    .notes
                    .push(format!("{name} could not be measured: {reason}"));
            }
        }
        table.costs();
        table.connections();
        table.fleets();
        table.add(
            "crates added over reqwest and reqwest-middleware",
            |contender| crates::added(contender).map(|count| count.to_string()),
        );
        table
    }

    fn costs(&mut self) {
        self.add("allocations added to a GET that succeeds", |contender| {
            Ok(cost::allocations_added_to_a_get(contender))
        });
        self.add("instructions added to it", |contender| {
            let added = cost::instructions_added(contender)?;
            if contender == Contender::Here {
                let without = cost::instructions_added(Contender::HereWithoutBudget)?;
                return Ok(format!("{added}; {without} without a budget"));
            }
            Ok(added.to_string())
        });
        self.add(
            "allocations added to an upload that is streamed",
            |contender| Ok(cost::allocations_added_to_a_stream(contender)),
        );
        self.add(
            "allocations added where retries are disabled",
            |contender| Ok(cost::allocations_added_when_disabled(contender)),
        );
        let contenders: Vec<_> = Contender::COLUMNS
            .into_iter()
            .filter(|contender| contender.is_built())
            .collect();
        let ratios = cost::retries_at_once(&contenders);
        self.add(
            "one retry without a delay, in times of an attempt: within the process / on loopback",
            |contender| {
                let at = contenders
                    .iter()
                    .position(|other| *other == contender)
                    .unwrap_or_default();
                let (near, far) = ratios[at];
                let near = near.map_or_else(|| "n/a".into(), times);
                Ok(format!("{near} / {}", times(far)))
            },
        );
    }

    fn connections(&mut self) {
        self.add(
            "new connections per retry, after a 503 with 1 KiB / 64 KiB",
            |contender| {
                Ok([1, 64]
                    .map(|kib| connections::per_retry(contender, kib))
                    .join(" / "))
            },
        );
        self.add(
            "new connections for 50 others while 50 wait, after 16 KiB / 64 KiB",
            |contender| {
                if contender == Contender::Own {
                    return Ok("does not wait".into());
                }
                Ok([16, 64]
                    .map(|kib| connections::of_others(contender, kib))
                    .join(" / "))
            },
        );
    }

    fn fleets(&mut self) {
        self.add(
            "retries sent before the moment that Retry-After named",
            |contender| Ok(fleet::early_retries(contender)),
        );
        self.add("requests per call in an outage, 3 retries", |contender| {
            Ok(fleet::requests_in_an_outage(contender))
        });
        for (measure, calls, per_second) in [
            (
                "500 at once, a host that serves 100/s: requests per call / time over the ideal / gave up",
                500,
                100,
            ),
            (
                "10 000 at once, a host that serves 1000/s: likewise",
                10_000,
                1000,
            ),
        ] {
            self.add(measure, |contender| match contender {
                Contender::Own => Ok("n/a".into()),
                Contender::Here => Ok(fleet::overload(Contender::HereWithGate, calls, per_second)),
                peer => Ok(fleet::overload(peer, calls, per_second)),
            });
        }
        self.add(
            "time with a gate over time without: 5 % random 500s / after a pause of 2 s",
            |contender| {
                if contender != Contender::Here {
                    return Ok("no gate".into());
                }
                Ok([false, true]
                    .map(fleet::gate_where_none_is_needed)
                    .join(" / "))
            },
        );
    }

    fn add(&mut self, measure: &'static str, cell: impl Fn(Contender) -> Result<String, String>) {
        eprint!("{measure}: ");
        let cells = Contender::COLUMNS.map(|contender| {
            if !contender.is_built() {
                return String::new();
            }
            cell(contender).unwrap_or_else(|reason| {
                self.notes
                    .push(format!("{measure}, {}: {reason}", contender.name()));
                String::new()
            })
        });
        eprintln!("{}", cells.join(" | "));
        self.rows.push((measure, cells));
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "| |")?;
        for contender in Contender::COLUMNS {
            write!(
                formatter,
                " {} {} |",
                contender.name(),
                version(contender.name())
            )?;
        }
        writeln!(formatter, "\n|---|---|---|---|---|")?;
        for (measure, cells) in &self.rows {
            writeln!(formatter, "| {measure} | {} |", cells.join(" | "))?;
        }
        for note in &self.notes {
            writeln!(formatter, "\n{note}")?;
        }
        Ok(())
    }
}

/// The version that was built, as the lock file has it.
fn version(name: &str) -> &'static str {
    let lock = include_str!("../Cargo.lock");
    lock.split("[[package]]")
        .find(|package| {
            package
                .lines()
                .any(|line| line == format!("name = \"{name}\""))
        })
        .and_then(|package| package.split("version = \"").nth(1)?.split('"').next())
        .unwrap_or_default()
}

fn times(ratio: f64) -> String {
    if ratio < 10.0 {
        format!("{ratio:.1} x")
    } else {
        format!("{:.0} x", (ratio / 10.0).round() * 10.0)
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
