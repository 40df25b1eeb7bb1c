//! What an RDMA device makes of the policies: the production pool over `mr-verbs`, with RDMA writes
//! by a peer in the same process through each key.
//!
//! Two things are measured, both in rounds that take turns (and every second one backwards), so that
//! what disturbs the machine disturbs all alike; what is reported are medians:
//!
//! - *memory management alone*: maps and invalidations in batches, without the pool and with it,
//!   and registration and deregistration for each I/O: [`Alone`];
//! - *the load*: a lease, an RDMA write through its key, a release, for each policy: [`Measured`].
//!
//! On a software device the CPU is the HCA, so CPU time holds what a real HCA would do; and part of
//! it may be charged to whoever runs when a packet comes.

mod answer;
mod figures;
#[cfg(feature = "verbs")]
mod live;
mod plan;

pub use answer::{Alone, Measured, Measurement, Ratios, Sample, Series, Step};
pub use figures::{Figure, figures};
pub use plan::{Mechanism, Plan};

use crate::LabError;

/// Measures.
///
/// # Errors
///
/// The plan cannot be (exit code 2), this program was built without the feature `verbs` (2), there
/// is no device, or it fails (1).
pub fn measure(plan: &Plan) -> Result<Measurement, LabError> {
    plan.check()?;
    #[cfg(feature = "verbs")]
    return live::measure(plan);
    #[cfg(not(feature = "verbs"))]
    Err(LabError::Usage(
        "measure needs a build with libibverbs: cargo build --release -p mr-lab --features verbs; \
         without an RDMA device: cargo xtask hw -- mr-lab measure --backend mw2 --chained"
            .into(),
    ))
}
