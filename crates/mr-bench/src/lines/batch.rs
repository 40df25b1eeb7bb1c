//! Leases that come several in a call, against one by one.

use std::cell::RefCell;
use std::sync::Arc;

use anyhow::Result;

use crate::churn::{Churn, batching_pool};
use crate::lines::Setting;
use crate::report::Line;
use crate::rounds::interleave;

/// Regions of a flush.
const BATCH: usize = 256;

/// Leases of a call.
const DEPTH: usize = 32;

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Line>> {
    let pool = Arc::new(batching_pool(BATCH)?);
    let churn = RefCell::new(Churn::new(&pool, BATCH));
    let [one, many, chained] = interleave(
        setting.rounds(101),
        [
            &mut || churn.borrow_mut().round(),
            &mut || churn.borrow_mut().round_of_many(DEPTH),
            &mut || churn.borrow_mut().round_of_many_chained(DEPTH),
        ],
    )?;
    Ok(vec![
        Line::ratio(
            format!("each of {DEPTH} leases of lease_batch"),
            &many,
            "lease",
            &one,
        ),
        Line::ratio(
            format!("each of {DEPTH} leases of lease_batch_chained"),
            &chained,
            "lease",
            &one,
        ),
    ])
}
