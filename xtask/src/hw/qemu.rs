//! Virtual machines: starting them, passing on what they print, and ending them in bounded time.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::guest::{Ending, Job, Off, Report};
use crate::packages::Unavailable;
use crate::process::succeeds;

const PROGRAM: &str = "qemu-system-x86_64";

/// How often a running machine is looked at.
const GLANCE: Duration = Duration::from_millis(50);

/// How long a machine may take to open its end of the cable.
const CABLE_WAIT: Duration = Duration::from_secs(10);

/// How long one of two machines may go on when the other is done.
const PEER_GRACE: Duration = Duration::from_secs(5);

/// Between two guests: the socket that joins them, below the cache.
const CABLE: &str = "cable.sock";

/// How a machine's network device is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Network {
    /// To nothing.
    Alone,
    /// To the other machine; this one waits for it.
    CableServer,
    CableClient,
}

/// What all machines of a run share.
pub(super) struct Machine<'a> {
    /// The directory with everything below: caches, logs, sockets.
    pub(super) cache: &'a Path,
    pub(super) kernel: &'a Path,
    pub(super) initramfs: &'a Path,
    pub(super) memory_mib: u64,
    /// Its clocks count instructions.
    pub(super) counts: bool,
}

/// A machine that runs. Dropping it turns it off.
pub(super) struct Running {
    child: Child,
    streams: Vec<JoinHandle<()>>,
    control: PathBuf,
    console: PathBuf,
}

/// The console's log of a guest, below the cache.
pub(super) fn console_log(guest: u8) -> String {
    if guest == 1 {
        "console.log".to_owned()
    } else {
        format!("console-{guest}.log")
    }
}

/// Fails if there is no QEMU that could run a guest.
pub(super) fn check() -> Result<()> {
    if !succeeds(PROGRAM, &["--version"]) {
        return Err(Unavailable(format!("{PROGRAM} cannot be started")).into());
    }
    Ok(())
}

