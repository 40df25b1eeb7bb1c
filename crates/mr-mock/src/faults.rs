//! Faults in front of any backend.

mod plan;

pub use plan::{Call, Fault, FaultPlan, When};

use mr_core::{
    Access, BackendError, BatchError, Capabilities, ChainedMap, DeallocError, ErrorKind, KeyTag,
    Keys, MapJob, MemoryRange, MrBackend,
};
use plan::Progress;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A backend that does what the one inside does, except where a [`FaultPlan`] says otherwise.
///
/// ```
/// use mr_core::{ErrorKind, MrBackend};
/// use mr_mock::{Call, Fault, FaultBackend, FaultPlan, MockHca, Preset, When};
///
/// let plan = FaultPlan::none().on(Call::Alloc, When::Nth(2), Fault::Fail(ErrorKind::NoMemory));
/// let backend = FaultBackend::new(MockHca::new(&Preset::named("connectx-5")?), plan);
/// assert!(backend.alloc().is_ok());
/// assert!(backend.alloc().is_err());
/// assert!(backend.alloc().is_ok());
/// # Ok::<_, mr_mock::PresetError>(())
/// ```
#[derive(Debug)]
pub struct FaultBackend<B> {
    inner: B,
    shared: Arc<Shared>,
}

/// Steers a [`FaultBackend`] from outside, also after a pool has taken it.
#[derive(Clone, Debug)]
pub struct FaultControl {
    shared: Arc<Shared>,
}

/// An error of a [`FaultBackend`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FaultError<E> {
    /// Made by the plan.
    #[error("injected fault in {call:?} number {number}: {kind}")]
    Injected {
        /// The call.
        call: Call,
        /// Which of its kind, from 1.
        number: u64,
        /// The kind of error.
        kind: ErrorKind,
    },
    /// The backend's own.
    #[error(transparent)]
    Backend(E),
    /// The backend's own for a region of a batch.
    #[error("{message}")]
    BackendInBatch {
        /// The kind of error.
        kind: ErrorKind,
        /// The error and its sources.
        message: String,
    },
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    plan: FaultPlan,
    progress: Progress,
    injected: u64,
    hanging: usize,
    /// Counts releases: a call that hangs waits for the next one.
    releases: u64,
    removed: bool,
}

