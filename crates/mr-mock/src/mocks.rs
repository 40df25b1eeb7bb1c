//! `mockall` mocks of the traits of `mr-core`, for unit tests that script single calls.
//!
//! For anything that is about bytes, keys or time, [`MockHca`](crate::MockHca) is the better
//! double: it keeps the contract by itself.

use mockall::mock;
use mr_core::{
    Access, AtRelease, BackendError, BatchError, Capabilities, DeallocError, ErrorKind,
    FlushDecision, InvalidationPolicy, KeyTag, Keys, MemoryRange, MrBackend, PolicyError,
    PoolLimits, ReleasedRegion, StaleView,
};
use std::fmt;
use std::time::Duration;

/// The error of a [`MockBackend`]: nothing but a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("scripted error: {0}")]
pub struct ScriptedError(pub ErrorKind);

impl BackendError for ScriptedError {
    fn kind(&self) -> ErrorKind {
        self.0
    }
}

mock! {
    /// A backend whose every call is scripted; a region is whatever number `alloc` returns.
    #[derive(Debug)]
    pub Backend {}

    // SAFETY: it hands memory to nothing; a script that does must keep the promise itself.
    unsafe impl MrBackend for Backend {
        type Region = u64;
        type Error = ScriptedError;

        fn capabilities(&self) -> Capabilities;
        fn alloc(&self) -> Result<u64, ScriptedError>;
        fn map<'a>(
            &self,
            region: &mut u64,
            memory: MemoryRange<'a>,
            access: Access,
            tag: KeyTag,
        ) -> Result<Keys, ScriptedError>;
        fn soft_invalidate(&self, region: &mut u64);
        fn invalidate<'a, 'b>(
            &self,
            batch: &'a mut [&'b mut u64],
        ) -> Result<(), BatchError<ScriptedError>>;
        fn invalidated_by_peer(&self, region: &mut u64) -> bool;
        fn dealloc(&self, region: u64) -> Result<(), DeallocError<u64, ScriptedError>>;
    }
}

mock! {
    /// A policy whose every answer is scripted.
    #[derive(Debug)]
    pub Policy {}

    impl fmt::Display for Policy {
        fn fmt<'a>(&self, f: &mut fmt::Formatter<'a>) -> fmt::Result;
    }

    impl InvalidationPolicy for Policy {
        fn at_release(&self, region: &ReleasedRegion) -> Option<AtRelease>;
        fn flush(&self, stale: &StaleView) -> FlushDecision;
        fn exposure_bound(&self) -> Option<Duration>;
        fn check(&self, pool: &PoolLimits) -> Result<(), PolicyError>;
    }
}
