//! A progress bar on a terminal, and nothing in a pipe.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Counts runs on standard error; draws nothing if that is no terminal.
pub(super) struct Progress(ProgressBar);

impl Progress {
    pub(super) fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {eta} left") {
            bar.set_style(style);
        }
        Self(bar)
    }

    pub(super) fn expect(&self, runs: usize) {
        self.0.set_length(runs as u64);
    }

    pub(super) fn one_done(&self) {
        self.0.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
