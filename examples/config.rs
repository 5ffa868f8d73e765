//! Retry policies from a configuration file, in TOML and in JSON, and what is said about one with a typo.
//!
//! ```sh
//! cargo run --example config --features serde
//! ```

use std::error::Error;
use std::time::Duration;

use reqwest_jitter::{Backoff, Jitter, RetryPolicy};
use serde::Deserialize;

/// What a program reads: its own settings, and a policy for each of the services that it calls.
#[derive(Deserialize)]
struct Settings {
    search: RetryPolicy,
    /// All keys are optional, and so is the table.
    #[serde(default)]
    billing: RetryPolicy,
}

const TOML: &str = r#"
[search]
jitter = "decorrelated"
base = "200ms"
cap = "10s"
max_attempts = 6
max_elapsed = "1m 30s"
"#;

const JSON: &str = r#"{ "search": { "curve": "fixed", "base": "250ms", "max_attempts": 0 } }"#;

const BUILT: RetryPolicy = RetryPolicy::new(
    Backoff::exponential(Duration::from_millis(200), Duration::from_secs(10))
        .with_jitter(Jitter::Decorrelated),
)
.with_max_attempts(6)
.with_max_elapsed(Duration::from_secs(90));

fn main() -> Result<(), Box<dyn Error>> {
    let settings: Settings = toml::from_str(TOML)?;
    assert_eq!(settings.search, BUILT);
    assert_eq!(settings.billing, RetryPolicy::default());
    println!("from TOML, and equal to the one that is built in code:\n{TOML}");

    // Out of range is not a typo: no attempt at all reads as one, as in code.
    let settings: Settings = serde_json::from_str(JSON)?;
    println!(
        "from JSON:\n{JSON}\n\nwritten back:\n{}",
        serde_json::to_string_pretty(&settings.search)?
    );

    println!("\nwith a typo:");
    for typo in [
        "max_atempts = 3",
        "jitter = \"ful\"",
        "base = \"200\"",
        "max_attempts = -1",
    ] {
        let error = toml::from_str::<RetryPolicy>(typo).expect_err("it is a typo");
        println!("\n{error}");
    }
    Ok(())
}
