//! Packets that are lost, doubled or reordered, by the kernel's `netem`.

use crate::step::NetworkFault;
use anyhow::{Context, Result, bail};
use std::process::{Command, Stdio};
use std::time::Duration;

/// What the others wait while some overtake them.
const DELAY: &str = "2ms";

/// The longest that nothing leaves the machine: whoever gives orders must not give up meanwhile.
const LONGEST_OUTAGE: Duration = Duration::from_secs(10);

/// Lets nothing out for so long.
pub(super) fn outage(interface: &str, time: Duration) -> Result<()> {
    set(interface, Some(NetworkFault::Loss(1000)))?;
    std::thread::sleep(time.min(LONGEST_OUTAGE));
    set(interface, None)
}

pub(super) fn set(interface: &str, fault: Option<NetworkFault>) -> Result<()> {
    let mut line = vec!["qdisc"];
    let part;
    match fault {
        None => line.extend(["del", "dev", interface, "root"]),
        Some(fault) => {
            line.extend(["replace", "dev", interface, "root", "netem"]);
            let (NetworkFault::Loss(thousandths)
            | NetworkFault::Duplication(thousandths)
            | NetworkFault::Reordering(thousandths)) = fault;
            part = format!("{}.{}%", thousandths / 10, thousandths % 10);
            match fault {
                NetworkFault::Loss(_) => line.push("loss"),
                NetworkFault::Duplication(_) => line.push("duplicate"),
                NetworkFault::Reordering(_) => line.extend(["delay", DELAY, "reorder"]),
            }
            line.push(&part);
        }
    }
    let output = Command::new("tc")
        .args(&line)
        .stdin(Stdio::null())
        .output()
        .context("cannot start tc")?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("`tc {}`: {}", line.join(" "), error.trim());
    }
    Ok(())
}
