//! The hazard that all of this is about, and what keeps it away: one stale key, once with memory
//! that its owner manages himself, once with memory that the pool owns.

use mr_core::{Access, Driver, ManualClock, Pool, RawMemory};
use mr_mock::{MockHca, Preset};
use mr_policies::Threshold;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

const LEN: usize = 256;
const NEXT_USER: u8 = 0x22;
const LATE_PEER: u8 = 0xee;

/// A device whose keys stay alive after release, and a policy that lets them.
fn setup() -> Result<(MockHca, mr_core::PoolBuilder<MockHca>), Box<dyn std::error::Error>> {
    let preset = Preset::named("connectx-2008")?.with(&[("soft_invalidate", "false")])?;
    let hca = MockHca::new(&preset);
    let builder = Pool::builder(hca.clone(), Threshold::regions(8)?)
        .capacity(8)
        .clock(ManualClock::new())
        .configure(|config| config.driver = Driver::Manual);
    Ok((hca, builder))
}

#[test]
fn through_raw_memory_a_stale_key_writes_over_the_next_user()
-> Result<(), Box<dyn std::error::Error>> {
    // Every access to it is atomic, so that what happens is a fault of the owner and no data race.
    static MEMORY: [AtomicU8; LEN] = [const { AtomicU8::new(0) }; LEN];
    let (hca, builder) = setup()?;
    let pool: Pool<_, RawMemory> = builder.build()?;
    let start = NonNull::from(&MEMORY).cast();
    // SAFETY: the memory is static, and touched by nothing but atomics here and in the mock.
    let memory = unsafe { RawMemory::new(start, LEN) };
    let lease = pool.lease(memory, Access::REMOTE_WRITE)?;
    let key = lease.remote_key();
    lease.release();

    // The owner did not wait to have it back: it is in use again.
    MEMORY
        .iter()
        .for_each(|byte| byte.store(NEXT_USER, Ordering::Relaxed));
    let peer = hca.connect();
    assert!(
        peer.write(key, 0, &[LATE_PEER; LEN]).is_ok(),
        "the stale key is honoured"
    );
    let spoilt = |byte: &AtomicU8| byte.load(Ordering::Relaxed) == LATE_PEER;
    assert!(
        MEMORY.iter().all(spoilt),
        "what the next user had there is gone"
    );

    pool.flush()?;
    assert!(peer.write(key, 0, &[0; LEN]).is_err());
    assert_eq!(
        pool.reclaim(&mut Vec::new(), 8),
        1,
        "now it would have been his"
    );
    Ok(())
}

#[test]
fn what_a_stale_key_writes_never_reaches_memory_that_is_back()
-> Result<(), Box<dyn std::error::Error>> {
    let (hca, builder) = setup()?;
    let pool: Pool<_, Vec<u8>> = builder.build()?;
    let peer = hca.connect();
    let lease = pool.lease(vec![0; LEN], Access::REMOTE_WRITE)?;
    let key = lease.remote_key();
    lease.release();

    // The same late write goes into memory that nobody has.
    let mut back = Vec::new();
    assert!(peer.write(key, 0, &[LATE_PEER; LEN]).is_ok());
    assert_eq!(pool.reclaim(&mut back, 8), 0, "not before the key is dead");

    pool.flush()?;
    assert_eq!(pool.reclaim(&mut back, 8), 1);
    back[0].fill(NEXT_USER);
    assert!(peer.write(key, 0, &[LATE_PEER; LEN]).is_err());
    assert!(back[0].iter().all(|byte| *byte == NEXT_USER));
    Ok(())
}
