//! A buffer with a name, which tells when it is dropped.

use mr_core::DmaBuffer;
use std::sync::{Arc, Mutex, PoisonError};

/// The names of the buffers that were dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Morgue(Arc<Mutex<Vec<u64>>>);

impl Morgue {
    /// The names since the last call.
    pub(crate) fn take(&self) -> Vec<u64> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Memory with a name.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) name: u64,
    pub(crate) bytes: Vec<u8>,
    morgue: Morgue,
}

impl Buffer {
    pub(crate) fn new(name: u64, len: usize, morgue: &Morgue) -> Self {
        Self {
            name,
            bytes: vec![0; len],
            morgue: morgue.clone(),
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut names = self.morgue.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.push(self.name);
    }
}

// SAFETY: the vector keeps the contract, and nothing here touches its bytes while the pool has it.
unsafe impl DmaBuffer for Buffer {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr()
    }

    fn len(&self) -> usize {
        self.bytes.len()
    }
}
