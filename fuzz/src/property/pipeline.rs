//! Any text as a pipeline file, with `--set` arguments behind a NUL each.
//!
//! Property: no panic, and nothing hangs, up to the plan of the job; an error names its place, which is there, and is of a
//! length that a person reads; and reading a second time comes to the same.

use crate::{config, excerpt};

/// Characters that a message is cut to, with what says that it was cut.
const MESSAGE: usize = 2_100;

/// Runs it.
pub fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let mut parts = text.split('\0');
    let file = parts.next().unwrap_or_default();
    let set: Vec<String> = parts.map(str::to_owned).collect();
    let first = read(file, &set);
    assert_eq!(first, read(file, &set));
    if let Err(message) = first {
        assert!(has_place(&message, file, &set), "no place in: {message}");
        assert!(excerpt::message(&message).chars().count() <= MESSAGE);
    }
}

fn read(file: &str, set: &[String]) -> Result<Option<String>, String> {
    // Some variables are there.
    let variable = |name: &str| (name.len() % 2 == 1).then(|| name.to_owned());
    let pipeline = config::pipeline(file, set, &variable).map_err(|error| error.to_string())?;
    Ok(pipeline.job.plan().err().map(|error| error.to_string()))
}

/// A line of the file, an argument, or, where a section is not there, which one.
fn has_place(message: &str, file: &str, set: &[String]) -> bool {
    if let Some(rest) = message.strip_prefix("line ") {
        let number = rest.split(':').next().and_then(|number| number.parse::<usize>().ok());
        // A line end at the end begins one more line.
        return number.is_some_and(|number| (1..=1 + file.matches('\n').count()).contains(&number));
    }
    if message.starts_with("--set ") {
        return !set.is_empty();
    }
    ["the top of the file: ", "[checkpoint]: ", "[run]: "].iter().any(|title| message.starts_with(title))
}
