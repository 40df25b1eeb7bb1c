//! Whether this machine has the kernel's RDS at the moment.

use crate::kernel::Transport;
use crate::stack;
use anyhow::Result;

/// The modules of the kernel's RDS over verbs. Its listener has the port that rds-lite needs, so only one of the
/// two can be there.
#[derive(Debug, Default)]
pub(super) struct Modules {
    loaded: bool,
}

impl Modules {
    /// Loads or removes them if need be. No socket may be open.
    ///
    /// # Errors
    ///
    /// There are none, or this is not root.
    pub(super) fn set(&mut self, loaded: bool) -> Result<()> {
        match (self.loaded, loaded) {
            (false, true) => stack::load(Transport::Verbs)?,
            (true, false) => stack::unload(Transport::Verbs)?,
            _ => {}
        }
        self.loaded = loaded;
        Ok(())
    }
}
