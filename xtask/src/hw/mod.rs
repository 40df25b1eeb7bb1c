//! `cargo xtask hw`: what needs an RDMA device, on a software one in a virtual machine or on a real one.
//!
//! The virtual machine is QEMU's emulation of a PC with the distribution's kernel, whose driver `rdma_rxe` makes
//! an RDMA device of any network device. Everything is kept below `target/hw`: the unpacked kernel, the guest's
//! file system, and the logs of the last run.

mod artifacts;
mod cpio;
mod device;
mod guest;
mod initramfs;
mod interop;
mod kernel;
mod ldd;
mod modules;
mod qemu;
mod race;

use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;

use self::artifacts::{Profile, Program, Workspace};
use self::guest::{Call, Ending, Job};
use self::initramfs::Contents;
use self::qemu::{Machine, Network};
use crate::packages;
use crate::process::note;
use crate::setup;

/// Seconds that the guest gives up before the host does, so that it can still say why.
const HEADSTART: u64 = 15;

/// Lines of the console that are shown when a guest did not end well.
const CONSOLE_LINES: usize = 30;

/// Programs that a prompt comes with.
const SHELL_TOOLS: &[&str] = &["ibv_devinfo", "ibv_rc_pingpong", "rping"];

/// For the end of the help text.
pub(crate) const EXIT_STATUS: &str = "\
Exit status: that of the first program that failed;
  124  it took too long
  125  the guest broke down
   77  this machine cannot run it: packages are missing and must not be installed, or there is no such device

Programs find the device's name in MR_VERBS_DEVICE. Logs are kept in target/hw.";

/// What to run, and where.
#[derive(Args, Debug, Clone)]
pub(crate) struct Options {
    /// Use this RDMA device of this machine instead of a virtual machine
    #[arg(long, value_name = "NAME", conflicts_with_all = ["vms", "shell", "memory", "peer_command"])]
    device: Option<String>,

    /// How many virtual machines; two are joined by a cable, and the command runs in the first with PEER=10.0.0.2
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    vms: u8,

    /// What runs in the second machine, a line for its shell; its output is marked
    #[arg(long, value_name = "COMMAND")]
    peer_command: Option<String>,

    /// Start the command only when the second machine listens on this TCP port
    #[arg(long, value_name = "PORT", requires = "peer_command")]
    peer_port: Option<u16>,

    /// Run rds-lite against the kernel's RDS in two virtual machines, over this transport, and print the matrix
    #[arg(
        long,
        value_name = "TRANSPORT",
        value_parser = ["tcp", "verbs"],
        conflicts_with_all = ["command", "device", "vms", "peer_command", "peer_port", "shell", "filter"]
    )]
    interop: Option<String>,

    /// Race rds-lite against the kernel's RDS in two virtual machines; what follows -- is for `rds-interop race`
    #[arg(
        long,
        conflicts_with_all = ["interop", "device", "vms", "peer_command", "peer_port", "shell", "filter"]
    )]
    race: bool,

    /// Of the matrix, run only what has this text in its line
    #[arg(long, value_name = "TEXT", requires = "interop")]
    only: Option<String>,

    /// Give a prompt in the machine, with ibv_devinfo and rdma
    #[arg(long, conflicts_with_all = ["command", "vms", "filter"])]
    shell: bool,

    /// Fail instead of installing packages that are missing
    #[arg(long)]
    no_install: bool,

    /// Bound on the run of the machines, without building
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(30..=86_400))]
    timeout: u64,

    /// Memory of each machine, beside what its file system takes
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(256..=65_536))]
    memory: u64,

    /// Have the machine's clocks count instructions, a nanosecond each, whatever the host does meanwhile
    #[arg(long, conflicts_with_all = ["device", "vms"])]
    count: bool,

    /// Set a variable for the programs (repeatable)
    #[arg(long, value_name = "NAME=VALUE", value_parser = guest::assignment)]
    env: Vec<(String, String)>,

    /// Have this program in the machine as well (repeatable)
    #[arg(long, value_name = "PROGRAM")]
    pack: Vec<String>,

    /// Run only tests whose name contains this
    #[arg(long, value_name = "TEXT", conflicts_with = "command")]
    filter: Option<String>,

    /// Build the tests, or what --interop runs, with all optimisation; commands and --race always have it
    #[arg(long, conflicts_with_all = ["command", "race"])]
    release: bool,

    /// A program of this workspace, one on the path, or one of the guest's shell; without one, the tests of
    /// mr-verbs, and those of mr-lab and rds-lite that need a device
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,

    /// The command is a test: it shows what works, not how fast
    #[arg(skip)]
    command_is_test: bool,
}

impl Options {
    fn profile_of_tests(&self) -> Profile {
        if self.release {
            Profile::Release
        } else {
            Profile::Test
        }
    }
}

