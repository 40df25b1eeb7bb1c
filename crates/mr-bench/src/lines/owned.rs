//! A lease that keeps its pool alive, against one that borrows it.

use std::cell::RefCell;
use std::sync::Arc;

use anyhow::Result;

use crate::churn::{Churn, batching_pool};
use crate::lines::Setting;
use crate::report::Line;
use crate::rounds::interleave;

const BATCH: usize = 4000;

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Line>> {
    let pool = Arc::new(batching_pool(BATCH)?);
    let churn = RefCell::new(Churn::new(&pool, BATCH));
    let [owned, borrowed] = interleave(
        setting.rounds(101),
        [&mut || churn.borrow_mut().round_owned(), &mut || {
            churn.borrow_mut().round()
        }],
    )?;
    Ok(vec![Line::ratio(
        "owned lease",
        &owned,
        "borrowed lease",
        &borrowed,
    )])
}
