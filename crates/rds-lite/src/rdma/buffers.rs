//! The local memory of an RDMA operation.

use std::ops::Deref;

/// The most buffers of one operation, as many as rds-stress offers with `-I`. Whatever moves them
/// has a descriptor for each, so the number has a bound beside the 1 MiB of their bytes.
pub const MAX_BUFFERS: usize = 512;

/// The local buffers of an RDMA operation, in the order in which their bytes go: most often one.
///
/// Together at most 1 MiB, and at most [`MAX_BUFFERS`]. One buffer is held without an allocation.
#[derive(Clone, Debug)]
pub struct Buffers(Held);

#[derive(Clone, Debug)]
enum Held {
    One(Vec<u8>),
    Several(Vec<Vec<u8>>),
}

impl Buffers {
    /// None: what an atomic operation has.
    pub const fn none() -> Self {
        Self(Held::Several(Vec::new()))
    }

    /// Bytes of all together.
    pub fn bytes(&self) -> usize {
        let lengths = self.iter().map(Vec::len);
        lengths.fold(0, usize::saturating_add)
    }

    /// The first buffer, and so the only one of an operation that was given one; empty if there is
    /// none.
    pub fn into_first(self) -> Vec<u8> {
        match self.0 {
            Held::One(buffer) => buffer,
            Held::Several(buffers) => buffers.into_iter().next().unwrap_or_default(),
        }
    }

    /// All of them.
    pub fn into_vec(self) -> Vec<Vec<u8>> {
        match self.0 {
            Held::One(buffer) => vec![buffer],
            Held::Several(buffers) => buffers,
        }
    }

    /// All of them, to be filled.
    pub fn as_mut_slice(&mut self) -> &mut [Vec<u8>] {
        match &mut self.0 {
            Held::One(buffer) => std::slice::from_mut(buffer),
            Held::Several(buffers) => buffers,
        }
    }
}

impl Deref for Buffers {
    type Target = [Vec<u8>];

    fn deref(&self) -> &[Vec<u8>] {
        match &self.0 {
            Held::One(buffer) => std::slice::from_ref(buffer),
            Held::Several(buffers) => buffers,
        }
    }
}

impl PartialEq for Buffers {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Buffers {}

impl From<Vec<u8>> for Buffers {
    fn from(buffer: Vec<u8>) -> Self {
        Self(Held::One(buffer))
    }
}

impl From<Vec<Vec<u8>>> for Buffers {
    fn from(buffers: Vec<Vec<u8>>) -> Self {
        Self(Held::Several(buffers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_buffer_is_as_a_list_of_one() {
        let (one, list) = (Buffers::from(vec![1; 3]), Buffers::from(vec![vec![1; 3]]));
        assert_eq!(one, list);
        assert_eq!((one.len(), one.bytes(), list.bytes()), (1, 3, 3));
        assert_eq!(one.clone().into_vec(), list.clone().into_vec());
        assert_eq!(one.into_first(), list.into_first());
        let none = Buffers::none();
        assert_eq!((none.len(), none.bytes()), (0, 0));
        assert_eq!(none.into_first(), Vec::<u8>::new());
    }
}