impl Machine<'_> {
    /// Starts a machine for this job.
    ///
    /// # Errors
    /// QEMU cannot be started, or the other machine is not there for the cable.
    pub(super) fn start(&self, job: &Job, network: Network) -> Result<Running> {
        let guest = job.guest;
        fs::write(self.cache.join(job_file(guest)), job.script())?;
        let control = self.cache.join(control_file(guest));
        let console = self.cache.join(console_log(guest));
        for stale in [&control, &console] {
            File::create(stale).with_context(|| format!("cannot write {}", stale.display()))?;
        }
        match network {
            Network::Alone => {}
            Network::CableServer => drop(fs::remove_file(self.cache.join(CABLE))),
            Network::CableClient => self.wait_for_cable()?,
        }

        // A machine must not outlive us, however we end.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--", PROGRAM])
            .args(self.arguments(job, network))
            .current_dir(self.cache);
        if !job.interactive {
            command
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
        }
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start {PROGRAM}"))?;
        let streams = pass_on(guest, child.stdout.take(), child.stderr.take());
        Ok(Running {
            child,
            streams,
            control,
            console,
        })
    }

    fn wait_for_cable(&self) -> Result<()> {
        let deadline = Instant::now() + CABLE_WAIT;
        while !self.cache.join(CABLE).exists() {
            if Instant::now() > deadline {
                bail!(
                    "the peer's machine did not start; see {}",
                    self.cache.join(console_log(2)).display()
                );
            }
            thread::sleep(GLANCE);
        }
        Ok(())
    }

    /// QEMU's arguments; paths are relative to the cache, so that none needs QEMU's escapes.
    fn arguments(&self, job: &Job, network: Network) -> Vec<String> {
        let guest = job.guest;
        let relative = |path: &Path| {
            path.strip_prefix(self.cache)
                .unwrap_or(path)
                .to_string_lossy()
                .into_owned()
        };
        let quiet = if job.interactive { " quiet" } else { "" };
        let mut arguments: Vec<String> = [
            "-nodefaults",
            "-no-user-config",
            "-no-reboot",
            "-display",
            "none",
        ]
        .map(str::to_owned)
        .into();
        let mut add = |option: &str, value: String| arguments.extend([option.to_owned(), value]);
        // Emulation: where KVM cannot be used it often can still be opened, and then hangs.
        if self.counts {
            // Idle time is skipped. The processors take turns, so that counting makes sense.
            add("-icount", "shift=0,sleep=off".to_owned());
            add("-accel", "tcg,thread=single".to_owned());
        } else {
            add("-accel", "tcg,thread=multi".to_owned());
        }
        add("-cpu", "max".to_owned());
        add("-smp", if self.counts { "1" } else { "2" }.to_owned());
        add("-m", self.memory_mib.to_string());
        add("-kernel", relative(self.kernel));
        add("-initrd", relative(self.initramfs));
        add(
            "-append",
            // On a busy host the kernel's test of its timer sees too few ticks, and would give up.
            // And it would take the time from the emulated HPET, where each look is a system call and
            // an exit to QEMU: a hundred times what it is on a machine. The emulated counters of
            // all processors are one, which the kernel is not told otherwise.
            format!("console=ttyS0 panic=-1 oops=panic no_timer_check tsc=reliable{quiet}"),
        );
        add(
            "-fw_cfg",
            format!("name=opt/xtask/job,file={}", job_file(guest)),
        );

        let log = console_log(guest);
        let console = if job.interactive {
            format!("stdio,id=console,mux=on,signal=off,logfile={log}")
        } else {
            format!("file,id=console,path={log}")
        };
        let (stdout, stderr) = if job.interactive {
            add("-mon", "chardev=console".to_owned());
            ("null,id=stdout", "null,id=stderr")
        } else {
            (
                "stdio,id=stdout,signal=off",
                "file,id=stderr,path=/dev/stderr",
            )
        };
        let control = format!("file,id=control,path={}", control_file(guest));
        for chardev in [&console, stdout, stderr, &control] {
            add("-chardev", chardev.to_owned());
        }
        // Each line has an interrupt of its own: two of them sharing one can stall each other.
        for (line, place) in [
            ("console", "index=0"),
            ("stdout", "index=1"),
            ("stderr", "index=2,irq=5"),
            ("control", "index=3,irq=7"),
        ] {
            add("-device", format!("isa-serial,chardev={line},{place}"));
        }

        let netdev = match network {
            Network::Alone => "user,id=net,restrict=on".to_owned(),
            Network::CableServer => {
                format!("stream,id=net,server=on,addr.type=unix,addr.path={CABLE}")
            }
            Network::CableClient => {
                format!("stream,id=net,server=off,addr.type=unix,addr.path={CABLE}")
            }
        };
        add("-netdev", netdev);
        add(
            "-device",
            format!("virtio-net-pci,netdev=net,mac=52:54:00:00:00:0{guest},romfile="),
        );
        arguments
    }
}

impl Running {
    /// Waits until the machine is off, or turns it off: when the time is over, or soon after its peer is off.
    ///
    /// # Errors
    /// What the guest reported cannot be read.
    pub(super) fn finish(
        mut self,
        bound: Option<Duration>,
        mut peer: Option<&mut Self>,
    ) -> Result<Ending> {
        let mut deadline = bound.map(|bound| Instant::now() + bound);
        let mut reason = Off::TimeOver;
        let mut off = Off::ByItself;
        while self.child.try_wait()?.is_none() {
            if reason == Off::TimeOver && peer.as_mut().is_some_and(|peer| peer.is_off()) {
                reason = Off::PeerGone;
                deadline = Some(Instant::now() + PEER_GRACE);
            }
            if deadline.is_some_and(|deadline| Instant::now() > deadline) {
                self.turn_off();
                off = reason;
            }
            thread::sleep(GLANCE);
        }
        self.streams
            .drain(..)
            .for_each(|stream| drop(stream.join()));
        let console = fs::read(&self.console)?;
        Ok(self
            .report()?
            .ending(off, &String::from_utf8_lossy(&console)))
    }

    /// Gives the machine a little time to report a status, then turns it off. `None`: it had not finished.
    ///
    /// # Errors
    /// What the guest reported cannot be read.
    pub(super) fn finish_soon(mut self) -> Result<Option<Ending>> {
        let deadline = Instant::now() + PEER_GRACE;
        while self.report()?.status().is_none() && self.child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                return Ok(None);
            }
            thread::sleep(GLANCE);
        }
        self.turn_off();
        self.finish(None, None).map(Some)
    }

    fn report(&self) -> Result<Report> {
        let lines = fs::read(&self.control)
            .with_context(|| format!("cannot read {}", self.control.display()))?;
        Ok(Report::parse(&String::from_utf8_lossy(&lines)))
    }

    fn is_off(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    fn turn_off(&mut self) {
        // It may have gone off by itself just now, which is as good.
        let _ = self.child.kill();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.turn_off();
        let _ = self.child.wait();
    }
}

