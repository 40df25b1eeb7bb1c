//! The tests that define a correct [`MrBackend`](crate::MrBackend), for any backend to run.
//!
//! Implement [`Harness`] for what it takes to try the backend out (a peer that presents keys), and
//! call [`conformance!`](crate::conformance!) with a function that makes one:
//!
//! ```text
//! fn harness() -> Result<MyHarness, String> { ... }
//! mr_core::conformance!(harness);
//! ```
//!
//! A backend that implements [`ChainedMap`](crate::ChainedMap) has some more to hold:
//! [`conformance_chained!`](crate::conformance_chained!).
//!
//! That makes one test per check. A check that the backend's capabilities rule out says so, and is
//! counted apart; when all are through, a line on standard error says how many ran. A harness that
//! cannot be made on this machine returns why as an error: the tests then say so and check nothing,
//! unless they must not be skipped: see [`Harness::REQUIRED_BY`].
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "all of this is test code: a check that fails is meant to stop the test"
)]

mod aba;
mod batch;
mod chained;
mod harness;
mod keys;
mod maps;
mod pool;
mod remote;
mod run;
mod teardown;
mod trial;

pub use chained::ChainedHarness;
pub use harness::{Harness, PeerError, Place};
pub use run::{Tally, run};
pub use trial::Verdict;

#[doc(hidden)]
pub mod checks {
    //! All checks, by name.

    pub use super::aba::*;
    pub use super::batch::*;
    pub use super::chained::*;
    pub use super::keys::*;
    pub use super::maps::*;
    pub use super::pool::*;
    pub use super::remote::*;
    pub use super::teardown::*;
}

/// Makes the tests of the conformance suite for the backend of the harness that `$make`, a
/// function without arguments, returns.
#[macro_export]
macro_rules! conformance {
    ($make:path) => {
        $crate::conformance_tests! { $make;
            the_capabilities_make_sense,
            a_peer_reads_and_writes_through_a_key,
            a_key_allows_what_was_asked_for_and_no_more,
            a_key_reaches_no_further_than_its_mapping,
            a_key_that_nobody_gave_out_is_refused,
            the_tag_is_the_callers_choice,
            a_mapping_may_start_and_end_anywhere,
            after_an_invalidation_writes_are_refused,
            after_an_invalidation_reads_are_refused,
            a_write_under_way_stops_at_the_invalidation,
            an_invalidation_leaves_other_regions_alone,
            a_remap_kills_the_previous_key_if_it_says_so,
            consecutive_keys_differ,
            a_key_held_over_many_uses_is_refused,
            a_key_that_comes_back_after_256_uses_reaches_the_new_memory,
            a_batch_kills_every_key_of_it,
            the_longest_batch_is_taken,
            a_region_without_a_key_may_be_in_a_batch,
            an_invalidation_can_be_repeated,
            a_half_failed_batch_says_which_half,
            a_batch_of_maps_gives_each_its_key,
            an_empty_batch_of_maps_is_nothing,
            a_batch_of_maps_that_fails_half_way_says_which,
            a_peer_can_end_a_mapping,
            a_peer_that_invalidates_a_wrong_key_ends_no_mapping,
            a_peer_that_invalidates_a_key_again_ends_no_other_mapping,
            a_mapped_region_is_not_freed,
            regions_are_freed_in_any_order,
            a_freed_regions_last_key_is_refused,
            an_ended_lease_gives_memory_that_no_peer_touches,
            before_the_flush_a_late_write_lands_in_memory_of_the_pool,
            many_leases_over_few_regions_add_up,
            a_batch_of_leases_gives_memory_back_for_each,
            threads_that_lease_and_end_leases_add_up,
            a_pool_ends_before_its_leases,
            a_lease_that_the_peer_ended_gives_its_memory,
        }
    };
}

/// Makes the tests for a backend that sends requests behind its maps, of the
/// [`ChainedHarness`](crate::conformance::ChainedHarness) that `$make` returns; in a module of their own.
#[macro_export]
macro_rules! conformance_chained {
    ($make:path) => {
        $crate::conformance_tests! { $make;
            a_key_that_the_peer_hears_of_works,
            requests_behind_a_batch_of_maps_arrive_in_order,
            requests_behind_a_batch_that_fails_half_way_are_those_of_its_maps,
            a_batch_of_leases_is_announced_as_far_as_it_goes,
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    ($make:path; $($name:ident),+ $(,)?) => {
        static TALLY: $crate::conformance::Tally =
            $crate::conformance::Tally::new([$(stringify!($name)),+].len());
        $(
            #[test]
            fn $name() {
                $crate::conformance::run(
                    &TALLY,
                    module_path!(),
                    stringify!($name),
                    $make,
                    $crate::conformance::checks::$name,
                );
            }
        )+
    };
}
