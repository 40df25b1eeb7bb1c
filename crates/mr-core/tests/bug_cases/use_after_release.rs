//! A peer that comes late (nbs, pegaflow): R1's read gets R2's bytes.

use crate::setup::{FMR, MR, NO_TIME, Setup, WINDOW};
use mr_core::Access;

const OURS: u8 = 0x11;

/// The peer holds on to every key and writes through each again and again; what is back with its
/// owner never changes, and what a new lease holds is not reached by an old key.
#[test]
fn a_late_peer_never_reaches_memory_that_is_back() {
    for device in [FMR, MR, WINDOW] {
        for policy in [
            "immediate",
            "use-once",
            "use-n=8",
            "threshold=3",
            "max-exposure=1ms",
        ] {
            if device == MR && policy == "use-n=8" {
                continue;
            }
            let setup = Setup::new(device, policy, 4);
            let (mut keys, mut back): (Vec<_>, Vec<Vec<u8>>) = (Vec::new(), Vec::new());
            for round in 0..200 {
                let leased = setup.pool.lease_owned(vec![0; 64], Access::all(), NO_TIME);
                let lease = leased.unwrap();
                keys.push(lease.remote_key());
                if round % 3 == 0 {
                    let mut buffer = lease.invalidate().unwrap();
                    buffer.fill(OURS);
                    back.push(buffer);
                } else {
                    lease.release();
                }
                setup.pool.step();
                let had = back.len();
                setup.pool.reclaim(&mut back, 100);
                back[had..].iter_mut().for_each(|buffer| buffer.fill(OURS));
                for key in &keys {
                    let _ = setup.hca.connect().write(*key, 0, &[0xee; 64]);
                }
                assert!(back.iter().flatten().all(|byte| *byte == OURS), "{policy}");
            }
        }
    }
}

/// Under `immediate` the late access fails; under a deferred policy it is exposed, and counted.
#[test]
fn a_late_access_fails_or_is_accounted_for() {
    let setup = Setup::new(MR, "immediate", 2);
    let lease = setup.lease();
    let key = lease.remote_key();
    lease.release();
    setup.pool.step();
    assert!(!setup.is_honoured(key));

    let device = [MR, &[("soft_invalidate", "false")]].concat();
    let setup = Setup::new(&device, "use-once", 2);
    let lease = setup.lease();
    let key = lease.remote_key();
    lease.release();
    assert!(setup.is_honoured(key), "exposed");
    assert_eq!(setup.pool.stats().stale.keys, 1, "and never silent");
}
