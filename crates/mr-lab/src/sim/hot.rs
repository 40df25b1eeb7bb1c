//! Long-lived mappings that share the HCA's caches with those of the I/Os.

use super::spending::Spending;
use crate::LabError;
use mr_core::{Access, Driver, LeaseError, LeaseRefusal, OwnedLease, Pool};
use mr_mock::{Costs, GhostBuffer, GhostMemory, MockHca, Operation, Refusal, RemotePeer};
use mr_policies::UseOnce;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of one packet of a request.
const REQUEST: u64 = 64;
/// Bytes of a long-lived buffer: a page.
const BUFFER: usize = 4096;

/// Leases of a pool of their own, held for a whole run.
pub(super) struct HotKeys {
    leases: Vec<OwnedLease<MockHca, GhostBuffer>>,
    next: usize,
}

impl HotKeys {
    /// Maps `count` buffers on `hca`.
    pub(super) fn new(hca: &MockHca, count: u32) -> Result<Self, LabError> {
        let mut leases = Vec::new();
        if count > 0 {
            let pool = Pool::builder(hca.clone(), UseOnce)
                .capacity(count)
                .seed(0)
                .configure(|config| {
                    config.driver = Driver::Manual;
                    config.shards = 1;
                })
                .build()?;
            let pool = Arc::new(pool);
            let mut memory = GhostMemory::new(BUFFER);
            for _ in 0..count {
                let buffer = memory.buffer().map_err(LabError::AddressSpace)?;
                let access = Access::REMOTE_WRITE | Access::LOCAL_WRITE;
                let lease = pool.lease_owned(buffer, access, Duration::ZERO);
                leases.push(lease.map_err(refused)?);
            }
        }
        Ok(Self { leases, next: 0 })
    }

    /// Moves a packet through the next of the mappings.
    pub(super) fn touch(
        &mut self,
        peer: &RemotePeer,
        spending: &mut Spending,
    ) -> Result<Costs, Refusal> {
        let Some(lease) = self.leases.get(self.next) else {
            return Ok(Costs::default());
        };
        let transfer = peer.touch(Operation::Write, lease.remote_key(), 0, REQUEST)?;
        self.next = (self.next + 1) % self.leases.len();
        spending.add(transfer.costs);
        Ok(transfer.costs)
    }
}

fn refused(error: LeaseError<mr_mock::MockError, GhostBuffer>) -> LabError {
    match error.reason {
        LeaseRefusal::Backend(error) => LabError::Hca(error),
        reason => LabError::Stuck {
            at_s: 0.0,
            what: reason.to_string(),
        },
    }
}
