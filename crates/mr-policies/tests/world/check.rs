//! What must hold after every step, and at the end.

use super::state::{Given, OWNED, Way, World};
use mr_core::Clock;
use mr_mock::FaultPlan;
use std::time::Duration;

impl World {
    pub(crate) fn check(&mut self) {
        self.check_counts();
        self.check_memory();
    }

    /// I1, and every gauge against a recount.
    fn check_counts(&mut self) {
        let stats = self.pool.stats();
        let alive = self.book.all();
        let counts = stats.regions;
        assert_eq!(counts.total(), self.capacity, "{counts:?}");
        assert_eq!(counts.leased as usize, self.leases.len(), "{counts:?}");
        let leased_bytes: u64 = self.leases.iter().map(|(_, lease)| lease.len()).sum();
        assert_eq!(stats.leased.keys, self.leases.len() as u64);
        assert_eq!(stats.leased.bytes, leased_bytes);

        let mut busy: Vec<_> = alive.iter().map(|(place, _)| *place).collect();
        busy.dedup();
        assert_eq!(
            counts.clean,
            self.capacity - busy.len() as u32,
            "{counts:?} {alive:?}"
        );

        let live = self
            .leases
            .iter()
            .map(|(name, _)| *name)
            .collect::<Vec<_>>();
        let live = self.given.iter().filter(|given| live.contains(&given.name));
        let live: Vec<_> = live.map(|given| given.serial).collect();
        let stale = alive
            .iter()
            .filter(|(_, entry)| !live.contains(&entry.serial));
        let (keys, bytes) = stale.fold((0, 0), |sum, (_, entry)| (sum.0 + 1, sum.1 + entry.bytes));
        // A fence has killed earlier keys of regions that it was not about: the pool learns that
        // when it next has the region in its hands.
        let forgotten = self.given.iter().filter(|given| {
            let gone = matches!(given.way, Way::Over | Way::Leased);
            !gone && busy.contains(&given.place) && !self.book.is_alive(given.place, given.serial)
        });
        let (more, more_bytes) =
            forgotten.fold((0, 0), |sum, given| (sum.0 + 1, sum.1 + given.bytes));
        let said = stats.stale;
        assert!(
            (keys..=keys + more).contains(&said.keys),
            "{said:?} {keys}+{more} {counts:?}"
        );
        assert!(
            (bytes..=bytes + more_bytes).contains(&said.bytes),
            "{said:?} {bytes}"
        );

        assert_eq!(stats.leases, self.counts.leases);
        assert_eq!(stats.refused, self.counts.refused);
        assert_eq!(stats.depleted, self.counts.depleted);
        assert_eq!(stats.unclaimed_dropped, 0);
        self.check_oldest(stats.exposure.oldest);
        self.check_unclaimed(stats.unclaimed);
    }

    /// Never less than the truth, and nothing if nothing is stale.
    fn check_oldest(&self, said: Option<Duration>) {
        let released = self.stale().filter_map(|given| given.released);
        if let Some(oldest) = released.min() {
            let truth = self.clock.now().since(oldest);
            assert!(
                said.is_some_and(|said| said >= truth),
                "{said:?} < {truth:?}"
            );
        }
    }

    /// What is dead is on offer, unless its region has been mapped again: then it comes when all
    /// keys of the region are dead, or when the pool next has the region in its hands.
    fn check_unclaimed(&self, unclaimed: u32) {
        let (mut least, mut most) = (0, self.limbo.len() as u32);
        let collected = self
            .given
            .iter()
            .filter(|given| given.way == Way::ToCollect);
        for given in collected.filter(|given| !self.book.is_alive(given.place, given.serial)) {
            most += 1;
            least += u32::from(self.book.region(given.place).is_empty());
        }
        assert!(
            (least..=most).contains(&unclaimed),
            "{unclaimed} not in {least}..={most}"
        );
    }

    /// I4: what is with its owner never changes again.
    fn check_memory(&self) {
        for buffer in &self.owned {
            let intact = buffer.bytes.iter().all(|byte| *byte == OWNED);
            assert!(
                intact,
                "memory of buffer {} changed after it came back",
                buffer.name
            );
        }
    }

    /// I7: no key is stale for longer than the bound plus the longest flush, and the pool's own
    /// record says so, too.
    pub(super) fn check_exposure(&self) {
        if self.faulted {
            return;
        }
        let most = self.pool.exposure_bound() + self.slowest_flush;
        for given in self.stale() {
            let age = given
                .released
                .map(|released| self.clock.now().since(released));
            assert!(
                age <= Some(most),
                "{} is stale for {age:?} > {most:?}",
                given.key
            );
        }
        let longest = self.pool.stats().exposure.longest;
        assert!(longest <= most, "{longest:?} > {most:?}");
    }

    fn stale(&self) -> impl Iterator<Item = &Given> {
        let released = self.given.iter().filter(|given| given.released.is_some());
        released.filter(|given| self.book.is_alive(given.place, given.serial))
    }

    pub(super) fn limbo_holds(&self) -> bool {
        self.book.all().iter().any(|(_, entry)| entry.key.is_none())
    }

    /// Whether the buffer may still be with the pool: see `check_unclaimed`.
    pub(super) fn may_be_kept(&self, name: u64) -> bool {
        let given = self.given.iter().find(|given| given.name == name);
        given.is_some_and(|given| !self.book.region(given.place).is_empty())
    }

    /// Ends everything: nothing is stale for ever, and nothing is left behind unseen.
    pub(crate) fn finish(mut self) {
        self.faults.set_plan(FaultPlan::none());
        for (place, (name, lease)) in std::mem::take(&mut self.leases).into_iter().enumerate() {
            let now = self.clock.now();
            let given = self.given(name);
            given.released = Some(now);
            given.way = if place % 2 == 0 {
                Way::ToDrop
            } else {
                Way::ToCollect
            };
            if place % 2 == 0 {
                drop(lease);
            } else {
                lease.release();
            }
        }
        self.check();
        if self.ends_without_device {
            return self.finish_without_device();
        }
        // Long enough for all retries of what went wrong.
        self.pass(Duration::from_secs(30));
        self.check();
        let stats = self.pool.stats();
        assert_eq!(
            (stats.regions.clean, stats.stale.keys),
            (self.capacity, 0),
            "{stats:?}"
        );
        assert_eq!(self.pool.flush(), Ok(()));
        let report = self.pool.shutdown(Duration::from_secs(5));
        assert!(report.is_complete(), "{report:?}");
        assert_eq!(report.freed, self.capacity);
        assert_eq!(self.hca.regions(), 0);
        self.pendings.clear();
        self.reclaim(usize::MAX);
        let missing = self
            .given
            .iter()
            .filter(|given| given.way == Way::ToCollect);
        assert_eq!(
            missing.count() + self.limbo.len(),
            0,
            "a buffer never came back"
        );
    }

    /// The report names what is left, all of it, and no buffer comes back with its key alive.
    fn finish_without_device(mut self) {
        self.faults.remove_device();
        self.faulted = true;
        self.pass(Duration::from_secs(2));
        let report = self.pool.shutdown(Duration::from_millis(50));
        assert!(!report.is_complete(), "{report:?}");
        assert_eq!(report.freed, 0);
        assert_eq!(
            report.quarantined + report.not_freed,
            self.capacity,
            "{report:?}"
        );
        assert_eq!(self.pool.stats().regions.total(), self.capacity);
        self.reclaim(usize::MAX);
        self.check_memory();
    }
}
