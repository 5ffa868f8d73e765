//! How the examples that take arguments talk to a terminal, a pipe or a script.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use humantime::format_duration;

/// Writes to stdout. Whoever closed the pipe has seen enough.
pub(crate) fn say(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}

/// Says in one line of stderr why this is the end, and returns the exit status that goes with it.
pub(crate) fn complain(reason: &str, status: u8) -> ExitCode {
    let _ = writeln!(io::stderr(), "{}", in_one_line(reason));
    ExitCode::from(status)
}

/// What is wrong, without the advice that follows it.
pub(crate) fn first_paragraph(text: &str) -> String {
    let lines = text.lines().map(str::trim);
    let paragraph: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
    paragraph.join(" ")
}

pub(crate) fn in_one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// Refuses a cap that would cut off the first wait already.
pub(crate) fn check_cap(base: Duration, cap: Duration) -> Result<(), String> {
    if cap < base {
        return Err(format!(
            "--cap {} is shorter than --base {}",
            format_duration(cap),
            format_duration(base)
        ));
    }
    Ok(())
}
