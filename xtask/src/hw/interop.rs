//! The matrix of rds-lite against the kernel's RDS, as a run of two machines.
//!
//! rds-lite is in the first, with an address below and one above that of the second, where the kernel's RDS is
//! driven by an agent. Over TCP the smaller address connects, so both sides do.

use super::Options;
use super::guest::quote;

/// The member that has both the agent and the matrix.
const PROGRAM: &str = "rds-interop";

/// The tool of rds-lite, whose users run it against the kernel.
const TOOL: &str = "rds";

/// What loses packets. Named in full: only root has its directory on the path.
const TRAFFIC_CONTROL: &str = "/sbin/tc";

/// Where the agent listens.
const PEER: &str = "10.0.0.2";
const PORT: u16 = 16_000;

/// The addresses of rds-lite; the machine comes up with the first.
const ADDRESSES: [&str; 2] = ["10.0.0.1", "10.0.0.3"];

/// The network device of either machine.
const INTERFACE: &str = "eth0";

/// The options of the run that these options ask for.
pub(super) fn expand(options: &Options, transport: &str) -> Options {
    let [first, second] = ADDRESSES;
    let only = options
        .only
        .iter()
        .map(|only| format!("--only {}", quote(only)));
    let matrix = format!(
        "ip addr add {second}/24 dev {INTERFACE} && \
         exec {PROGRAM} matrix --transport {transport} --peer {PEER}:{PORT} \
         --address {first} --address {second} --interface {INTERFACE} --tool {TOOL} {}",
        only.collect::<String>()
    );
    let agent = format!(
        "{PROGRAM} agent --transport {transport} --listen {PEER}:{PORT} --interface {INTERFACE}"
    );
    Options {
        vms: 2,
        peer_command: Some(agent),
        peer_port: Some(PORT),
        pack: [
            &[PROGRAM, TOOL, TRAFFIC_CONTROL].map(str::to_owned)[..],
            &options.pack,
        ]
        .concat(),
        command: ["sh", "-c", &matrix].map(str::to_owned).into(),
        command_is_test: true,
        interop: None,
        ..options.clone()
    }
}
