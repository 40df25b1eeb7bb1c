//! A million regions against a thousand: the same leases and the same batches in both.

use std::sync::Arc;

use anyhow::Result;
use mr_core::DrawOrder;
use mr_policies::Threshold;

use crate::churn::{Churn, pool};
use crate::lines::Setting;
use crate::report::{Line, Wanted};
use crate::rounds::interleave;

const FEW: usize = 1000;
const MANY: usize = 1_000_000;
const BATCH: usize = 800;

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Line>> {
    let default = line(DrawOrder::Random, "random", setting)?.wanted(Wanted::AtMost(1.2));
    Ok(vec![default, line(DrawOrder::Fifo, "FIFO", setting)?])
}

fn line(order: DrawOrder, name: &str, setting: &Setting) -> Result<Line> {
    let policy = || Threshold::regions(BATCH as u32);
    let many = Arc::new(pool(MANY, order, policy()?)?);
    let few = Arc::new(pool(FEW, order, policy()?)?);
    let mut churn_many = Churn::new(&many, BATCH);
    let mut churn_few = Churn::new(&few, BATCH);
    let [many, few] = interleave(
        setting.rounds(101),
        [&mut || churn_many.round(), &mut || churn_few.round()],
    )?;
    Ok(Line::ratio(
        format!("{MANY} regions, drawn in {name} order"),
        &many,
        format!("{FEW} regions"),
        &few,
    ))
}
