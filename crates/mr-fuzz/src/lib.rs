//! Mutation fuzzing of the readers of this workspace, as ordinary tests; for tests only.
//!
//! A target is a function that takes any bytes and panics if a promise is broken. It has a corpus: files,
//! one input each, that are kept beside the test. [`Fuzz::run`] hands it every file as it is, and
//! then mutations of them. An input that breaks the target is cut down and printed, with the seed; once
//! the fault is mended it becomes a file of the corpus and a test with a name.
//!
//! Whoever links this crate has all that the process allocates counted, since a reader must not let
//! its input decide how much memory it takes.
//!
//! | variable | means | default |
//! | --- | --- | --- |
//! | `FUZZ_MUTATIONS` | mutations per target, divided by its cost | 10000 |
//! | `FUZZ_SEED` | seed of the mutations | 1, so that a tree which has passed passes again; `cargo xtask soak` takes fresh ones |

#![allow(
    clippy::panic,
    clippy::print_stderr,
    reason = "a test says what it has to say by a panic, and the test runner shows the rest"
)]

mod mutate;
mod shrink;

use mutate::Mutator;
use peak_alloc::PeakAlloc;
use std::env::VarError;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// What is counted is the whole process, so targets take turns.
static TURN: Mutex<()> = Mutex::new(());

/// Mutations per target where nothing else is said.
const MUTATIONS: u64 = 10_000;
/// The seed where no other is given.
const SEED: u64 = 1;
/// What the test harness, whose threads are counted too, may allocate beside a target.
const HARNESS_BYTES: usize = 16 << 10;
/// Bytes of an input that a message shows.
const SHOWN: usize = 2000;

/// How a target is fuzzed.
#[derive(Clone, Copy, Debug)]
pub struct Fuzz<'a> {
    /// What messages call the target.
    pub name: &'a str,
    /// Directories whose files are the corpus. Directories in them are passed over.
    pub corpus: &'a [&'a str],
    /// Words of the format, to be strewn in.
    pub words: &'a [&'a str],
    /// Mutations are cut to this length, in bytes.
    pub longest: usize,
    /// How many mutations one of this target counts for; 1, or more if it is slow.
    pub cost: u64,
    /// The most bytes that the target may have allocated at a time, for an input of this length.
    pub most_bytes: fn(usize) -> usize,
}

impl Fuzz<'_> {
    /// Replays the corpus, then tries mutations of it. Inputs run one after another in the calling
    /// thread, and targets of one process in turns.
    ///
    /// # Panics
    ///
    /// The target panics or takes too much memory; the message names the input, the seed and a file
    /// with the input. Or there is no corpus, or a variable is no number.
    pub fn run(&self, target: impl Fn(&[u8])) {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let corpus = self.load();
        let seed = number("FUZZ_SEED").unwrap_or(SEED);
        let mutations = number("FUZZ_MUTATIONS")
            .unwrap_or(MUTATIONS)
            .div_ceil(self.cost);
        let mut most = 0;
        for (path, input) in &corpus {
            match self.attempt(&target, input) {
                Ok(peak) => most = most.max(peak),
                Err(fault) => panic!("{}: {}: {fault}", self.name, path.display()),
            }
        }
        let inputs: Vec<_> = corpus.into_iter().map(|(_, input)| input).collect();
        let mut mutator = Mutator::new(seed, &inputs, self.words, self.longest);
        for number in 0..mutations {
            let input = mutator.next();
            match self.attempt(&target, &input) {
                Ok(peak) => most = most.max(peak),
                Err(_) => self.report(&target, input, seed, number),
            }
        }
        eprintln!(
            "{}: {} inputs, {mutations} mutations, seed {seed}; at most {most} bytes allocated",
            self.name,
            inputs.len(),
        );
    }

    /// The files of the corpus in the order of their names.
    fn load(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut files = Vec::new();
        for directory in self.corpus {
            let entries = fs::read_dir(directory)
                .unwrap_or_else(|error| panic!("{}: {directory}: {error}", self.name));
            let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
            let mut paths: Vec<_> = paths.filter(|path| path.is_file()).collect();
            paths.sort();
            files.extend(paths.into_iter().map(|path| {
                let input = fs::read(&path);
                let input = input.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                (path, input)
            }));
        }
        assert!(!files.is_empty(), "{}: the corpus is empty", self.name);
        files
    }

    /// Gives the input to the target: the most bytes that it had allocated, or what is wrong.
    fn attempt(&self, target: &impl Fn(&[u8]), input: &[u8]) -> Result<usize, String> {
        let before = ALLOCATOR.current_usage();
        ALLOCATOR.reset_peak_usage();
        let outcome = catch_unwind(AssertUnwindSafe(|| target(input)));
        let peak = ALLOCATOR.peak_usage().saturating_sub(before);
        let allowed = (self.most_bytes)(input.len());
        match outcome {
            Err(panic) => Err(text_of(&*panic)),
            Ok(()) if peak > allowed + HARNESS_BYTES => Err(format!(
                "{peak} bytes allocated for an input of {}, and {allowed} are allowed",
                input.len()
            )),
            Ok(()) => Ok(peak),
        }
    }

    /// Cuts the input down, keeps it in a file, and fails.
    fn report(&self, target: &impl Fn(&[u8]), input: Vec<u8>, seed: u64, number: u64) -> ! {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let short = shrink::shrink(input, |input| self.attempt(target, input).is_err());
        let fault = self.attempt(target, &short).err().unwrap_or_default();
        std::panic::set_hook(hook);
        let kept = keep(&format!("fuzz-{}-{seed}-{number}", self.name), &short);
        let shown = &short[..short.len().min(SHOWN)];
        panic!(
            "{}: {fault}\nFUZZ_SEED={seed}, mutation {number}, cut down to {} bytes, {kept}:\n{}",
            self.name,
            short.len(),
            shown.escape_ascii(),
        );
    }
}

