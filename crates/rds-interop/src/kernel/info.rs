//! What the kernel's RDS counts.

use super::sys::{self, Told};
use socket2::{Domain, Socket, Type};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;

const FAMILY: i32 = 21;
const COUNTERS: i32 = 10_000;

/// A name, padded with zeros, and a number.
const ITEM: usize = 40;
const NAME: usize = 32;

/// The kernel says how much it needs; what it has can grow meanwhile, but not for ever.
const TRIES: usize = 4;
const MOST: usize = 1 << 20;

/// All counters of the kernel's RDS, since its modules were loaded.
///
/// # Errors
///
/// No module is loaded, or the answer is not understood.
pub fn counters() -> io::Result<BTreeMap<String, u64>> {
    let socket = Socket::new(Domain::from(FAMILY), Type::SEQPACKET, None)?;
    let mut buffer = vec![0; 128 * ITEM];
    for _ in 0..TRIES {
        match sys::get_option(socket.as_fd(), COUNTERS, &mut buffer)? {
            Told::Items { item: ITEM, len } => return Ok(read(&buffer[..len])),
            Told::Items { item, .. } => {
                let what = format!("a counter has {item} bytes instead of {ITEM}");
                return Err(io::Error::other(what));
            }
            Told::TooSmall(len) => buffer.resize(len.clamp(2 * buffer.len(), MOST), 0),
        }
    }
    Err(io::Error::other("the counters do not fit"))
}

fn read(bytes: &[u8]) -> BTreeMap<String, u64> {
    let (items, _) = bytes.as_chunks::<ITEM>();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_a_padded_name_and_a_number() {
        let mut bytes = vec![0; 2 * ITEM + 3];
        bytes[..4].copy_from_slice(b"abcd");
        bytes[NAME..ITEM].copy_from_slice(&7_u64.to_ne_bytes());
        bytes[ITEM..ITEM + NAME].fill(b'x');
        let counters = read(&bytes);
        assert_eq!(counters["abcd"], 7);
        assert_eq!(counters[&"x".repeat(NAME)], 0);
        assert_eq!(counters.len(), 2);
    }
}
