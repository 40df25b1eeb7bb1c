//! The time that all processors of this machine were busy.

use anyhow::{Context, Result};
use std::fs;
use std::time::Duration;

/// Of the columns of `/proc/stat`: user, nice, system, irq, softirq. Not idle, nor waiting, nor stolen.
const BUSY: [usize; 5] = [0, 1, 2, 5, 6];

/// A tick, in which Linux tells times to users.
const TICK: Duration = Duration::from_millis(10);

/// Busy time since the machine was started, of all processors and of everything on them, the kernel's
/// own work included; in steps of 10 ms.
///
/// # Errors
///
/// This system does not tell.
pub(super) fn busy() -> Result<Duration> {
    let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    read(&text).context("/proc/stat has no line of all processors")
}

fn read(text: &str) -> Option<Duration> {
    let columns: Vec<u32> = text
        .lines()
        .find_map(|line| line.strip_prefix("cpu "))?
        .split_whitespace()
        .map_while(|column| column.parse().ok())
        .collect();
    let ticks = BUSY
        .iter()
        .map(|&column| columns.get(column).copied())
        .sum::<Option<u32>>()?;
    Some(TICK * ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_all_but_idle_waiting_and_stolen() {
        let text = "cpu  10 1 20 5000 300 4 5 600 0 0\ncpu0 9 9 9 9 9 9 9 9 9 9\n";
        assert_eq!(read(text), Some(Duration::from_millis(400)));
        assert_eq!(read("cpu  10 1 20\n"), None);
        assert_eq!(read("cpu0 1 1 1 1 1 1 1\n"), None);
    }

    #[test]
    fn this_machine_has_been_busy() {
        assert!(busy().unwrap() > Duration::ZERO);
    }
}
