//! Debian packages: which are missing, and installing them.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;

use crate::process::{capture, must_aside, note, succeeds};

/// What a virtual machine with a software RDMA device is made of.
pub(crate) const VM: &[&str] = &[
    "busybox-static",
    "ibverbs-providers",
    "iproute2",
    "kmod",
    "qemu-system-x86",
];

/// What the crate `mr-verbs` is built with, libclang apart.
pub(crate) const BUILD: &[&str] = &["libibverbs-dev", "librdmacm-dev", "pkg-config"];

/// What the program that times UCX's registration cache is built with.
pub(crate) const UCX: &[&str] = &["gcc", "libc6-dev", "libucx-dev"];

/// The package of a well-known RDMA tool.
pub(crate) fn of_tool(program: &str) -> Option<&'static str> {
    match program {
        "rping" | "ucmatose" | "udaddy" | "mckey" | "rdma_client" | "rdma_server" => {
            Some("rdmacm-utils")
        }
        _ if program.starts_with("ibv_") => Some("ibverbs-utils"),
        _ if program.starts_with("ib_") => Some("perftest"),
        _ => None,
    }
}

/// This machine cannot do what was asked for, which is no fault of what was to be tested.
#[derive(Debug)]
pub(crate) struct Unavailable(pub(crate) String);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}

/// Installs those of these packages that are missing, and says which; with `no_install` it refuses.
///
/// # Errors
/// [`Unavailable`] when packages are missing and must not or cannot be installed here.
pub(crate) fn ensure(wanted: &[&str], no_install: bool) -> Result<()> {
    if !succeeds("dpkg-query", &["--version"]) {
        let why = format!(
            "this is no Debian machine; what is needed, by Debian's names: {}",
            wanted.join(" ")
        );
        return Err(Unavailable(why).into());
    }
    let missing: Vec<&str> = wanted
        .iter()
        .copied()
        .filter(|package| !is_installed(package))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let command = format!(
        "apt-get install --no-install-recommends {}",
        missing.join(" ")
    );
    if no_install {
        return Err(Unavailable(format!(
            "packages are missing and --no-install was given; run: {command}"
        ))
        .into());
    }
    if !is_root()? {
        return Err(Unavailable(format!(
            "packages are missing and only root can install them; run: {command}"
        ))
        .into());
    }
    note(&format!("installing: {}", missing.join(" ")));
    update()?;
    must_aside(
        apt("install")
            .args(["-y", "--no-install-recommends"])
            .args(missing),
    )
}

/// Fetches the lists of what can be installed, once.
///
/// # Errors
/// [`Unavailable`] without root; an error if apt fails.
pub(crate) fn update() -> Result<()> {
    static DONE: AtomicBool = AtomicBool::new(false);
    if !is_root()? {
        return Err(
            Unavailable("apt's package lists are missing; run: apt-get update".to_owned()).into(),
        );
    }
    if !DONE.load(Ordering::Relaxed) {
        must_aside(&mut apt("update"))?;
        DONE.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// Whether the package lists have this package.
pub(crate) fn is_known(package: &str) -> bool {
    let policy = capture(
        Command::new("apt-cache")
            .args(["policy", package])
            .env("LC_ALL", "C"),
    );
    policy
        .is_ok_and(|policy| policy.contains("Candidate:") && !policy.contains("Candidate: (none)"))
}

/// `apt-get VERB`, patient with others that use it at the same time.
pub(crate) fn apt(verb: &str) -> Command {
    let mut command = Command::new("apt-get");
    command.args([
        "-q",
        "-o",
        "Acquire::Retries=3",
        "-o",
        "DPkg::Lock::Timeout=300",
        "-o",
        "DPkg::Use-Pty=0",
        verb,
    ]);
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

fn is_installed(package: &str) -> bool {
    let mut query = Command::new("dpkg-query");
    query
        .args(["-W", "-f", "${db:Status-Status}", package])
        .stderr(std::process::Stdio::null());
    query
        .output()
        .is_ok_and(|output| output.status.success() && output.stdout == b"installed")
}

/// Whether we run as root, by the owner of our own process.
fn is_root() -> Result<bool> {
    Ok(fs::metadata("/proc/self")?.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_install_refuses_and_lists_what_is_missing() {
        let error = ensure(&["no-such-package-a", "no-such-package-b"], true).unwrap_err();
        let error = error.downcast_ref::<Unavailable>().unwrap();
        assert!(
            error.0.contains("no-such-package-a no-such-package-b"),
            "{error}"
        );
    }
}
