//! Who takes part, and with which loads.

use super::{Implementation, Load, Method, Way};
use Implementation::{Kernel, RdsLite};
use std::fmt;

/// Depth 8 of everything, and one message at a time for the round trip.
const ONE_BY_ONE: Load = Load {
    depth: 1,
    message: 1 << 10,
    rdma: 0,
};
const MESSAGES: Load = Load {
    depth: 8,
    ..ONE_BY_ONE
};
const SMALL: Load = Load {
    depth: 8,
    message: 256,
    rdma: 64 << 10,
};
const LARGE: Load = Load {
    rdma: 1 << 20,
    ..SMALL
};

/// Regions of rds-lite's pools. Where keys outlive their loans, so many buffers are away.
const REGIONS: u32 = 96;

/// One way of doing it.
#[derive(Clone, Debug)]
pub struct Contender {
    /// Who asks, and lends memory.
    pub asker: Method,
    /// Who answers.
    pub answerer: Implementation,
    /// What it does.
    pub loads: Vec<Load>,
    /// The kernel's way that gives the same guarantee, or the next weaker one; by its label.
    pub beside: Option<&'static str>,
    /// What it is called beside others of its kind.
    pub label: &'static str,
}

impl Contender {
    /// How the answerer takes its seat. It lends nothing.
    #[must_use]
    pub fn answering(&self) -> Method {
        Method {
            implementation: self.answerer,
            way: Way::Killed,
            policy: None,
            regions: 1,
        }
    }

    /// Who must have the kernel's modules: the asker, the answerer.
    #[must_use]
    pub fn kernels(&self) -> [bool; 2] {
        [self.asker.implementation, self.answerer].map(|side| side == Kernel)
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asker = self.asker.implementation;
        write!(f, "{asker} -> {}, {}", self.answerer, self.label)
    }
}

/// All of them, in an order in which modules are loaded or removed on one side at a time.
#[must_use]
pub fn all() -> Vec<Contender> {
    let rdma = [SMALL, LARGE];
    let kernel = |label, way, beside, answerer| Contender {
        asker: Method {
            implementation: Kernel,
            way,
            policy: None,
            regions: 0,
        },
        answerer,
        loads: rdma.to_vec(),
        beside,
        label,
    };
    let lite = |label, way, policy: &str, beside, answerer| Contender {
        asker: Method {
            implementation: RdsLite,
            way,
            policy: Some(policy.to_owned()),
            regions: REGIONS,
        },
        answerer,
        loads: rdma.to_vec(),
        beside: Some(beside),
        label,
    };
    let mut all = vec![
        kernel("lazy", Way::Once, None, Kernel),
        kernel("killed at use", Way::KilledAtUse, None, Kernel),
        kernel("killed", Way::Killed, None, Kernel),
        kernel("use-32", Way::Times(32), None, Kernel),
        kernel("lazy", Way::Once, Some("lazy"), RdsLite),
        lite("killed", Way::Killed, "immediate", "killed", RdsLite),
        lite(
            "killed at use",
            Way::KilledAtUse,
            "immediate",
            "killed at use",
            RdsLite,
        ),
        lite("use-once", Way::Once, "use-once", "lazy", RdsLite),
        lite("threshold=48", Way::Once, "threshold=48", "lazy", RdsLite),
        lite(
            "max-exposure=100ms",
            Way::Once,
            "max-exposure=100ms",
            "lazy",
            RdsLite,
        ),
        lite("use-32", Way::Times(32), "immediate", "use-32", RdsLite),
        lite("killed", Way::Killed, "immediate", "killed", Kernel),
    ];
    // Where no memory is lent the way makes no difference: the first of each pair will do.
    let mut pairs = Vec::new();
    for contender in &mut all {
        let pair = contender.kernels();
        if !pairs.contains(&pair) {
            pairs.push(pair);
            contender.loads.splice(0..0, [ONE_BY_ONE, MESSAGES]);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use mr_policies::Policy;

    #[test]
    fn modules_change_on_one_side_at_a_time() {
        let all = all();
        for two in all.windows(2) {
            let [before, after] = [two[0].kernels(), two[1].kernels()];
            assert!(before[0] == after[0] || before[1] == after[1]);
        }
        assert_eq!(all[0].kernels(), [true; 2]);
    }

    #[test]
    fn what_is_compared_exists_and_has_the_same_loads() {
        let all = all();
        let kernels: Vec<_> = all
            .iter()
            .filter(|one| one.kernels() == [true; 2])
            .collect();
        for one in &all {
            assert!(one.loads.iter().all(|load| load.is_sane()));
            let Some(beside) = one.beside else { continue };
            let same = kernels
                .iter()
                .find(|kernel| kernel.label == beside)
                .unwrap();
            assert!(same.loads.contains(&LARGE) && one.loads.contains(&LARGE));
        }
        let with_messages = all.iter().filter(|one| one.loads.contains(&MESSAGES));
        assert_eq!(with_messages.count(), 4);
    }

    #[test]
    fn policies_are_policies() {
        for policy in all().iter().filter_map(|one| one.asker.policy.as_ref()) {
            assert!(policy.parse::<Policy>().is_ok(), "{policy}");
        }
    }
}
