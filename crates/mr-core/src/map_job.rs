//! One of several maps that a backend is asked for at once.

use crate::{Access, KeyTag, Keys, MemoryRange};
use std::fmt;

/// A map that is wanted together with others, and the place for its answer: see
/// [`MrBackend::map_batch`](crate::MrBackend::map_batch).
///
/// What the answer means for the region stands in the table at
/// [`MrBackend`](crate::MrBackend), in the lines of `map`. A job without an answer was not tried, or all of it
/// was undone: its region is as before the call, and its new key was never honoured.
pub struct MapJob<'a, R, E> {
    region: &'a mut R,
    memory: MemoryRange<'a>,
    access: Access,
    tag: KeyTag,
    answer: Option<Result<Keys, E>>,
}

impl<'a, R, E> MapJob<'a, R, E> {
    /// The arguments of one `map` call, without an answer.
    pub const fn new(
        region: &'a mut R,
        memory: MemoryRange<'a>,
        access: Access,
        tag: KeyTag,
    ) -> Self {
        Self {
            region,
            memory,
            access,
            tag,
            answer: None,
        }
    }

    /// The arguments.
    pub fn arguments(&mut self) -> (&mut R, MemoryRange<'_>, Access, KeyTag) {
        let memory = self.memory.reborrow();
        (self.region, memory, self.access, self.tag)
    }

    /// The region.
    pub const fn region(&mut self) -> &mut R {
        self.region
    }

    /// Gives the answer.
    pub fn answer(&mut self, answer: Result<Keys, E>) {
        self.answer = Some(answer);
    }

    /// Does this job by one call. Says whether it is mapped.
    pub fn run(
        &mut self,
        map: impl FnOnce(&mut R, MemoryRange<'_>, Access, KeyTag) -> Result<Keys, E>,
    ) -> bool {
        let (region, memory, access, tag) = self.arguments();
        let answer = map(region, memory, access, tag);
        let mapped = answer.is_ok();
        self.answer = Some(answer);
        mapped
    }

    /// The answer, if there is one.
    pub fn into_answer(self) -> Option<Result<Keys, E>> {
        self.answer
    }
}

impl<R: fmt::Debug, E: fmt::Debug> fmt::Debug for MapJob<'_, R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapJob")
            .field("region", &self.region)
            .field("memory", &self.memory)
            .field("access", &self.access)
            .field("tag", &self.tag)
            .field("answer", &self.answer)
            .finish()
    }
}
