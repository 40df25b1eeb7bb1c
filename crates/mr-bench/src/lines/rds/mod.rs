//! rds-lite's datagrams against messages over plain TCP, both on loopback, and over the mock fabric.
//!
//! The plain protocol is what one writes by hand, with a write per message. "Corked" is how `rds stress`
//! sets its sockets, and what the goals are for; "uncorked" is a new socket as it comes.

mod load;
mod plain;
mod sockets;

use anyhow::Result;

use crate::lines::Setting;
use crate::report::{Line, Wanted};
use load::{Load, beside};
use plain::{BUFFER, Writes};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const SIZES: [usize; 4] = [KIB, 4 * KIB, 64 * KIB, MIB];

/// What a round moves in one direction at most: some 20 to 50 ms, since processors are often taken
/// away for a few.
const BYTES: usize = 64 * MIB;
const MESSAGES: usize = 16 << 10;
const REQUESTS: usize = 4000;

const DEPTH: usize = 8;
/// Bytes under way at most, beyond one message. Both sides of the plain protocol may be writing at
/// once, and neither reads meanwhile: what is under way has to fit into the kernel's buffers.
const UNDER_WAY: usize = 64 * KIB;

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for size in SIZES {
        let load = Load::Stream {
            messages: MESSAGES.min(BYTES / size),
        };
        let wanted = (size >= 64 * KIB).then_some(Wanted::AtLeast(0.8));
        let what = format!("stream of {}", name(size));
        lines.extend(contenders(&what, size, load, wanted, setting)?);
    }
    for size in SIZES {
        let messages = REQUESTS.min(BYTES / size);
        let depth = (UNDER_WAY / size).clamp(1, DEPTH);
        let load = Load::Requests { messages, depth };
        let wanted = (size == KIB).then_some(Wanted::AtLeast(0.7));
        let what = format!("requests of {}, depth {depth}", name(size));
        lines.extend(contenders(&what, size, load, wanted, setting)?);
    }
    Ok(lines)
}

/// One load over everything that can carry it; the goal is for corked sockets over TCP.
fn contenders(
    what: &str,
    size: usize,
    load: Load,
    wanted: Option<Wanted>,
    setting: &Setting,
) -> Result<Vec<Line>> {
    let ends = [
        plain::pair(size, Writes::Single)?,
        sockets::tcp_pair(size, true, 1)?,
        sockets::tcp_pair(size, false, 2)?,
        sockets::mock_pair(size)?,
    ];
    let [plain, corked, uncorked, mock] = beside(setting.rounds(31), load, size, ends)?;
    let line = |who: &str, figures: &[f64]| {
        Line::ratio(format!("{who}: {what}"), figures, "plain TCP", &plain).unit(load.unit())
    };
    let first = line("rds-lite on TCP, corked", &corked);
    let mut lines = vec![
        match wanted {
            Some(wanted) => first.wanted(wanted),
            None => first,
        },
        line("rds-lite on TCP, uncorked", &uncorked),
        line("rds-lite on mock, corked", &mock),
    ];
    if size < BUFFER {
        lines.push(gathered(what, size, load, setting)?);
    }
    Ok(lines)
}

/// Corked sockets save system calls; so does a plain protocol that gathers what it writes. A message
/// that is longer than its buffer is written by itself all the same.
fn gathered(what: &str, size: usize, load: Load, setting: &Setting) -> Result<Line> {
    let ends = [
        plain::pair(size, Writes::Gathered)?,
        sockets::tcp_pair(size, true, 1)?,
    ];
    let [plain, corked] = beside(setting.rounds(31), load, size, ends)?;
    let what = format!("rds-lite on TCP, corked: {what}");
    Ok(Line::ratio(what, &corked, "plain TCP, gathered writes", &plain).unit(load.unit()))
}

fn name(size: usize) -> String {
    if size < MIB {
        format!("{} KiB", size / KIB)
    } else {
        format!("{} MiB", size / MIB)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_contenders_carry_all_loads() {
        let loads = [
            Load::Stream { messages: 100 },
            Load::Requests {
                messages: 100,
                depth: DEPTH,
            },
        ];
        for load in loads {
            let ends = [
                plain::pair(KIB, Writes::Single).unwrap(),
                plain::pair(KIB, Writes::Gathered).unwrap(),
                sockets::tcp_pair(KIB, true, 11).unwrap(),
                sockets::tcp_pair(KIB, false, 12).unwrap(),
                sockets::mock_pair(KIB).unwrap(),
            ];
            let figures = beside(2, load, KIB, ends).unwrap();
            for rounds in figures {
                assert_eq!(rounds.len(), 2);
                assert!(rounds.iter().all(|&rate| rate > 0.0), "{rounds:?}");
            }
        }
    }
}
