//! What the host tells a guest to do, and what the guest reports.
//!
//! The other half is `init.sh`.

use std::fmt;

use anyhow::{Result, bail};

use super::artifacts::Program;

/// Exit status of a run that took too long, as `timeout` has it.
pub(super) const TIMED_OUT: u8 = 124;

/// Exit status of a run that ended without a status: the guest did not come up, or its kernel died.
pub(super) const BROKEN: u8 = 125;

/// The variable that tells tests which RDMA device they may use.
pub(super) const DEVICE_VARIABLE: &str = "MR_VERBS_DEVICE";

/// One program to run in a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    /// What it is called in messages.
    pub(super) name: String,
    pub(super) program: String,
    pub(super) arguments: Vec<String>,
}

impl Call {
    /// The first word is the program, the rest its arguments; none without a word.
    pub(super) fn new(words: impl IntoIterator<Item = String>) -> Option<Self> {
        let mut words = words.into_iter();
        let program = words.next()?;
        Some(Self {
            name: program.clone(),
            program,
            arguments: words.collect(),
        })
    }

    /// A line for a shell, named after its first word.
    pub(super) fn shell(line: &str) -> Self {
        Self {
            name: line
                .split_whitespace()
                .next()
                .unwrap_or_default()
                .to_owned(),
            program: "sh".to_owned(),
            arguments: vec!["-c".to_owned(), line.to_owned()],
        }
    }

    /// Calls each test binary, with a filter on the names of tests if there is one.
    pub(super) fn suite(programs: &[Program], filter: Option<&str>) -> Vec<Self> {
        let call = |program: &Program| Self {
            name: program.name.clone(),
            program: program.name.clone(),
            arguments: filter.map(str::to_owned).into_iter().collect(),
        };
        programs.iter().map(call).collect()
    }
}

/// Everything that one guest is told.
#[derive(Debug, Default)]
pub(super) struct Job {
    /// 1, or 2 for the peer.
    pub(super) guest: u8,
    /// Whether there is another guest.
    pub(super) has_peer: bool,
    /// The peer counts as ready only when it listens on this TCP port.
    pub(super) peer_port: Option<u16>,
    pub(super) interactive: bool,
    /// Seconds after which the guest ends itself.
    pub(super) limit: u64,
    /// Variables for the programs: names and values.
    pub(super) environment: Vec<(String, String)>,
    pub(super) calls: Vec<Call>,
}

impl Job {
    /// The script that the guest's first process reads.
    pub(super) fn script(&self) -> String {
        let mut lines = vec![
            format!("GUEST={}", self.guest),
            format!("ADDRESS={}", address(self.guest)),
            format!("LIMIT={}", self.limit),
            format!("INTERACTIVE={}", u8::from(self.interactive)),
            format!(
                "PEER_PORT={}",
                self.peer_port
                    .map_or_else(String::new, |port| port.to_string())
            ),
            format!(
                "export PEER={}",
                if self.has_peer {
                    address(3 - self.guest)
                } else {
                    ""
                }
            ),
            format!("export {DEVICE_VARIABLE}=rxe0"),
            "export RUST_BACKTRACE=1".to_owned(),
        ];
        lines.extend(
            self.environment
                .iter()
                .map(|(name, value)| format!("export {name}={}", quote(value))),
        );
        lines.push("job() {".to_owned());
        lines.push("    :".to_owned());
        lines.extend(self.calls.iter().map(|call| {
            let words = [&call.name, &call.program]
                .into_iter()
                .chain(&call.arguments);
            format!(
                "    run {}",
                words.map(|word| quote(word)).collect::<Vec<_>>().join(" ")
            )
        }));
        lines.push("}\n".to_owned());
        lines.join("\n")
    }
}

/// Splits `NAME=VALUE`.
///
/// # Errors
/// It is no assignment to a shell variable.
pub(super) fn assignment(text: &str) -> Result<(String, String)> {
    let is_name = |name: &str| {
        !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    match text.split_once('=') {
        Some((name, value)) if is_name(name) => Ok((name.to_owned(), value.to_owned())),
        _ => bail!("{text:?} is not of the form NAME=VALUE"),
    }
}

fn address(guest: u8) -> &'static str {
    if guest == 1 { "10.0.0.1" } else { "10.0.0.2" }
}

