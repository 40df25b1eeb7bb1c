//! What became of every byte lent to peers.

use mr_mock::MockHca;
use rds_lite::Cookie;
use std::collections::{BTreeMap, BTreeSet};

/// A region as the applications know it.
pub(crate) struct Lent {
    pub(crate) number: u32,
    pub(crate) owner: u32,
    pub(crate) len: usize,
    pub(crate) once_and_dead: bool,
    first: u8,
    /// Values that peers have been told to write.
    written: BTreeSet<u8>,
    pub(crate) freed: bool,
}

/// Buffers that are back are kept for a while, to see that nobody touches them.
struct Kept {
    buffer: Vec<u8>,
    value: u8,
}

#[derive(Default)]
pub(crate) struct Memory {
    /// By the node that lent it and the key.
    lent: BTreeMap<(usize, Cookie), Lent>,
    kept: Vec<Kept>,
    numbers: u32,
    pub(crate) returned: u64,
}

/// What a freed key's owner fills his memory with.
const OWNED: u8 = 0xEE;

impl Memory {
    /// A buffer to be lent, and its number.
    pub(crate) fn prepare(&mut self, len: usize) -> (u32, Vec<u8>) {
        self.numbers += 1;
        (self.numbers, vec![first_value(self.numbers); len])
    }

    pub(crate) fn lend(&mut self, node: usize, cookie: Cookie, lent: Lent) {
        let before = self.lent.insert((node, cookie), lent);
        assert!(
            before.is_none(),
            "{cookie:?} was given out while it may still be honoured"
        );
    }

    pub(crate) fn new_lent(number: u32, owner: u32, len: usize, once_and_dead: bool) -> Lent {
        Lent {
            number,
            owner,
            len,
            once_and_dead,
            first: first_value(number),
            written: BTreeSet::new(),
            freed: false,
        }
    }

    pub(crate) fn get(&mut self, node: usize, cookie: Cookie) -> Option<&mut Lent> {
        self.lent.get_mut(&(node, cookie))
    }

    /// A cookie of this owner that it has not freed.
    pub(crate) fn of(&self, owner: u32) -> Vec<Cookie> {
        let mine = self
            .lent
            .iter()
            .filter(|(_, lent)| lent.owner == owner && !lent.freed);
        mine.map(|((_, cookie), _)| *cookie).collect()
    }

    pub(crate) fn will_write(&mut self, node: usize, cookie: Cookie, value: u8) {
        if let Some(lent) = self.get(node, cookie) {
            lent.written.insert(value);
        }
    }

    /// A buffer is back: the key is dead, and the bytes are what somebody wrote there.
    pub(crate) fn back(&mut self, node: usize, cookie: Cookie, mut buffer: Vec<u8>, hca: &MockHca) {
        let lent = self
            .lent
            .remove(&(node, cookie))
            .expect("a buffer that was never lent");
        assert_eq!(buffer.len(), lent.len, "another buffer is back");
        let known = |byte: &u8| *byte == lent.first || lent.written.contains(byte);
        // Atomics add to the first word.
        let strange = buffer.iter().skip(8).find(|byte| !known(byte));
        assert_eq!(strange, None, "bytes that nobody wrote in {cookie:?}");
        assert_dead(hca, cookie);
        buffer.fill(OWNED);
        self.returned += 1;
        self.kept.push(Kept {
            buffer,
            value: OWNED,
        });
    }

    /// The owner has ended: its buffers are dropped when their keys are dead.
    pub(crate) fn forget(&mut self, owner: u32) {
        self.lent.retain(|_, lent| lent.owner != owner);
    }

    pub(crate) fn outstanding(&self) -> usize {
        self.lent.len()
    }

    /// Nobody has touched what is back with its owner. Lets go of most of it: so it is used again
    /// for other things, as in life.
    pub(crate) fn check_kept(&mut self) {
        for kept in &self.kept {
            let touched = kept.buffer.iter().position(|&byte| byte != kept.value);
            assert_eq!(
                touched, None,
                "memory was touched after its owner got it back"
            );
        }
        let surplus = self.kept.len().saturating_sub(8);
        self.kept.drain(..surplus);
    }
}

/// The HCA refuses the key.
pub(crate) fn assert_dead(hca: &MockHca, cookie: Cookie) {
    let first = u64::from(cookie.offset());
    let read = hca.connect().read(cookie.key(), first, &mut [0]);
    assert!(
        read.is_err(),
        "{cookie:?} is honoured after its death was announced"
    );
}

fn first_value(number: u32) -> u8 {
    0x10 | (number % 16) as u8
}
