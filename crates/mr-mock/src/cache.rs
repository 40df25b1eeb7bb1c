//! A set-associative cache with a hashed index and least-recently-used replacement.

/// No key and no line has this tag (an rkey's index never has its top bit set).
const EMPTY: u64 = u64::MAX;

/// A cache of `sets × ways` entries.
///
/// The same structure serves as MPT cache and as MTT cache. Look-ups and fills take time
/// proportional to the ways, allocate nothing and depend on nothing but the calls before.
#[derive(Debug)]
pub(crate) struct Cache<P> {
    tags: Box<[u64]>,
    /// When each entry was last used; 0 for an empty one.
    used: Box<[u64]>,
    payloads: Box<[Option<P>]>,
    ways: usize,
    set_mask: u64,
    uses: u64,
}

impl<P: Copy> Cache<P> {
    /// A cache of `entries` entries in sets of `ways`; `entries / ways` is a power of two. With no
    /// entries it stands for an HCA that has no such cache.
    pub(crate) fn new(entries: usize, ways: usize) -> Self {
        debug_assert!(entries == 0 || (ways > 0 && (entries / ways).is_power_of_two()));
        Self {
            tags: vec![EMPTY; entries].into(),
            used: vec![0; entries].into(),
            payloads: vec![None; entries].into(),
            ways,
            set_mask: (entries / ways.max(1)).saturating_sub(1) as u64,
            uses: 0,
        }
    }

    /// Whether there is a cache at all.
    pub(crate) fn exists(&self) -> bool {
        !self.tags.is_empty()
    }

    /// How many entries there can be.
    pub(crate) fn capacity(&self) -> usize {
        self.tags.len()
    }

    /// The entry with this tag, which thereby becomes the last to be replaced.
    pub(crate) fn get(&mut self, tag: u64) -> Option<P> {
        let place = self.find(tag)?;
        self.uses += 1;
        self.used[place] = self.uses;
        self.payloads[place]
    }

    /// Puts an entry in, in place of one with the same tag, an empty one, or the one of its set
    /// that was not used for longest.
    pub(crate) fn insert(&mut self, tag: u64, payload: P) {
        if !self.exists() {
            return;
        }
        let first = self.first_of_set(tag);
        let place = self.find(tag).unwrap_or_else(|| {
            (first..first + self.ways)
                .min_by_key(|&place| self.used[place])
                .unwrap_or(first)
        });
        self.uses += 1;
        self.tags[place] = tag;
        self.used[place] = self.uses;
        self.payloads[place] = Some(payload);
    }

    /// Evicts the entry with this tag.
    pub(crate) fn remove(&mut self, tag: u64) {
        if let Some(place) = self.find(tag) {
            self.empty(place);
        }
    }

    /// Evicts every entry whose tag does not pass. Looks at the whole cache.
    pub(crate) fn retain(&mut self, keep: impl Fn(u64) -> bool) {
        for place in 0..self.tags.len() {
            if self.tags[place] != EMPTY && !keep(self.tags[place]) {
                self.empty(place);
            }
        }
    }

    /// Evicts everything. What the entries held is reached through their tags only, so clearing
    /// those is enough.
    pub(crate) fn clear(&mut self) {
        self.tags.fill(EMPTY);
        self.used.fill(0);
    }

    fn find(&self, tag: u64) -> Option<usize> {
        if !self.exists() {
            return None;
        }
        let first = self.first_of_set(tag);
        self.tags[first..first + self.ways]
            .iter()
            .position(|&there| there == tag)
            .map(|way| first + way)
    }

    fn first_of_set(&self, tag: u64) -> usize {
        // Fibonacci hashing: neighbouring keys and lines must not crowd into neighbouring sets.
        let hash = tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        (hash & self.set_mask) as usize * self.ways
    }

    fn empty(&mut self, place: usize) {
        self.tags[place] = EMPTY;
        self.used[place] = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// The same cache, written for clearness: a list per set, oldest first.
    #[derive(Default)]
    struct Naive {
        sets: BTreeMap<usize, Vec<(u64, u32)>>,
    }

    impl Naive {
        fn get(&mut self, set: usize, tag: u64) -> Option<u32> {
            let list = self.sets.entry(set).or_default();
            let place = list.iter().position(|&(there, _)| there == tag)?;
            let entry = list.remove(place);
            list.push(entry);
            Some(entry.1)
        }

        fn insert(&mut self, set: usize, tag: u64, payload: u32, ways: usize) {
            let list = self.sets.entry(set).or_default();
            list.retain(|&(there, _)| there != tag);
            if list.len() == ways {
                list.remove(0);
            }
            list.push((tag, payload));
        }

        fn retain(&mut self, keep: impl Fn(u64) -> bool) {
            for list in self.sets.values_mut() {
                list.retain(|&(tag, _)| keep(tag));
            }
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Get(u64),
        Insert(u64, u32),
        Remove(u64),
        RetainEven,
        Clear,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            10 => (0..40u64).prop_map(Step::Get),
            10 => (0..40u64, any::<u32>()).prop_map(|(tag, payload)| Step::Insert(tag, payload)),
            2 => (0..40u64).prop_map(Step::Remove),
            1 => Just(Step::RetainEven),
            1 => Just(Step::Clear),
        ]
    }

    proptest! {
        #[test]
        fn behaves_as_a_list_per_set(
            set_bits in 0..4u32,
            ways in 1..5usize,
            steps in prop::collection::vec(step(), 1..300),
        ) {
            let mut cache = Cache::new(ways << set_bits, ways);
            let mut naive = Naive::default();
            for step in steps {
                match step {
                    Step::Get(tag) => {
                        prop_assert_eq!(cache.get(tag), naive.get(cache.first_of_set(tag), tag));
                    }
                    Step::Insert(tag, payload) => {
                        cache.insert(tag, payload);
                        naive.insert(cache.first_of_set(tag), tag, payload, ways);
                    }
                    Step::Remove(gone) => {
                        cache.remove(gone);
                        naive.retain(|tag| tag != gone);
                    }
                    Step::RetainEven => {
                        cache.retain(|tag| tag % 2 == 0);
                        naive.retain(|tag| tag % 2 == 0);
                    }
                    Step::Clear => {
                        cache.clear();
                        naive.retain(|_| false);
                    }
                }
            }
        }
    }

    #[test]
    fn neighbouring_tags_spread_over_all_sets() {
        let cache = Cache::<()>::new(512, 4);
        let mut load = [0u32; 512];
        for index in 1..=5000u64 {
            load[cache.first_of_set(index << 8)] += 1;
        }
        let per_set: Vec<u32> = load.into_iter().step_by(4).collect();
        assert!(
            per_set.iter().all(|&n| (20..60).contains(&n)),
            "{per_set:?}"
        );
    }

    #[test]
    fn no_cache_holds_nothing() {
        let mut cache = Cache::new(0, 1);
        cache.insert(1, ());
        assert_eq!(cache.get(1), None);
        cache.remove(1);
        cache.clear();
        assert!(!cache.exists());
    }
}
