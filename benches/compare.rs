//! Compares this crate with other ways of retrying, and prints the table: `cargo bench --bench compare`.
//!
//! What is compared lives in `peers`, a workspace of its own: who works on the crate never has to build its peers. One
//! that can't be built is left out, and below the table it says why.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Each of them is a feature of `peers`.
const PEERS: [&str; 2] = ["reqwest-retry", "backon"];

fn main() -> ExitCode {
    // `cargo test --benches` runs it, too, and wants to know only whether it can be built.
    if !std::env::args().any(|argument| argument == "--bench") {
        return ExitCode::SUCCESS;
    }
    let mut built = PEERS.to_vec();
    let mut left_out = Vec::new();
    if build(&PEERS).is_err() {
        for peer in PEERS {
            if let Err(reason) = build(&[peer]) {
                built.retain(|other| *other != peer);
                left_out.push((format!("WITHOUT_{}", peer.to_uppercase()), reason));
            }
        }
    }
    match cargo("run", &built).envs(left_out).status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cargo: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Builds the comparison with these peers, or returns cargo's reason why it can't be.
fn build(peers: &[&str]) -> Result<(), String> {
    eprintln!("building: {}", peers.join(", "));
    let output = cargo("build", peers)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let log = String::from_utf8_lossy(&output.stderr);
    let reason = log.lines().find(|line| line.starts_with("error"));
    Err(reason.unwrap_or("cargo failed").to_owned())
}

fn cargo(task: &str, peers: &[&str]) -> Command {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers/Cargo.toml");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args([task, "--quiet", "--release", "--manifest-path"])
        .arg(manifest)
        .arg("--target-dir")
        .arg(target_folder())
        .args(["--features", &peers.join(",")]);
    command
}

/// Within the one that this program was built into.
fn target_folder() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    // target/release/deps/compare
    let target = program.ancestors().nth(3).unwrap_or(Path::new("target"));
    target.join("peers")
}
