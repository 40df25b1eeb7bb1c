//! Leases in batches, and with their request behind the map.

use super::ops::Refused;
use super::state::{Backend, World};
use crate::support::Buffer;
use mr_core::{Access, BackendError, Keys, LeaseRefusal, OwnedLease, RemoteKey, Shortage};
use std::sync::Arc;
use std::time::Duration;

type Leased = Result<OwnedLease<Backend, Buffer>, Refused>;

impl World {
    pub(super) fn lease_chained(&mut self, len: usize, access: Access) {
        let (name, buffer) = self.new_buffer(len);
        self.peer.recover();
        let pool = Arc::clone(&self.pool);
        let timeout = Duration::ZERO;
        let leased = pool.lease_chained_owned(buffer, access, timeout, |keys| request(0, keys));
        self.check_requests(std::slice::from_ref(&leased));
        self.note_leased(name, len, leased);
    }

    pub(super) fn lease_batch(&mut self, wanted: &[(usize, Access)], waits: bool, chained: bool) {
        let mut names = Vec::new();
        let mut buffers = Vec::new();
        for &(len, access) in wanted {
            let (name, buffer) = self.new_buffer(len);
            names.push(name);
            buffers.push((buffer, access));
        }
        let shortage = if waits {
            Shortage::Wait(Duration::ZERO)
        } else {
            Shortage::TakeFewer
        };
        self.peer.recover();
        let pool = Arc::clone(&self.pool);
        let leased = if chained {
            let leased = pool.lease_batch_chained_owned(buffers, shortage, request);
            self.check_requests(&leased);
            leased
        } else {
            pool.lease_batch_owned(buffers, shortage)
        };
        assert_eq!(leased.len(), wanted.len(), "an answer for each buffer");
        self.check_order(&leased);
        for ((name, &(len, _)), leased) in names.into_iter().zip(wanted).zip(leased) {
            self.note_leased(name, len, leased);
        }
    }

    fn new_buffer(&mut self, len: usize) -> (u64, Buffer) {
        self.names += 1;
        (self.names, Buffer::new(self.names, len, &self.morgue))
    }

    fn note_leased(&mut self, name: u64, len: usize, leased: Leased) {
        match leased {
            Ok(lease) => {
                self.note_lease(name, &lease);
                self.leases.push((name, lease));
            }
            Err(refused) if matches!(refused.reason, LeaseRefusal::NotTried) => {
                let buffer = refused.buffer.unwrap();
                assert_eq!(buffer.name, name);
                self.own(buffer);
            }
            Err(refused) => self.note_refusal(name, len, refused),
        }
    }

    /// What was leased comes first, then one refusal, then what was not tried.
    fn check_order(&self, leased: &[Leased]) {
        let given = leased.iter().take_while(|leased| leased.is_ok()).count();
        assert!(given <= self.capacity as usize);
        let Some(first) = leased.get(given) else {
            return;
        };
        let first = &first.as_ref().unwrap_err().reason;
        assert!(
            !matches!(first, LeaseRefusal::NotTried),
            "refused for nothing"
        );
        for behind in &leased[given + 1..] {
            let reason = &behind.as_ref().unwrap_err().reason;
            assert!(matches!(reason, LeaseRefusal::NotTried), "{reason}");
        }
    }

    /// The peer has heard of every lease, in order, and of nothing else but one whose map failed
    /// after it was done.
    fn check_requests(&self, leased: &[Leased]) {
        let mut heard = std::iter::from_fn(|| self.peer.receive());
        for (place, leased) in leased.iter().enumerate() {
            match leased {
                Ok(lease) => assert_eq!(heard.next(), Some(request(place, lease.keys()))),
                Err(refused) => {
                    if let Some(message) = heard.next() {
                        assert_eq!(message[0] as usize, place);
                        let LeaseRefusal::Backend(failure) = &refused.reason else {
                            panic!("sent, and yet {refused}");
                        };
                        assert!(!failure.kind().leaves_region_known(), "{failure}");
                    }
                    assert_eq!(heard.next(), None);
                }
            }
        }
        assert_eq!(heard.next(), None);
    }
}

fn request(place: usize, keys: Keys) -> Vec<u8> {
    let key: RemoteKey = keys.remote;
    let mut message = vec![place as u8];
    message.extend(key.bits().to_be_bytes());
    message
}
