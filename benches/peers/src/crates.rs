//! How many crates each way of retrying adds to a program, counted by cargo in programs made for it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::contender::Contender;

/// The crates added over reqwest and reqwest-middleware, or why cargo can't say.
pub(crate) fn added(contender: Contender) -> Result<usize, String> {
    let dependency = match contender {
        Contender::Own => "",
        Contender::ReqwestRetry => r#"reqwest-retry = "0.9.1""#,
        Contender::Backon => r#"backon = "1.6""#,
        _ => concat!(
            "reqwest-jitter = { path = '",
            env!("CARGO_MANIFEST_DIR"),
            "/../..' }"
        ),
    };
    let without = tree("")?;
    Ok(tree(dependency)?.difference(&without).count())
}

fn tree(dependency: &str) -> Result<BTreeSet<String>, String> {
    let probe = Probe::new(dependency).map_err(|error| error.to_string())?;
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args([
            "tree",
            "--offline",
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--format",
            "{p}",
        ])
        .current_dir(&probe.folder)
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        let log = String::from_utf8_lossy(&output.stderr);
        let line = log
            .lines()
            .find(|line| line.starts_with("error"))
            .unwrap_or("cargo failed");
        return Err(line.to_owned());
    }
    let tree = String::from_utf8_lossy(&output.stdout);
    // Name and version; what was shown before is marked.
    Ok(tree
        .lines()
        .map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" "))
        .filter(|package| !package.is_empty())
        .collect())
}

/// A program in a folder of its own, which is removed in the end.
struct Probe {
    folder: PathBuf,
}

impl Probe {
    fn new(dependency: &str) -> std::io::Result<Self> {
        let folder = std::env::temp_dir().join(format!("probe-{}", std::process::id()));
        let probe = Self { folder };
        fs::create_dir_all(probe.folder.join("src"))?;
        fs::write(probe.folder.join("src/main.rs"), "fn main() {}\n")?;
        fs::write(
            probe.folder.join("Cargo.toml"),
            format!(
                r#"
[workspace]

[package]
name = "probe"
version = "0.0.0"
edition = "2024"

[dependencies]
reqwest = {{ version = "0.13.5", default-features = false }}
reqwest-middleware = "0.5"
{dependency}
"#
            ),
        )?;
        // The same versions that were measured, and no question to the registry.
        let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.lock");
        fs::copy(lock, probe.folder.join("Cargo.lock"))?;
        Ok(probe)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
