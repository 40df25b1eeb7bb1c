//! Whole-system simulation: hosts, sockets, memory and faults from one seed, in virtual time.
//!
//! `cargo test -p rds-lite --test sim` runs ten thousand seeds in some seconds, from 0 on (`RDS_SEEDS` sets another
//! number, `RDS_SEED_BASE` another first one, which `cargo xtask soak` does). A seed that fails is named, and `RDS_SEED=<n> cargo test -p rds-lite --test sim` runs it alone and
//! prints everything that happened.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests, outside of a test function"
)]
#![allow(clippy::print_stdout, reason = "the log of a failed run")]

mod actor;
mod checker;
mod log;
mod memory;
mod run;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const SEEDS: u64 = 10_000;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} must be a number")),
    )
}

/// The first seed.
fn base() -> u64 {
    number("RDS_SEED_BASE").unwrap_or(0)
}

#[test]
fn every_message_arrives_once_in_order_and_no_byte_is_touched_too_late() {
    if let Some(seed) = number("RDS_SEED") {
        let log = log::Log::recording();
        let outcome = catch_unwind(AssertUnwindSafe(|| run::run(seed, &log)));
        log.print();
        match outcome {
            Ok(summary) => println!("seed {seed} passes: {summary:?}"),
            Err(failure) => std::panic::resume_unwind(failure),
        }
        return;
    }
    let (base, seeds) = (base(), number("RDS_SEEDS").unwrap_or(SEEDS));
    let next = AtomicU64::new(0);
    let failed = AtomicBool::new(false);
    let total = std::sync::Mutex::new(run::Summary::default());
    let worker = || {
        let mut mine = run::Summary::default();
        while !failed.load(Ordering::Relaxed) {
            let place = next.fetch_add(1, Ordering::Relaxed);
            if place >= seeds {
                break;
            }
            let seed = base.wrapping_add(place);
            let one = catch_unwind(AssertUnwindSafe(|| run::run(seed, &log::Log::silent())));
            match one {
                Ok(summary) => mine += summary,
                Err(_) => {
                    failed.store(true, Ordering::Relaxed);
                    println!("seed {seed} fails; replay it with");
                    println!("RDS_SEED={seed} cargo test -p rds-lite --test sim");
                }
            }
        }
        *total.lock().unwrap() += mine;
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(worker);
        }
    });
    assert!(!failed.load(Ordering::Relaxed), "a seed has failed");
    let total = total.into_inner().unwrap();
    println!("{seeds} seeds from {base}: {total:?}");
    // A simulation in which nothing happens proves nothing.
    if seeds >= 500 {
        total.assert_covers();
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in (0..5).map(|place| base().wrapping_add(place)) {
        let logs = [(); 2].map(|()| {
            let log = log::Log::recording();
            run::run(seed, &log);
            log.lines()
        });
        assert_eq!(logs[0], logs[1], "seed {seed}");
    }
}