/// Writes an input to a file among the temporary ones; says where.
fn keep(name: &str, input: &[u8]) -> String {
    let path: &Path = &std::env::temp_dir().join(name);
    match fs::write(path, input) {
        Ok(()) => format!("kept in {}", path.display()),
        Err(error) => format!("not kept in {}: {error}", path.display()),
    }
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "it panicked".to_owned())
}

/// The number in an environment variable, if it is set.
fn number(variable: &str) -> Option<u64> {
    match std::env::var(variable) {
        Ok(text) => match u64::from_str(&text) {
            Ok(number) => Some(number),
            Err(_) => panic!("{variable} is to be a whole number, not {text:?}"),
        },
        Err(VarError::NotPresent) => None,
        Err(VarError::NotUnicode(_)) => panic!("{variable} is to be a whole number"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FUZZ: Fuzz<'_> = Fuzz {
        name: "tests",
        corpus: &[concat!(env!("CARGO_MANIFEST_DIR"), "/src")],
        words: &["needle"],
        longest: 4096,
        cost: 1,
        most_bytes: |len| 4096 + len,
    };

    fn fault_of(fuzz: Fuzz<'_>, target: impl Fn(&[u8])) -> Option<String> {
        let ran = catch_unwind(AssertUnwindSafe(|| fuzz.run(target)));
        ran.err().map(|panic| text_of(&*panic))
    }

    #[test]
    fn a_target_that_keeps_its_promises_passes() {
        assert_eq!(fault_of(FUZZ, |input| assert!(input.len() < 1 << 20)), None);
    }

    #[test]
    fn a_panic_is_found_cut_down_and_shown_with_its_seed() {
        let longest = 64;
        let fuzz = Fuzz { longest, ..FUZZ };
        let target = |input: &[u8]| {
            let found = input.len() <= longest && input.windows(6).any(|part| part == b"needle");
            assert!(!found, "there it is");
        };
        let fault = fault_of(fuzz, target).unwrap();
        assert!(fault.contains("there it is"), "{fault}");
        assert!(fault.contains("FUZZ_SEED="), "{fault}");
        assert!(fault.contains("cut down to 6 bytes"), "{fault}");
        assert!(fault.ends_with("needle"), "{fault}");
    }

    #[test]
    fn a_target_that_takes_too_much_memory_fails() {
        let target = |input: &[u8]| {
            drop(std::hint::black_box(vec![
                1_u8;
                4097 + HARNESS_BYTES + input.len()
            ]))
        };
        let fault = fault_of(FUZZ, target).unwrap();
        assert!(fault.contains("are allowed"), "{fault}");
    }

    #[test]
    fn a_corpus_that_is_not_there_is_no_success() {
        let fuzz = Fuzz {
            corpus: &["/nowhere"],
            ..FUZZ
        };
        assert!(fault_of(fuzz, |_| {}).is_some());
    }
}
