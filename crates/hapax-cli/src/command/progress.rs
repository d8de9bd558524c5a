//! What a job tells while it runs: a line on a terminal, log lines elsewhere.

use crate::screen::Screen;
use hapax::{Host, Progress, StopSignal};
use hapax_host::Instant;
use std::{convert::Infallible, time::Duration};
use tokio::sync::watch;

/// How often the line on a terminal changes.
const REDRAW: Duration = Duration::from_millis(500);

/// How often a log line tells the progress.
const LOG: Duration = Duration::from_secs(10);

/// Shows progress for ever; the caller drops it at the job's end.
pub(super) async fn show(
    host: &Host,
    screen: &Screen,
    progress: watch::Receiver<Progress>,
    stop: StopSignal,
) -> Infallible {
    let terminal = screen.is_terminal();
    let mut before = Look { at: host.now(), progress: progress.borrow().clone() };
    loop {
        host.sleep(if terminal { REDRAW } else { LOG }).await;
        let now = Look { at: host.now(), progress: progress.borrow().clone() };
        let text = line(&before, &now, host.wall_ms(), stop.is_set());
        if terminal {
            screen.status(&text);
        } else if now.progress != before.progress {
            tracing::info!("{text}");
        }
        before = now;
    }
}

/// How often a program is told.
const TELL: Duration = Duration::from_millis(50);

/// Tells progress as lines of JSON on standard output, for ever.
pub(super) async fn tell(host: &Host, screen: &Screen, progress: watch::Receiver<Progress>) -> Infallible {
    let mut before = None;
    loop {
        let now = progress.borrow().clone();
        if before.as_ref() != Some(&now)
            && let Ok(line) = serde_json::to_string(&now)
        {
            screen.answer(&line);
        }
        before = Some(now);
        host.sleep(TELL).await;
    }
}

/// A look at a job at a time.
struct Look {
    at: Instant,
    progress: Progress,
}

fn line(before: &Look, now: &Look, wall_ms: i64, stopping: bool) -> String {
    let Progress { records_in, repeated, skipped, dropped, lag, epoch, committed_ms, runs, .. } =
        now.progress;
    let seconds = now.at.saturating_duration_since(before.at).as_secs_f64().max(0.001);
    let rate = records_in.saturating_sub(before.progress.records_in) as f64 / seconds;
    let mut text = format!(
        "{} records/s, {} read, epoch {epoch}, lag {}",
        grouped(rate as u64),
        grouped(records_in),
        grouped(lag)
    );
    match committed_ms {
        0 => text.push_str(", nothing committed yet"),
        at => text.push_str(&format!(
            ", last commit {:.1} s ago",
            wall_ms.saturating_sub(at).max(0) as f64 / 1_000.0
        )),
    }
    let noted =
        [("repeated", repeated, 0), ("skipped", skipped, 0), ("dropped", dropped, 0), ("run", runs, 1)];
    for (what, count, usual) in noted {
        if count > usual {
            text.push_str(&format!(", {what} {}", grouped(count)));
        }
    }
    if stopping {
        text.push_str(", stopping");
    }
    text
}

/// Digits in groups of three.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(passed: Duration, change: impl FnOnce(&mut Progress)) -> (Look, Look) {
        let before = Progress { records_in: 1_000, runs: 1, ..Progress::default() };
        let mut after = before.clone();
        change(&mut after);
        let at = Host::real().now();
        (Look { at, progress: before }, Look { at: at + passed, progress: after })
    }

    #[test]
    fn a_line_tells_rate_epoch_lag_and_last_commit() {
        let (before, now) = looks(Duration::from_millis(500), |progress| {
            progress.records_in = 2_001_000;
            progress.lag = 1_234;
            progress.epoch = 42;
            progress.committed_ms = 10_000;
        });
        let text = line(&before, &now, 10_300, false);
        assert_eq!(text, "4,000,000 records/s, 2,001,000 read, epoch 42, lag 1,234, last commit 0.3 s ago");
    }

    #[test]
    fn what_is_unusual_is_said() {
        let (before, now) = looks(Duration::ZERO, |progress| {
            progress.runs = 3;
            progress.skipped = 7;
        });
        let text = line(&before, &now, 0, true);
        assert!(text.ends_with(", nothing committed yet, skipped 7, run 3, stopping"), "{text}");
    }

    #[test]
    fn digits_are_grouped() {
        let numbers = [0, 999, 1_000, 12_345_678].map(grouped);
        assert_eq!(numbers, ["0", "999", "1,000", "12,345,678"]);
    }
}