/// A word that the shell takes as it is.
pub(super) fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// What a guest has reported so far.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    setup_failure: Option<String>,
    timed_out: bool,
    running: Option<String>,
    failed: Vec<(String, u8)>,
    status: Option<u8>,
}

impl Report {
    /// Reads the guest's lines; whatever is no such line is skipped.
    pub(super) fn parse(lines: &str) -> Self {
        let mut report = Self::default();
        for line in lines.lines() {
            let (word, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
            match word {
                "setup" => report.setup_failure = Some(rest.to_owned()),
                "timeout" => report.timed_out = true,
                "start" => report.running = Some(rest.to_owned()),
                "end" => report.end(rest),
                "status" => report.status = rest.parse().ok(),
                _ => {}
            }
        }
        report
    }

    fn end(&mut self, rest: &str) {
        self.running = None;
        if let Some((code, name)) = rest.split_once(' ')
            && let Ok(code @ 1..) = code.parse()
        {
            self.failed.push((name.to_owned(), code));
        }
    }

    /// The status of the whole job, once there is one.
    pub(super) fn status(&self) -> Option<u8> {
        self.status
    }

    /// How it ended, given that the machine is off, why it is, and the console's output.
    pub(super) fn ending(self, off: Off, console: &str) -> Ending {
        if let Some(status) = self.status {
            return Ending::Finished {
                status,
                failed: self.failed,
            };
        }
        let running = self.running;
        if let Some(panic) = find_panic(console) {
            Ending::Panicked { panic, running }
        } else if let Some(message) = self.setup_failure {
            Ending::NotSetUp { message }
        } else if self.timed_out || off == Off::TimeOver {
            Ending::TimedOut {
                running,
                alive: self.timed_out,
            }
        } else if off == Off::PeerGone {
            Ending::Abandoned { running }
        } else {
            Ending::Vanished { running }
        }
    }
}

/// Why a machine is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Off {
    ByItself,
    /// The host turned it off at the bound of the run.
    TimeOver,
    /// The host turned it off because the other machine was.
    PeerGone,
}

/// How a guest ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// All programs ran; some may have failed.
    Finished {
        status: u8,
        failed: Vec<(String, u8)>,
    },
    /// The guest did not get as far as the first program.
    NotSetUp { message: String },
    Panicked {
        panic: String,
        running: Option<String>,
    },
    /// `alive` says that the guest itself noticed.
    TimedOut {
        running: Option<String>,
        alive: bool,
    },
    /// The other machine went off, and this one could not go on without.
    Abandoned { running: Option<String> },
    /// The machine went off without a word.
    Vanished { running: Option<String> },
}

impl Ending {
    pub(super) fn code(&self) -> u8 {
        match self {
            Self::Finished { status, .. } => *status,
            Self::TimedOut { .. } => TIMED_OUT,
            Self::NotSetUp { .. }
            | Self::Panicked { .. }
            | Self::Abandoned { .. }
            | Self::Vanished { .. } => BROKEN,
        }
    }

    /// Whether the console's log helps to understand it.
    pub(super) fn needs_console(&self) -> bool {
        !matches!(self, Self::Finished { .. } | Self::Abandoned { .. })
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finished { status, failed } if failed.is_empty() => {
                write!(f, "ended with status {status}")
            }
            Self::Finished { failed, .. } => {
                let names = failed
                    .iter()
                    .map(|(name, code)| format!("{name} (status {code})"));
                write!(f, "failed: {}", names.collect::<Vec<_>>().join(", "))
            }
            Self::NotSetUp { message } => write!(f, "the guest could not be set up: {message}"),
            Self::Panicked { panic, running } => {
                write!(f, "the guest's kernel died {}: {panic}", during(running))
            }
            Self::TimedOut {
                running,
                alive: true,
            } => {
                write!(
                    f,
                    "took too long {}; the console's log says what waits for what",
                    during(running)
                )
            }
            Self::TimedOut {
                running,
                alive: false,
            } => {
                write!(
                    f,
                    "took too long {}, and the guest was too stuck to notice",
                    during(running)
                )
            }
            Self::Abandoned { running } => write!(
                f,
                "given up {}: the other machine went off",
                during(running)
            ),
            Self::Vanished { running } => write!(
                f,
                "the machine went off without a status {}",
                during(running)
            ),
        }
    }
}