/// What is to be run: the programs to take along, and the calls in each guest.
struct Plan {
    programs: Vec<Program>,
    calls: Vec<Call>,
    peer_calls: Vec<Call>,
}

/// Runs the tests or a command where there is an RDMA device.
///
/// # Errors
/// [`packages::Unavailable`] when this machine cannot; another error when something does not build or pack.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if let Some(transport) = &options.interop {
        return run(&interop::expand(options, transport));
    }
    if options.race {
        return run(&race::expand(options));
    }
    if options.peer_command.is_some() && options.vms != 2 {
        note("error: --peer-command needs --vms 2");
        return Ok(ExitCode::from(2));
    }
    let workspace = Workspace::read()?;
    let code = match &options.device {
        Some(device) => run_on_device(options, &workspace, device)?,
        None => run_in_machines(options, &workspace)?,
    };
    Ok(ExitCode::from(code))
}

fn run_on_device(options: &Options, workspace: &Workspace, device: &str) -> Result<u8> {
    device::check(device)?;
    let plan = plan(options, workspace)?;
    let bound = Duration::from_secs(options.timeout);
    device::run(device, &plan.programs, &plan.calls, &options.env, bound)
}

fn run_in_machines(options: &Options, workspace: &Workspace) -> Result<u8> {
    let cache = workspace.cache()?;
    fs::create_dir_all(&cache).with_context(|| format!("cannot make {}", cache.display()))?;
    let _lock = lock(&cache)?;

    packages::ensure(packages::VM, options.no_install)?;
    qemu::check()?;
    let kernel = kernel::ensure(&cache)?;
    let plan = plan(options, workspace)?;
    let initramfs = cache.join("initramfs.cpio");
    let size = Contents::collect(&kernel, &plan.programs)?.write(&initramfs)?;
    let machine = Machine {
        cache: &cache,
        kernel: &kernel.image,
        initramfs: &initramfs,
        // The archive and what it unpacks to are both in memory for a while.
        memory_mib: options.memory + 2 * (size >> 20),
        counts: options.count,
    };
    boot(options, &plan, &machine)
}

/// What to build, pack and call.
fn plan(options: &Options, workspace: &Workspace) -> Result<Plan> {
    let (mut programs, calls) = match Call::new(options.command.iter().cloned()) {
        _ if options.shell => (Vec::new(), Vec::new()),
        Some(call) => (Vec::new(), vec![call]),
        None => {
            setup::ensure(options.no_install)?;
            let programs = artifacts::suite(workspace, options.profile_of_tests())?;
            let calls = Call::suite(&programs, options.filter.as_deref());
            (programs, calls)
        }
    };
    let peer_calls: Vec<Call> = options
        .peer_command
        .iter()
        .map(|line| Call::shell(line))
        .collect();

    // Of a line for the shell this is the first word, of all others the program.
    let named = calls
        .iter()
        .chain(&peer_calls)
        .map(|call| call.name.as_str());
    let packed = options.pack.iter().map(String::as_str);
    let shell_tools = SHELL_TOOLS.iter().copied().filter(|_| options.shell);
    for name in ["rdma"]
        .into_iter()
        .chain(shell_tools)
        .chain(packed)
        .chain(named)
    {
        if programs.iter().all(|program| program.name != name) {
            programs.extend(find(workspace, name, options)?);
        }
    }
    Ok(Plan {
        programs,
        calls,
        peer_calls,
    })
}

/// The program of this name, installed first if it is a well-known tool; none if the guest's shell has it.
fn find(workspace: &Workspace, name: &str, options: &Options) -> Result<Option<Program>> {
    let profile = match options.command_is_test {
        true => options.profile_of_tests(),
        false => Profile::Release,
    };
    if let Some(program) = artifacts::find(workspace, name, profile)? {
        return Ok(Some(program));
    }
    if let Some(package) = packages::of_tool(name) {
        packages::ensure(&[package], options.no_install)?;
        return artifacts::find(workspace, name, profile);
    }
    if options.device.is_some() || !initramfs::shell_has(name)? {
        bail!(
            "there is no program {name}: not in this workspace, not on the path, not in the guest's shell"
        );
    }
    Ok(None)
}