/// What to show of a console: from the kernel's first complaint on, else its end.
pub(super) fn excerpt(console: &str, lines: usize) -> String {
    const COMPLAINTS: [&str; 4] = [
        "BUG: ",
        "Oops: ",
        "general protection fault",
        "Kernel panic",
    ];
    let all: Vec<&str> = console
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.is_empty())
        .collect();
    let complaint = all
        .iter()
        .position(|line| COMPLAINTS.iter().any(|complaint| line.contains(complaint)));
    let start = complaint.unwrap_or(all.len().saturating_sub(lines));
    all[start..]
        .iter()
        .take(lines)
        .copied()
        .collect::<Vec<_>>()
        .join("\n")
}

fn job_file(guest: u8) -> String {
    format!("job-{guest}.sh")
}

fn control_file(guest: u8) -> String {
    format!("control-{guest}.log")
}

/// Passes on what a guest prints: the first one's as if it ran here, the peer's line by line and marked.
fn pass_on(guest: u8, out: Option<ChildStdout>, err: Option<ChildStderr>) -> Vec<JoinHandle<()>> {
    let out = out.map(|from| match guest {
        1 => thread::spawn(move || copy(from, io::stdout)),
        _ => thread::spawn(move || copy_marked(from)),
    });
    let err = err.map(|from| match guest {
        1 => thread::spawn(move || copy(from, io::stderr)),
        _ => thread::spawn(move || copy_marked(from)),
    });
    out.into_iter().chain(err).collect()
}

/// Copies bytes as they come. Goes on reading when they cannot be written, or the guest would block.
fn copy<W: Write>(mut from: impl Read, to: impl Fn() -> W) {
    let mut buffer = [0; 8192];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let mut to = to();
        let _ = to.write_all(&buffer[..count]).and_then(|()| to.flush());
    }
}

/// Copies whole lines to standard error, with a mark in front.
fn copy_marked(from: impl Read) {
    const LINE_MAX: u64 = 8192;
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while let Ok(1..) = from.by_ref().take(LINE_MAX).read_until(b'\n', &mut line) {
        let _ = writeln!(
            io::stderr().lock(),
            "peer| {}",
            String::from_utf8_lossy(&line).trim_end()
        );
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_begins_with_the_complaint_or_is_the_end() {
        assert_eq!(excerpt("a\r\n\r\nb\r\nc\r\n", 2), "b\nc");
        assert_eq!(excerpt("a\n", 5), "a");
        assert_eq!(excerpt("", 5), "");
        assert_eq!(
            excerpt("a\n[1] BUG: x\nb\nKernel panic\nc\n", 3),
            "[1] BUG: x\nb\nKernel panic"
        );
    }

    fn arguments(job: &Job, network: Network) -> String {
        let machine = Machine {
            cache: Path::new("/a,b/target/hw"),
            kernel: Path::new("/a,b/target/hw/kernel/boot/vmlinuz"),
            initramfs: Path::new("/a,b/target/hw/initramfs.cpio"),
            memory_mib: 1024,
            counts: false,
        };
        machine.arguments(job, network).join(" ")
    }

    #[test]
    fn arguments_hold_no_path_that_qemu_could_misread() {
        for guest in [1, 2] {
            for interactive in [false, true] {
                let job = Job {
                    guest,
                    interactive,
                    ..Job::default()
                };
                let arguments = arguments(&job, Network::CableServer);
                assert!(!arguments.contains("a,b"), "{arguments}");
                assert!(
                    arguments.contains("-kernel kernel/boot/vmlinuz "),
                    "{arguments}"
                );
            }
        }
    }

    #[test]
    fn the_two_ends_of_a_cable_differ() {
        let server = arguments(
            &Job {
                guest: 2,
                ..Job::default()
            },
            Network::CableServer,
        );
        let client = arguments(
            &Job {
                guest: 1,
                ..Job::default()
            },
            Network::CableClient,
        );
        assert!(
            server.contains("server=on") && server.contains("00:02,"),
            "{server}"
        );
        assert!(
            client.contains("server=off") && client.contains("00:01,"),
            "{client}"
        );
    }
}
