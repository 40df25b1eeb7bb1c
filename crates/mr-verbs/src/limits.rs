//! Which limit a failed registration has hit.

use crate::{Errno, Error};
use std::fs;

/// Why `bytes` could not be registered.
pub(crate) fn registration_error(bytes: usize, errno: Errno) -> Error {
    if !matches!(errno, Errno::ENOMEM | Errno::EAGAIN | Errno::EPERM) {
        return Error::System {
            what: "registering memory",
            errno,
        };
    }
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    Error::Limit {
        what: format!("registering {bytes} bytes"),
        errno,
        advice: advice(bytes as u64, memlock(&limits), pinned(&status)),
    }
}

/// The soft limit in bytes; `None` for none.
fn memlock(limits: &str) -> Option<u64> {
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max locked memory"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

/// Bytes that this process has pinned.
fn pinned(status: &str) -> u64 {
    let line = status.lines().find(|line| line.starts_with("VmPin:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

fn advice(bytes: u64, memlock: Option<u64>, pinned: u64) -> String {
    match memlock {
        Some(limit) if pinned.saturating_add(bytes) > limit => format!(
            "RLIMIT_MEMLOCK allows {limit} bytes and {pinned} are pinned: raise it (`ulimit -l`, \
             LimitMEMLOCK= of a service), or run with CAP_IPC_LOCK"
        ),
        _ => format!(
            "RLIMIT_MEMLOCK is not the reason ({pinned} bytes are pinned): the device's table of \
             memory regions (max_mr), a memory limit of the control group or the machine's memory is"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: &str = "Limit                     Soft Limit           Hard Limit           Units\n\
        Max locked memory         65536                unlimited            bytes\n";

    #[test]
    fn the_advice_names_the_limit_that_was_hit() {
        assert_eq!(memlock(LIMITS), Some(65536));
        assert_eq!(memlock(&LIMITS.replace("65536", "unlimited")), None);
        assert_eq!(pinned("VmLck:\t 8 kB\nVmPin:\t 64 kB\n"), 65536);
        assert!(advice(1, Some(65536), 65536).contains("ulimit -l"));
        assert!(advice(1, Some(65536), 0).contains("not the reason"));
        assert!(advice(u64::MAX, None, 0).contains("not the reason"));
    }
}
