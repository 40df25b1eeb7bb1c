//! Each mechanism does what any backend must, on a real provider.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of a test function"
)]

mod common;

mod registration {
    use crate::common::Verbs;
    use mr_verbs::RegistrationBackend;

    fn harness() -> Result<Verbs<RegistrationBackend>, String> {
        Verbs::new(false, |rig| RegistrationBackend::new(&rig.domain))
    }

    mr_core::conformance!(harness);
}

mod registration_zero_based {
    use crate::common::Verbs;
    use mr_verbs::RegistrationBackend;

    fn harness() -> Result<Verbs<RegistrationBackend>, String> {
        Verbs::new(false, |rig| RegistrationBackend::zero_based(&rig.domain))
    }

    mr_core::conformance!(harness);
}

mod window_1 {
    use crate::common::Verbs;
    use mr_verbs::Window1Backend;

    fn harness() -> Result<Verbs<Window1Backend>, String> {
        Verbs::new(true, |rig| {
            Window1Backend::new(&rig.domain, [rig.arena.clone()]).unwrap()
        })
    }

    mr_core::conformance!(harness);
}

mod window_2 {
    use crate::common::Verbs;
    use mr_verbs::Window2Backend;

    fn harness() -> Result<Verbs<Window2Backend>, String> {
        Verbs::new(true, |rig| {
            Window2Backend::new(&rig.ours, [rig.arena.clone()]).unwrap()
        })
    }

    mr_core::conformance!(harness);
}
