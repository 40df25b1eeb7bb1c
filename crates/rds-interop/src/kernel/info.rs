//! What the kernel's RDS tells of itself.

use super::sys::{self, Told};
use bitflags::bitflags;
use socket2::{Domain, Socket, Type};
use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd};

const FAMILY: i32 = 21;
const COUNTERS: i32 = 10_000;
const CONNECTIONS: i32 = 10_001;

/// A name, padded with zeros, and a number.
const COUNTER: usize = 40;
const NAME: usize = 32;

/// Two numbers, two addresses, a name, flags; newer kernels have a byte more.
const CONNECTION: RangeInclusive<usize> = 41..=42;
const ADDRESSES: usize = 16;
const FLAGS: usize = 40;

/// The kernel says how much it needs; what it has can grow meanwhile, but not for ever.
const TRIES: usize = 4;
const ROOM: usize = 4 << 10;
const MOST: usize = 1 << 20;

bitflags! {
    /// What a connection is about.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) struct State: u8 {
        const SENDING = 1;
        const CONNECTING = 2;
        const CONNECTED = 4;
    }
}

/// All counters of the kernel's RDS, since its modules were loaded.
///
/// # Errors
///
/// No module is loaded, or the answer is not understood.
pub fn counters() -> io::Result<BTreeMap<String, u64>> {
    let socket = Socket::new(Domain::from(FAMILY), Type::SEQPACKET, None)?;
    let (_, bytes) = items(socket.as_fd(), COUNTERS, COUNTER..=COUNTER)?;
    Ok(named(&bytes))
}

/// The connection between two addresses, if there is one.
pub(super) fn connection(
    socket: BorrowedFd<'_>,
    local: Ipv4Addr,
    remote: Ipv4Addr,
) -> io::Result<Option<State>> {
    let (item, bytes) = items(socket, CONNECTIONS, CONNECTION)?;
    Ok(between(&bytes, item, local, remote))
}

/// The items of an option: the size of one, and all of them.
fn items(
    socket: BorrowedFd<'_>,
    option: i32,
    size: RangeInclusive<usize>,
) -> io::Result<(usize, Vec<u8>)> {
    let mut buffer = vec![0; ROOM];
    for _ in 0..TRIES {
        match sys::get_option(socket, option, &mut buffer)? {
            Told::Items { item, len } if size.contains(&item) => {
                buffer.truncate(len);
                return Ok((item, buffer));
            }
            Told::Items { item, .. } => {
                let what = format!("an item of {option} has {item} bytes instead of {size:?}");
                return Err(io::Error::other(what));
            }
            Told::TooSmall(len) => buffer.resize(len.clamp(2 * buffer.len(), MOST), 0),
        }
    }
    Err(io::Error::other(format!(
        "the items of {option} do not fit"
    )))
}

fn named(bytes: &[u8]) -> BTreeMap<String, u64> {
    let (items, _) = bytes.as_chunks::<COUNTER>();
    items
        .iter()
        .map(|item| {
            let (name, value) = item.split_at(NAME);
            let end = name.iter().position(|&byte| byte == 0).unwrap_or(NAME);
            let name = String::from_utf8_lossy(&name[..end]).into_owned();
            (name, value.try_into().map_or(0, u64::from_ne_bytes))
        })
        .collect()
}

fn between(bytes: &[u8], item: usize, local: Ipv4Addr, remote: Ipv4Addr) -> Option<State> {
    let addresses = [local.octets(), remote.octets()];
    let mut connections = bytes.chunks_exact(item);
    let found = connections.find(|one| one[ADDRESSES..].starts_with(addresses.as_flattened()))?;
    found.get(FLAGS).copied().map(State::from_bits_truncate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_a_padded_name_and_a_number() {
        let mut bytes = vec![0; 2 * COUNTER + 3];
        bytes[..4].copy_from_slice(b"abcd");
        bytes[NAME..COUNTER].copy_from_slice(&7_u64.to_ne_bytes());
        bytes[COUNTER..COUNTER + NAME].fill(b'x');
        let counters = named(&bytes);
        assert_eq!(counters["abcd"], 7);
        assert_eq!(counters[&"x".repeat(NAME)], 0);
        assert_eq!(counters.len(), 2);
    }

    #[test]
    fn connections_are_found_by_both_addresses() {
        let [one, two] = [1, 2].map(|last| Ipv4Addr::new(10, 0, 0, last));
        for item in CONNECTION {
            let mut bytes = vec![0; 2 * item];
            for (nth, (local, remote, flags)) in [(two, one, 3), (one, two, 4)].iter().enumerate() {
                let addresses = [local.octets(), remote.octets()].concat();
                let at = nth * item;
                bytes[at + ADDRESSES..at + ADDRESSES + 8].copy_from_slice(&addresses);
                bytes[at + FLAGS] = *flags;
            }
            let connecting = State::SENDING | State::CONNECTING;
            assert_eq!(between(&bytes, item, two, one), Some(connecting));
            assert_eq!(between(&bytes, item, one, two), Some(State::CONNECTED));
            assert_eq!(between(&bytes, item, one, one), None);
        }
    }
}
