//! A network in process, over mock HCAs: seeded, with faults, in virtual or real time.
//!
//! A link behaves as a reliable connected queue pair: what it delivers is in order, and a fault
//! ends it rather than losing something in the middle. Exceptions are on purpose: a whole message
//! may come twice, a header may be damaged, and frames without a number (acknowledgements and
//! congestion maps) may get lost, since the protocol promises to survive that. Fragments are never
//! doubled: the wire format has no fragment index, so every fabric of RDS must not do that.

mod deliver;
mod faults;
mod network;

pub use faults::Faults;
pub use network::{MockFabric, MockNetwork};