/// Starts the machines and waits for the first; the status is its own, or the peer's if that failed alone.
fn boot(options: &Options, plan: &Plan, machine: &Machine<'_>) -> Result<u8> {
    let started = Instant::now();
    let two = options.vms == 2;
    let job = |guest, calls: &[Call]| Job {
        guest,
        has_peer: two,
        peer_port: options.peer_port,
        interactive: options.shell,
        // The peer must not be the first to give up, or it would seem to be the cause.
        limit: if guest == 1 {
            options.timeout - HEADSTART
        } else {
            options.timeout
        },
        environment: options.env.clone(),
        calls: calls.to_vec(),
    };
    let bound = Duration::from_secs(options.timeout);

    note("booting");
    let mut peer = two
        .then(|| machine.start(&job(2, &plan.peer_calls), Network::CableServer))
        .transpose()?;
    let network = if two {
        Network::CableClient
    } else {
        Network::Alone
    };
    let first = machine.start(&job(1, &plan.calls), network)?;

    let ending = first.finish((!options.shell).then_some(bound), peer.as_mut())?;
    explain("guest", 1, &ending, machine.cache)?;
    let mut code = ending.code();
    if let Some(peer) = peer {
        // A server that would go on for ever has done its duty.
        if let Some(ending) = peer.finish_soon()? {
            explain("peer", 2, &ending, machine.cache)?;
            code = if code == 0 { ending.code() } else { code };
        }
    }
    note(&format!(
        "ran {:.1} s, status {code}",
        started.elapsed().as_secs_f64()
    ));
    Ok(code)
}

/// Says how a guest ended, with the end of its console if that helps.
fn explain(who: &str, guest: u8, ending: &Ending, cache: &Path) -> Result<()> {
    let log = cache.join(qemu::console_log(guest));
    if ending.needs_console() {
        let console = fs::read(&log)?;
        note(&format!("---- from {}", log.display()));
        note(&qemu::excerpt(
            &String::from_utf8_lossy(&console),
            CONSOLE_LINES,
        ));
        note("----");
    }
    if ending.code() != 0 {
        note(&format!("{who}: {ending}"));
    }
    Ok(())
}

/// Keeps a second run away from the same cache, until the file is closed.
fn lock(cache: &Path) -> Result<File> {
    let file = File::create(cache.join("lock"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => bail!(
            "another `cargo xtask hw` uses {}; wait for it",
            cache.display()
        ),
        Err(TryLockError::Error(error)) => Err(error).context("cannot lock the cache"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn parse(words: &[&str]) -> Result<Options, clap::Error> {
        Line::try_parse_from([&["hw"], words].concat()).map(|line| line.options)
    }

    #[test]
    fn what_follows_two_dashes_is_the_command_as_it_is() {
        let options = parse(&[
            "--timeout",
            "60",
            "--",
            "mr-lab",
            "measure",
            "--format",
            "json",
        ])
        .unwrap();
        assert_eq!(options.command, ["mr-lab", "measure", "--format", "json"]);
        assert_eq!(options.timeout, 60);
        let options = parse(&[
            "--vms",
            "2",
            "--peer-command",
            "rping -s",
            "--peer-port",
            "7",
            "--env",
            "A=b",
        ])
        .unwrap();
        assert_eq!((options.vms, options.peer_port), (2, Some(7)));
        assert_eq!(options.env, [("A".to_owned(), "b".to_owned())]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for bad in [
            &["mr-lab"][..],
            &["--vms", "0"],
            &["--vms", "3"],
            &["--timeout", "5"],
            &["--env", "A"],
            &["--device", "mlx5_0", "--vms", "2"],
            &["--device", "mlx5_0", "--shell"],
            &["--shell", "--", "ls"],
            &["--filter", "x", "--", "ls"],
            &["--interop", "ftp"],
            &["--interop", "tcp", "--", "ls"],
            &["--interop", "tcp", "--vms", "2"],
            &["--only", "ping"],
            &["--race", "--vms", "2"],
            &["--race", "--interop", "tcp"],
            &["--peer-port", "7"],
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_matrix_is_a_run_of_two_machines() {
        let options = parse(&["--interop", "tcp", "--only", "it's", "--timeout", "99"]).unwrap();
        let run = interop::expand(&options, "tcp");
        assert_eq!((run.vms, run.timeout, run.peer_port), (2, 99, Some(16_000)));
        assert!(run.interop.is_none(), "or it would never begin");
        assert!(
            run.command[2].ends_with(r"--only 'it'\''s'"),
            "{:?}",
            run.command
        );
    }

    #[test]
    fn a_race_is_a_run_of_two_machines_and_has_the_further_words() {
        let options = parse(&["--race", "--", "--format", "json"]).unwrap();
        let run = race::expand(&options);
        assert_eq!((run.vms, run.peer_port, run.race), (2, Some(16_000), false));
        assert_eq!(run.command[..2], ["rds-interop", "race"]);
        assert!(run.command.ends_with(&["--format".into(), "json".into()]));
    }

    #[test]
    fn a_cache_has_one_user() {
        let directory = std::env::temp_dir().join(format!("xtask-lock-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let first = lock(&directory).unwrap();
        assert!(
            lock(&directory)
                .unwrap_err()
                .to_string()
                .contains("another")
        );
        drop(first);
        assert!(lock(&directory).is_ok());
        fs::remove_dir_all(&directory).unwrap();
    }
}
