//! What the contenders do, whatever carries their messages.

use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use crate::rounds::{Figures, Round, interleave};

/// How long any send or receive may take.
pub(super) const LIMIT: Duration = Duration::from_secs(10);

/// One end of a connection that carries messages of one size.
pub(super) trait End: Send {
    /// Sends a message.
    fn send(&mut self) -> Result<()>;

    /// Receives a message, and returns its length.
    fn receive(&mut self) -> Result<usize>;

    /// Sends back what was received last.
    fn answer(&mut self) -> Result<()>;

    /// Sends an empty message and everything that was held back before it.
    fn mark(&mut self) -> Result<()>;
}

/// The end that is measured, and the one that serves it.
pub(super) type Ends = [Box<dyn End>; 2];

/// What a round does.
#[derive(Clone, Copy)]
pub(super) enum Load {
    /// Messages in one direction. A round ends when the other side has received all of them.
    Stream { messages: usize },
    /// Each message is sent back; this many are under way.
    Requests { messages: usize, depth: usize },
}

impl Load {
    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::Stream { .. } => "MB/s",
            Self::Requests { .. } => "k msg/s",
        }
    }

    fn round(self, near: &mut dyn End, size: usize) -> Result<f64> {
        let start = Instant::now();
        let messages = match self {
            Self::Stream { messages } => stream(near, messages),
            Self::Requests { messages, depth } => requests(near, size, messages, depth),
        }?;
        let rate = messages as f64 / start.elapsed().as_secs_f64();
        Ok(match self {
            Self::Stream { .. } => rate * size as f64 / 1e6,
            Self::Requests { .. } => rate / 1e3,
        })
    }

    fn serve(self, far: &mut dyn End, size: usize) -> Result<()> {
        match self {
            Self::Stream { messages } => take(far, size, messages),
            Self::Requests { .. } => answer(far, size),
        }
    }
}

/// Rounds of all pairs by turns.
pub(super) fn beside<const N: usize>(
    rounds: usize,
    load: Load,
    size: usize,
    pairs: [Ends; N],
) -> Result<[Figures; N]> {
    thread::scope(|scope| {
        let mut servers = Vec::new();
        let mut nears = pairs.map(|[near, mut far]| {
            servers.push(scope.spawn(move || load.serve(&mut *far, size)));
            near
        });
        let figures = {
            let mut contenders = nears
                .each_mut()
                .map(|near| move || load.round(&mut **near, size));
            interleave(rounds, contenders.each_mut().map(|round| round as Round))
        };
        let ended = nears.iter_mut().try_for_each(|near| near.mark());
        let served = servers.into_iter().map(join).collect::<Result<Vec<()>>>();
        match (figures, served) {
            (Ok(figures), Ok(_)) => ended.map(|()| figures),
            (Err(near), Err(far)) => Err(near.context(format!("the serving side: {far:#}"))),
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    })
}

fn join(server: ScopedJoinHandle<'_, Result<()>>) -> Result<()> {
    let joined = server.join();
    joined.map_err(|_| anyhow!("the serving side has panicked"))?
}

/// Sends all, and waits for the word that they were received. Returns how many crossed.
fn stream(near: &mut dyn End, messages: usize) -> Result<usize> {
    for _ in 0..messages {
        near.send()?;
    }
    near.mark()?;
    let word = near.receive().context("no word that all was received")?;
    ensure!(word == 0, "{word} bytes came back from a stream");
    Ok(messages)
}

/// The other side of a stream, until a mark comes that no message was ahead of.
fn take(far: &mut dyn End, size: usize, messages: usize) -> Result<()> {
    loop {
        let mut taken = 0;
        loop {
            match far.receive()? {
                0 => break,
                len => ensure!(len == size, "a message of {len} bytes, not {size}"),
            }
            taken += 1;
        }
        if taken == 0 {
            return Ok(());
        }
        ensure!(taken == messages, "{taken} messages, not {messages}");
        far.mark()?;
    }
}

/// Returns how many messages crossed, in both directions together.
fn requests(near: &mut dyn End, size: usize, messages: usize, depth: usize) -> Result<usize> {
    let ahead = depth.min(messages);
    for _ in 0..ahead {
        near.send()?;
    }
    for answered in 0..messages {
        let len = near.receive().context("no answer")?;
        ensure!(len == size, "an answer of {len} bytes, not {size}");
        if ahead + answered < messages {
            near.send()?;
        }
    }
    Ok(2 * messages)
}

/// The other side of requests, until a mark comes.
fn answer(far: &mut dyn End, size: usize) -> Result<()> {
    loop {
        match far.receive()? {
            0 => return Ok(()),
            len => ensure!(len == size, "a request of {len} bytes, not {size}"),
        }
        far.answer()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Receives messages of these lengths, and counts.
    #[derive(Default)]
    struct Script {
        lengths: Vec<usize>,
        sent: usize,
        marks: usize,
        /// Sent and not answered, and the most that ever were.
        ahead: usize,
        most_ahead: usize,
    }

    impl End for Script {
        fn send(&mut self) -> Result<()> {
            self.sent += 1;
            self.ahead += 1;
            self.most_ahead = self.most_ahead.max(self.ahead);
            Ok(())
        }

        fn receive(&mut self) -> Result<usize> {
            ensure!(!self.lengths.is_empty(), "nothing came");
            self.ahead = self.ahead.saturating_sub(1);
            Ok(self.lengths.remove(0))
        }

        fn answer(&mut self) -> Result<()> {
            self.sent += 1;
            Ok(())
        }

        fn mark(&mut self) -> Result<()> {
            self.marks += 1;
            Ok(())
        }
    }

    fn script(lengths: &[usize]) -> Script {
        Script {
            lengths: lengths.to_vec(),
            ..Script::default()
        }
    }

    #[test]
    fn a_stream_counts_only_if_all_of_it_came() {
        let mut whole = script(&[9, 9, 9, 0, 9, 9, 9, 0, 0]);
        take(&mut whole, 9, 3).unwrap();
        assert_eq!(whole.marks, 2, "a word for each round");
        assert!(take(&mut script(&[9, 9, 0, 0]), 9, 3).is_err());
        assert!(take(&mut script(&[9, 9, 9, 9, 0, 0]), 9, 3).is_err());
        assert!(take(&mut script(&[9, 8, 9, 0, 0]), 9, 3).is_err());
    }

    #[test]
    fn requests_keep_to_their_depth() {
        for (messages, depth) in [(20, 8), (8, 8), (3, 8), (5, 1)] {
            let mut near = script(&vec![9; messages]);
            assert_eq!(
                requests(&mut near, 9, messages, depth).unwrap(),
                2 * messages
            );
            assert_eq!((near.sent, near.ahead), (messages, 0));
            assert_eq!(near.most_ahead, depth.min(messages));
        }
        assert!(
            requests(&mut script(&[9, 9]), 9, 3, 1).is_err(),
            "one is lost"
        );
        assert!(requests(&mut script(&[9, 8, 9]), 9, 3, 1).is_err());
    }
}