fn during(running: &Option<String>) -> String {
    running.as_ref().map_or_else(
        || "outside of any program".to_owned(),
        |name| format!("while {name} ran"),
    )
}

/// The kernel's last words, without the time stamp in front.
fn find_panic(console: &str) -> Option<String> {
    let start = console.find("Kernel panic - not syncing")?;
    console[start..]
        .lines()
        .next()
        .map(|line| line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending(lines: &str, off: Off, console: &str) -> Ending {
        Report::parse(lines).ending(off, console)
    }

    #[test]
    fn a_finished_job_has_its_status_whatever_else_happened() {
        let lines = "start a\nend 0 a\nstart b c\nend 3 b c\nstatus 3\n";
        let failed = vec![("b c".to_owned(), 3)];
        assert_eq!(
            ending(lines, Off::TimeOver, "Kernel panic - not syncing"),
            Ending::Finished { status: 3, failed }
        );
        assert_eq!(
            ending("start a\nend 0 a\nstatus 0\n", Off::ByItself, "").code(),
            0
        );
    }

    #[test]
    fn other_endings_say_what_ran() {
        let console =
            "[ 1.0] x\r\n[ 1.5] Kernel panic - not syncing: sysrq triggered crash\r\n[ 1.6] y\n";
        let panicked = ending("start a\n", Off::ByItself, console);
        assert_eq!(
            panicked.to_string(),
            "the guest's kernel died while a ran: Kernel panic - not syncing: sysrq triggered crash"
        );
        assert_eq!(panicked.code(), BROKEN);

        assert_eq!(
            ending("start a\ntimeout\n", Off::ByItself, "").to_string(),
            "took too long while a ran; the console's log says what waits for what"
        );
        assert_eq!(
            ending("start a\n", Off::TimeOver, ""),
            Ending::TimedOut {
                running: Some("a".into()),
                alive: false
            }
        );
        assert_eq!(ending("start a\n", Off::TimeOver, "").code(), TIMED_OUT);

        assert_eq!(
            ending("setup no eth0\n", Off::ByItself, ""),
            Ending::NotSetUp {
                message: "no eth0".into()
            }
        );
        assert_eq!(
            ending("start a\nend 1 a\n", Off::ByItself, ""),
            Ending::Vanished { running: None }
        );
    }

    #[test]
    fn noise_is_no_report() {
        assert_eq!(
            Report::parse("\u{0}\u{1}garbage\nend\nend x\nstatus\nstatus 256\nstatus -1\n"),
            Report::default()
        );
    }

    #[test]
    fn a_job_survives_the_shell() {
        let words = ["printf", "%s|", "it's", "$HOME `x`", "", "a\nb", "\\"];
        let job = Job {
            guest: 2,
            has_peer: true,
            environment: vec![("A".to_owned(), "'quoted' $x".to_owned())],
            calls: vec![Call::new(words.map(str::to_owned)).unwrap()],
            ..Job::default()
        };
        let script = format!(
            "{}run() {{ shift; \"$@\"; }}\njob; printf '%s' \"$A $PEER $ADDRESS\"",
            job.script()
        );
        let output = std::process::Command::new("sh")
            .args(["-c", &script])
            .output()
            .unwrap();
        let expected = "it's|$HOME `x`||a\nb|\\|'quoted' $x 10.0.0.1 10.0.0.2";
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    }

    #[test]
    fn assignments_need_a_name() {
        assert_eq!(
            assignment("A_1=b=c").unwrap(),
            ("A_1".to_owned(), "b=c".to_owned())
        );
        for bad in ["", "A", "=b", "1A=b", "A B=c", "A;b=c"] {
            assert!(assignment(bad).is_err(), "{bad}");
        }
    }
}
