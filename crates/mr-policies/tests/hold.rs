//! The contract of every policy and every combination with the pool: asked only at its marks it
//! loses nothing, it does not spin, it flushes nothing for nothing, and it keeps its bound.
//!
//! What is asserted is in `stale/mod.rs`, after each event.

mod stale;
mod texts;

use mr_core::{Access, InvalidationPolicy, ReleasedRegion};
use mr_policies::{Adaptive, Policy};
use proptest::prelude::*;
use stale::{Flusher, Release};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_policy_keeps_the_contract(policy in texts::policies(), events in stale::events()) {
        let mut flusher = Flusher::new(&policy);
        for event in &events {
            flusher.apply(event);
        }
        // However it went, a policy with a bound leaves nothing behind when traffic stops.
        flusher.wait(HOUR);
        if policy.exposure_bound().is_some_and(|bound| bound <= HOUR) {
            prop_assert_eq!(flusher.view().keys, 0);
        }
    }

    #[test]
    fn a_policy_that_is_not_asked_at_release_would_say_nothing(
        policy in texts::policies(),
        maps in 1_u32..300,
        bytes: u64,
    ) {
        let said = policy.at_release(&ReleasedRegion::new(maps, bytes, Access::all()));
        prop_assert!(policy.speaks_at_release() || said.is_none());
    }

    #[test]
    fn adaptive_is_precise_and_asks_seldom(
        quota in stale::waits().prop_map(|wait| wait * 8),
        releases in prop::collection::vec((stale::waits(), 1_u32..50), 1..60),
    ) {
        let policy = Adaptive::new(quota)?;
        let quota = quota.as_nanos();
        let mut flusher = Flusher::new(&policy);
        let mut most_keys = 1;
        for (wait, burst) in releases {
            for _ in 0..burst {
                flusher.release(Release::FIRST);
            }
            most_keys = most_keys.max(flusher.view().keys);
            flusher.wait(wait);
            let most = logarithm(1.25, most_keys as f64) + logarithm(5.0, quota as f64) + 8.0;
            prop_assert!(f64::from(flusher.questions) <= most, "{} > {most}", flusher.questions);
        }
        for (view, _) in &flusher.flushes {
            let overshoot = view.key_nanos.checked_sub(quota);
            prop_assert!(
                overshoot.is_some_and(|over| over < u128::from(view.keys + view.keys / 4)),
                "{overshoot:?} with {} keys", view.keys
            );
        }
    }
}

fn logarithm(base: f64, of: f64) -> f64 {
    of.max(1.0).ln() / base.ln()
}

/// `threshold` flushes worn regions only, again and again; the others must still die in time.
#[test]
fn flushes_of_worn_regions_do_not_put_off_the_period() {
    let policy: Policy = "use-n=32,threshold=2,periodic=1us".parse().unwrap();
    let mut flusher = Flusher::new(&policy);
    for _ in 0..1000 {
        flusher.release(Release::FIRST);
        flusher.release(Release {
            maps: 32,
            ..Release::FIRST
        });
        flusher.wait(Duration::from_nanos(100));
    }
    assert!(flusher.flushes.len() > 500, "one for each two worn regions");
}

/// The on/off load of the cost study: a second at 1000/s, a minute of nothing.
#[test]
fn what_a_load_that_stops_leaves_behind() {
    for (text, left) in [
        ("threshold=30", 10),
        ("threshold=30,periodic=1s", 0),
        ("threshold=30,max-exposure=1s", 0),
        ("threshold=30,adaptive=5key-s", 0),
        ("use-once", 1000),
        ("immediate", 0),
    ] {
        let policy: Policy = text.parse().unwrap();
        let mut flusher = Flusher::new(&policy);
        for _ in 0..1000 {
            flusher.release(Release::FIRST);
            flusher.wait(Duration::from_millis(1));
        }
        flusher.wait(Duration::from_secs(60));
        assert_eq!(flusher.view().keys, left, "{text}");
    }
}
