//! A peer in another process, one round of which runs whenever it is asked to: so its rounds take
//! turns with ours.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};

/// A program that answers each line `WORK OPERATIONS` by a line with the nanoseconds that one
/// operation took, and ends with its input.
pub(crate) struct Peer {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Peer {
    pub(crate) fn start(program: &Path) -> Result<Self> {
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let requests = child.stdin.take();
        let answers = child.stdout.take().context("the peer has no output")?;
        Ok(Self {
            child,
            requests,
            answers: BufReader::new(answers),
        })
    }

    /// Has the peer do `work` this many times. Returns nanoseconds each.
    pub(crate) fn round(&mut self, work: &str, operations: usize) -> Result<f64> {
        let requests = self.requests.as_mut().context("the peer has no input")?;
        writeln!(requests, "{work} {operations}")?;
        requests.flush()?;
        let mut answer = String::new();
        if self.answers.read_line(&mut answer)? == 0 {
            bail!("the peer has ended while it was to do `{work}`");
        }
        let answer = answer.trim();
        answer
            .parse()
            .with_context(|| format!("the peer says `{answer}`, which is no number"))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The end of its input ends it.
        self.requests = None;
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_peer_answers_each_request_and_its_end_is_told() {
        let path = std::env::temp_dir().join(format!("mr-bench-peer-{}", std::process::id()));
        std::fs::write(
            &path,
            "#!/bin/sh\nread work count\necho $count.5\nread work count\necho what\n",
        )
        .unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
        let mut peer = Peer::start(&path).unwrap();
        assert_eq!(peer.round("hit", 3).unwrap(), 3.5);
        let error = peer.round("hit", 3).unwrap_err();
        assert!(error.to_string().contains("`what`"), "{error}");
        assert!(peer.round("hit", 3).is_err());
        drop(peer);
        std::fs::remove_file(&path).unwrap();
    }
}
