//! What a lease, its release and its share of a flush cost one thread, against the floor, against
//! what one writes by hand, and against UCX's registration cache.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use crossbeam_queue::ArrayQueue;

use crate::churn::{Churn, ROUND, batching_pool};
use crate::hand_written::HandWritten;
use crate::lines::Setting;
use crate::peer::Peer;
use crate::report::{Line, Wanted};
use crate::rounds::{interleave, nanos_each};

/// The origin example's batch, and one with a sixteenth of its exposure.
const BATCHES: [usize; 2] = [4000, 256];

/// Buffers that UCX's cache finds in turn.
const UCX_BUFFERS: usize = 4000;

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for batch in BATCHES {
        lines.extend(against_others(batch, setting)?);
    }
    if let Some(program) = &setting.ucx {
        lines.extend(against_ucx(program, setting)?);
    }
    Ok(lines)
}

fn what(batch: usize) -> String {
    format!("lease + release + share of a flush of {batch}")
}

fn against_others(batch: usize, setting: &Setting) -> Result<Vec<Line>> {
    let floor = ArrayQueue::new(batch + batch / 4);
    (0..batch).try_for_each(|index| floor.push(index).map_err(|_| anyhow::anyhow!("full")))?;
    let pool = Arc::new(batching_pool(batch)?);
    let mut churn = Churn::new(&pool, batch);
    let mut hand_written = HandWritten::new(batch);
    let [mine, floor, by_hand] = interleave(
        setting.rounds(301),
        [
            &mut || churn.round(),
            &mut || pop_and_push(&floor),
            &mut || hand_written.round(),
        ],
    )?;
    Ok(vec![
        Line::ratio(what(batch), &mine, "ArrayQueue pop + push", &floor)
            .wanted(Wanted::AtMost(3.0)),
        Line::ratio(what(batch), &mine, "pool written by hand", &by_hand),
    ])
}

fn pop_and_push(queue: &ArrayQueue<usize>) -> Result<f64> {
    nanos_each(ROUND, || {
        for _ in 0..ROUND {
            let index = queue.pop().context("the queue is empty")?;
            let pushed = queue.push(black_box(index));
            pushed.map_err(|_| anyhow::anyhow!("the queue is full"))?;
        }
        Ok(())
    })
}

fn against_ucx(program: &Path, setting: &Setting) -> Result<Vec<Line>> {
    let batch = BATCHES[0];
    let pool = Arc::new(batching_pool(batch)?);
    let mut churn = Churn::new(&pool, batch);
    let peer = std::cell::RefCell::new(Peer::start(program)?);
    let ucx = |work: &str, operations| peer.borrow_mut().round(work, operations);
    let [mine, hit, hit_one, miss] = interleave(
        setting.rounds(301),
        [
            &mut || churn.round(),
            &mut || ucx(&format!("hit {UCX_BUFFERS}"), ROUND),
            &mut || ucx("hit 1", ROUND),
            &mut || ucx(&format!("miss {UCX_BUFFERS}"), ROUND / 8),
        ],
    )?;
    Ok(vec![
        Line::ratio(
            what(batch),
            &mine,
            format!("UCX hit + put, {UCX_BUFFERS} buffers"),
            &hit,
        )
        .wanted(Wanted::AtMost(1.0)),
        Line::ratio(
            what(batch),
            &mine,
            "UCX hit + put, always one buffer",
            &hit_one,
        ),
        Line::ratio(what(batch), &mine, "UCX miss + invalidate + put", &miss)
            .wanted(Wanted::AtMost(0.125)),
    ])
}
