//! Steps that do not end: where in the kernel their threads are.

use std::fs;
use std::path::Path;

/// What the threads of steps are called.
pub(super) const STEP: &str = "step";

/// Functions of a thread, from the innermost.
const DEPTH: usize = 6;

/// Each thread that is in a step, beside this one: what it calls in the kernel, innermost first. A thread that is
/// not in the kernel, or where this is not root, has nothing.
pub(super) fn steps() -> Vec<String> {
    let this = fs::read_link("/proc/thread-self").unwrap_or_default();
    let Ok(threads) = fs::read_dir("/proc/self/task") else {
        return Vec::new();
    };
    threads
        .filter_map(Result::ok)
        .filter(|thread| Some(thread.file_name().as_os_str()) != this.file_name())
        .filter(|thread| is_step(&thread.path()))
        .map(|thread| calls(&fs::read_to_string(thread.path().join("stack")).unwrap_or_default()))
        .collect()
}

fn is_step(thread: &Path) -> bool {
    fs::read_to_string(thread.join("comm")).is_ok_and(|name| name.trim_end() == STEP)
}

/// The functions of a stack as the kernel prints it: `[<0>] function+0x12/0x34 [module]` a line.
fn calls(stack: &str) -> String {
    let function = |line: &str| {
        let (_, call) = line.split_once("] ")?;
        call.split('+').next().map(str::to_owned)
    };
    let functions: Vec<_> = stack.lines().filter_map(function).take(DEPTH).collect();
    functions.join(" < ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_come_from_the_innermost() {
        let stack = "[<0>] rds_ib_reg_frmr+0x1c2/0x2f0 [rds_rdma]\n\
                     [<0>] rds_sendmsg+0x9a/0xc0 [rds]\n\
                     [<0>] entry_SYSCALL_64_after_hwframe+0x6e/0xd8\n";
        let seen = calls(stack);
        assert_eq!(
            seen,
            "rds_ib_reg_frmr < rds_sendmsg < entry_SYSCALL_64_after_hwframe"
        );
        assert_eq!(calls(""), "");
    }
}
