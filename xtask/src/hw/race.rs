//! The head to head of rds-lite and the kernel's RDS, as a run of two machines.
//!
//! Both have the one program, which is the asker in the first and answers in the second; both load and
//! remove the kernel's modules as the turns ask for it.

use super::Options;

/// The member that has both.
const PROGRAM: &str = "rds-interop";

/// Where the answerer takes orders.
const PEER: &str = "10.0.0.2";
const PORT: u16 = 16_000;

/// The address of the first machine.
const ADDRESS: &str = "10.0.0.1";

/// The options of the run that these options ask for; what follows two dashes is for the race.
pub(super) fn expand(options: &Options) -> Options {
    let further = options.command.iter().cloned();
    let command = [PROGRAM, "race", "--peer", &format!("{PEER}:{PORT}")]
        .into_iter()
        .chain(["--address", ADDRESS])
        .map(str::to_owned)
        .chain(further)
        .collect();
    Options {
        vms: 2,
        peer_command: Some(format!("{PROGRAM} race-agent --listen {PEER}:{PORT}")),
        peer_port: Some(PORT),
        command,
        race: false,
        ..options.clone()
    }
}
