//! `fork` and registered memory.

use crate::Error;
use crate::sys;

/// Makes `fork` safe for this process: pages that are registered stay with the parent, and a child
/// that touches them is killed rather than given copies that the HCA does not know.
///
/// Without it, after a `fork` the parent's next write to a registered page gets the parent a copy,
/// and the HCA goes on with the old page: data is lost in silence. Needed only by programs that
/// call `fork` without `exec`, and on kernels before 5.12 by those that `exec`, too (a [`Command`]
/// of the standard library does both). It makes each registration slower (one `madvise`), so it is
/// not done unasked.
///
/// Registered memory must then be in whole pages that hold nothing else, as an [`Arena`] is: the
/// child loses whatever else lies in them.
///
/// [`Arena`]: crate::Arena
/// [`Command`]: std::process::Command
///
/// # Errors
///
/// It must be called before anything is registered; later, libibverbs refuses.
pub fn make_fork_safe() -> Result<(), Error> {
    sys::fork_init().map_err(|errno| Error::System {
        what: "ibv_fork_init (it must be called before anything is registered)",
        errno,
    })
}