impl<B: MrBackend> FaultBackend<B> {
    /// Puts a plan before a backend.
    pub fn new(inner: B, plan: FaultPlan) -> Self {
        let state = State {
            progress: Progress::new(&plan),
            plan,
            injected: 0,
            hanging: 0,
            releases: 0,
            removed: false,
        };
        Self {
            inner,
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                changed: Condvar::new(),
            }),
        }
    }

    /// The backend inside.
    pub const fn inner(&self) -> &B {
        &self.inner
    }

    /// A handle to steer the faults with.
    pub fn control(&self) -> FaultControl {
        FaultControl {
            shared: Arc::clone(&self.shared),
        }
    }

    fn half_done_alloc(&self, error: FaultError<B::Error>) -> FaultError<B::Error> {
        match self.inner.alloc().map(|region| self.inner.dealloc(region)) {
            Ok(Ok(())) => error,
            Ok(Err(failed)) => FaultError::Backend(failed.error),
            Err(failed) => FaultError::Backend(failed),
        }
    }

    fn map_by(
        &self,
        map: impl FnOnce(&B) -> Result<Keys, B::Error>,
    ) -> Result<Keys, FaultError<B::Error>> {
        let late = self.shared.before(Call::Map)?;
        mapped(late, map(&self.inner))
    }

    /// Has the inner backend map a batch in as few calls of `map` as the plan allows: jobs without a fault
    /// together, one with a fault alone. `map` gets the place of the first of its jobs.
    fn map_runs(
        &self,
        batch: &mut [MapJob<'_, B::Region, FaultError<B::Error>>],
        mut map: impl FnMut(usize, &mut [MapJob<'_, B::Region, B::Error>]),
    ) {
        let mut first = 0;
        while first < batch.len() {
            let rest = &mut batch[first..];
            let (run, late) = match self.shared.pass(Call::Map, rest.len()) {
                0 => match self.shared.before(Call::Map) {
                    Ok(late) => (1, late),
                    Err(error) => return rest[0].answer(Err(error)),
                },
                run => (run, None),
            };
            let jobs = &mut rest[..run];
            let inner = jobs.iter_mut().map(|job| {
                let (region, memory, access, tag) = job.arguments();
                MapJob::new(region, memory, access, tag)
            });
            let mut inner: Vec<_> = inner.collect();
            map(first, &mut inner);
            let answers: Vec<_> = inner.into_iter().map(MapJob::into_answer).collect();
            let mut all_mapped = true;
            for (job, answer) in jobs.iter_mut().zip(answers) {
                let answer = answer.map(|answer| mapped(late, answer));
                all_mapped &= matches!(answer, Some(Ok(_)));
                if let Some(answer) = answer {
                    job.answer(answer);
                }
            }
            if !all_mapped {
                return;
            }
            first += run;
        }
    }

    /// Invalidates the first `done` regions of the batch; reports those dead, unless the answer
    /// is lost, and all others failed.
    fn partly_invalidate(
        &self,
        batch: &mut [&mut B::Region],
        done: usize,
        answer_lost: bool,
        injected: impl Fn() -> FaultError<B::Error>,
    ) -> BatchError<FaultError<B::Error>> {
        let (first, rest) = batch.split_at_mut(done);
        // An empty batch asks for the fence alone, which cannot be half done.
        let outcome = if first.is_empty() && !answer_lost {
            Ok(())
        } else {
            self.inner.invalidate(first)
        };
        if answer_lost || rest.is_empty() {
            return BatchError::all(injected());
        }
        let mut results = each(outcome, first.len());
        results.extend(rest.iter().map(|_| Err(injected())));
        BatchError::each(results)
    }
}

// SAFETY: a fault turns a success into a failure or leaves the call out, and never a failure into a
// success: what is said to be dead is what the inner backend has said to be dead.
unsafe impl<B: MrBackend> MrBackend for FaultBackend<B> {
    type Region = B::Region;
    type Error = FaultError<B::Error>;

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn alloc(&self) -> Result<B::Region, Self::Error> {
        match self.shared.before(Call::Alloc)? {
            None => self.inner.alloc().map_err(FaultError::Backend),
            Some(late) => Err(self.half_done_alloc(late.error())),
        }
    }

    fn map(
        &self,
        region: &mut B::Region,
        memory: MemoryRange<'_>,
        access: Access,
        tag: KeyTag,
    ) -> Result<Keys, Self::Error> {
        self.map_by(|inner| inner.map(region, memory, access, tag))
    }

    /// Each job counts as a map, also one that comes behind a failure of the backend inside and is not tried.
    fn map_batch(&self, batch: &mut [MapJob<'_, B::Region, Self::Error>]) {
        self.map_runs(batch, |_, jobs| self.inner.map_batch(jobs));
    }

    fn soft_invalidate(&self, region: &mut B::Region) {
        if !self.shared.lock().removed {
            self.inner.soft_invalidate(region);
        }
    }

    fn invalidate(&self, batch: &mut [&mut B::Region]) -> Result<(), BatchError<Self::Error>> {
        match self
            .shared
            .before(Call::Invalidate)
            .map_err(BatchError::all)?
        {
            None => {
                let regions = batch.len();
                match self.inner.invalidate(batch) {
                    Ok(()) => Ok(()),
                    Err(failed) if regions == 0 => Err(BatchError::all(in_batch(&failed, 0))),
                    failed => Err(BatchError::each(each(failed, regions))),
                }
            }
            Some(late) => {
                let done = if late.all_done {
                    batch.len()
                } else {
                    batch.len() / 2
                };
                Err(self.partly_invalidate(batch, done, late.all_done, || late.error()))
            }
        }
    }

    fn invalidated_by_peer(&self, region: &mut B::Region) -> bool {
        !self.shared.lock().removed && self.inner.invalidated_by_peer(region)
    }

    fn dealloc(&self, region: B::Region) -> Result<(), DeallocError<B::Region, Self::Error>> {
        match self.shared.before(Call::Dealloc) {
            Ok(None) => self.inner.dealloc(region).map_err(|failed| DeallocError {
                region: failed.region,
                error: FaultError::Backend(failed.error),
            }),
            Ok(Some(late)) => Err(DeallocError {
                region,
                error: late.error(),
            }),
            Err(error) => Err(DeallocError { region, error }),
        }
    }
}

// SAFETY: as above: a map that succeeds here has succeeded inside.
unsafe impl<B: ChainedMap> ChainedMap for FaultBackend<B> {
    type Request = B::Request;

    /// Counts as a map; one that fails late has sent its request.
    fn map_chained(
        &self,
        region: &mut B::Region,
        memory: MemoryRange<'_>,
        access: Access,
        tag: KeyTag,
        request: &mut dyn FnMut(Keys) -> B::Request,
    ) -> Result<Keys, Self::Error> {
        self.map_by(|inner| inner.map_chained(region, memory, access, tag, request))
    }

    /// Counts as [`map_batch`](MrBackend::map_batch) does.
    fn map_batch_chained(
        &self,
        batch: &mut [MapJob<'_, B::Region, Self::Error>],
        request: &mut dyn FnMut(usize, Keys) -> B::Request,
    ) {
        self.map_runs(batch, |first, jobs| {
            let mut request = |place, keys| request(first + place, keys);
            self.inner.map_batch_chained(jobs, &mut request);
        });
    }
}

impl FaultControl {
    /// Replaces the plan; calls are counted from 1 again.
    pub fn set_plan(&self, plan: FaultPlan) {
        let mut state = self.shared.lock();
        state.progress = Progress::new(&plan);
        state.plan = plan;
    }

    /// Lets every call that hangs at this moment go on.
    pub fn release(&self) {
        self.shared.lock().releases += 1;
        self.shared.changed.notify_all();
    }

    /// Takes the device away: calls that hang return, and all calls fail from now on, with
    /// [`ErrorKind::NoDevice`]. The backend inside is not told.
    pub fn remove_device(&self) {
        self.shared.lock().removed = true;
        self.shared.changed.notify_all();
    }

    /// Calls of this kind since the plan was set.
    pub fn calls(&self, call: Call) -> u64 {
        self.shared.lock().progress.count(call)
    }

    /// Faults injected so far.
    pub fn injected(&self) -> u64 {
        self.shared.lock().injected
    }

    /// Calls that hang at this moment.
    pub fn hanging(&self) -> usize {
        self.shared.lock().hanging
    }
}

impl<E: BackendError> BackendError for FaultError<E> {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Injected { kind, .. } | Self::BackendInBatch { kind, .. } => *kind,
            Self::Backend(error) => error.kind(),
        }
    }
}

/// A fault that strikes after the call has been (partly) done.
#[derive(Clone, Copy)]
struct Late {
    call: Call,
    number: u64,
    kind: ErrorKind,
    all_done: bool,
}

impl Late {
    fn error<E>(self) -> FaultError<E> {
        FaultError::Injected {
            call: self.call,
            number: self.number,
            kind: self.kind,
        }
    }

    fn with_region_unknown(mut self) -> Self {
        if self.kind.leaves_region_known() {
            self.kind = ErrorKind::Io;
        }
        self
    }
}

impl Shared {
    /// Counts a call and does what its fault does before the call itself: fails, waits, panics.
    /// Returns what is to happen after it.
    fn before<E>(&self, call: Call) -> Result<Option<Late>, FaultError<E>> {
        let mut state = self.lock();
        let State { plan, progress, .. } = &mut *state;
        let (number, fault) = progress.next(plan, call);
        let error = |kind| FaultError::Injected { call, number, kind };
        if state.removed {
            return Err(error(ErrorKind::NoDevice));
        }
        let Some(fault) = fault else {
            return Ok(None);
        };
        state.injected += 1;
        let late = |kind, all_done| Late {
            call,
            number,
            kind,
            all_done,
        };
        match fault {
            Fault::Fail(kind) => Err(error(kind)),
            Fault::HalfDone(kind) => Ok(Some(late(kind, false))),
            Fault::LostAnswer(kind) => Ok(Some(late(kind, true))),
            Fault::Hang => self.hang(state).map_err(error).map(|()| None),
            Fault::Delay(time) => {
                let sleeper = Arc::clone(&state.plan.sleeper);
                drop(state);
                sleeper(time);
                Ok(None)
            }
            Fault::Panic => {
                drop(state);
                #[expect(clippy::panic, reason = "the fault that was asked for")]
                {
                    panic!("injected panic in {call:?} number {number}");
                }
            }
        }
    }

    /// Counts the calls that come next and have no fault, `most` at most, and says how many they are.
    fn pass(&self, call: Call, most: usize) -> usize {
        let mut state = self.lock();
        if state.removed {
            return 0;
        }
        let State { plan, progress, .. } = &mut *state;
        (0..most).take_while(|_| progress.pass(plan, call)).count()
    }

    fn hang(&self, mut state: MutexGuard<'_, State>) -> Result<(), ErrorKind> {
        let started = Instant::now();
        let releases = state.releases;
        state.hanging += 1;
        let result = loop {
            if state.removed {
                break Err(ErrorKind::NoDevice);
            }
            if state.releases != releases {
                break Ok(());
            }
            let left = state.plan.hang_bound.saturating_sub(started.elapsed());
            if left.is_zero() {
                break Err(ErrorKind::TimedOut);
            }
            state = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        };
        state.hanging -= 1;
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is said of a map, given the fault that strikes after it.
fn mapped<E>(late: Option<Late>, outcome: Result<Keys, E>) -> Result<Keys, FaultError<E>> {
    let keys = outcome.map_err(FaultError::Backend)?;
    match late {
        None => Ok(keys),
        Some(late) => Err(late.with_region_unknown().error()),
    }
}

/// The outcome of a batch of `regions`, one result per region.
fn each<E: BackendError>(
    outcome: Result<(), BatchError<E>>,
    regions: usize,
) -> Vec<Result<(), FaultError<E>>> {
    let Err(failed) = outcome else {
        return std::iter::repeat_with(|| Ok(())).take(regions).collect();
    };
    (0..regions)
        .map(|place| {
            if failed.is_dead(place) {
                return Ok(());
            }
            Err(in_batch(&failed, place))
        })
        .collect()
}

/// The error of the region at `place`.
fn in_batch<E: BackendError>(failed: &BatchError<E>, place: usize) -> FaultError<E> {
    let error = failed.error(place);
    FaultError::BackendInBatch {
        kind: error.map_or(ErrorKind::Io, BackendError::kind),
        message: error.map_or_else(|| failed.to_string(), |error| Chain(error).to_string()),
    }
}

/// An error with its sources in one line.
struct Chain<'a>(&'a dyn std::error::Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}
