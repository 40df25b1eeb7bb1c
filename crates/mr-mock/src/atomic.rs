//! Atomic operations of a peer.

use crate::packet::Run;
use crate::remote::{Operation, Refusal, RefusalReason, RemotePeer, Transfer};
use mr_core::RemoteKey;

/// Bytes that an atomic operation works on.
const WORD: u64 = 8;

impl RemotePeer {
    /// Adds `add` to the 8 bytes at `offset` of the mapping, wrapping, and returns what was there.
    /// The bytes are a number in the byte order of the host.
    ///
    /// # Errors
    ///
    /// [`Refusal`]; then nothing has changed.
    pub fn fetch_add(
        &self,
        key: RemoteKey,
        offset: u64,
        add: u64,
    ) -> Result<(u64, Transfer), Refusal> {
        self.atomic(key, offset, |word| word.wrapping_add(add))
    }

    /// Stores `swap` in the 8 bytes at `offset` of the mapping if `compare` is there, and returns
    /// what was there.
    ///
    /// # Errors
    ///
    /// [`Refusal`]; then nothing has changed.
    pub fn compare_swap(
        &self,
        key: RemoteKey,
        offset: u64,
        compare: u64,
        swap: u64,
    ) -> Result<(u64, Transfer), Refusal> {
        let change = |word| if word == compare { swap } else { word };
        self.atomic(key, offset, change)
    }

    /// Atomic towards all that goes through the HCA: its lock is held from the read to the write.
    fn atomic(
        &self,
        key: RemoteKey,
        offset: u64,
        change: impl Fn(u64) -> u64,
    ) -> Result<(u64, Transfer), Refusal> {
        let mut request = self.request(Operation::Write, key, offset, WORD);
        request.atomic = true;
        let mut before = None;
        let transfer = self.transfer(&request, |run, _| {
            before = exchange(run, &change);
            before.is_some()
        });
        match (transfer, before) {
            (Ok(transfer), Some(word)) => Ok((word, transfer)),
            (Ok(transfer), None) => Err(self.refuse(key, RefusalReason::Misaligned, transfer)),
            // What passed the checks of the tables and was not done is not aligned.
            (Err(refusal), None) if refusal.transfer.bytes > 0 => {
                Err(self.refuse(key, RefusalReason::Misaligned, Transfer::default()))
            }
            (Err(refusal), _) => Err(refusal),
        }
    }
}

fn exchange(run: &Run, change: impl Fn(u64) -> u64) -> Option<u64> {
    let mut word = [0; WORD as usize];
    let aligned = run.len == WORD && run.span.is_aligned(run.offset, WORD);
    if !aligned || !run.span.read(run.offset, &mut word) {
        return None;
    }
    let before = u64::from_ne_bytes(word);
    let after = change(before).to_ne_bytes();
    run.span.write(run.offset, &after).then_some(before)
}
