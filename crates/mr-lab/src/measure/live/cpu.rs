//! Clocks of the CPU.

use rustix::time::{ClockId, clock_gettime};

/// CPU time of all threads of this process, in ns.
pub(super) fn of_process() -> u64 {
    nanos(ClockId::ProcessCPUTime)
}

/// CPU time of this thread, in ns.
pub(super) fn of_thread() -> u64 {
    nanos(ClockId::ThreadCPUTime)
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}
