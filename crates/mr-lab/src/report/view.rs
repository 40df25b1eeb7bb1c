//! A question in numbers and words, as answers repeat it.

use crate::answer::Question;
use crate::scenario::{Load, order_name};
use crate::units::{show_bytes, show_time};
use mr_mock::Preset;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// The scenario of an answer: every number of it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ScenarioView {
    load: LoadView,
    regions: u32,
    concurrency: u32,
    service_time_s: f64,
    seed: u64,
    free_list: &'static str,
    max_age_s: f64,
    /// `null` for none.
    max_stale_bytes: Option<u64>,
    flush_delay_s: f64,
    hot_keys: u32,
    presets: Vec<String>,
    /// Every figure of every preset as it was used, in the notation of a preset file.
    figures: BTreeMap<String, BTreeMap<&'static str, String>>,
    policies: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
enum LoadView {
    Synthetic {
        rate: f64,
        size: String,
        arrival: String,
        duration_s: f64,
    },
    Recorded {
        file: String,
        format: String,
        ios: u64,
        bytes: u64,
        largest: u64,
        span_s: f64,
        speed: f64,
        skipped: u64,
        clamped: u64,
    },
}

impl ScenarioView {
    pub(super) fn of(question: &Question) -> Self {
        let scenario = &question.scenario;
        Self {
            load: LoadView::of(&scenario.load),
            regions: scenario.regions,
            concurrency: scenario.concurrency,
            service_time_s: scenario.service_time.as_secs_f64(),
            seed: scenario.seed,
            free_list: order_name(scenario.order),
            max_age_s: scenario.max_age.as_secs_f64(),
            max_stale_bytes: Some(scenario.max_stale_bytes).filter(|&bytes| bytes < u64::MAX),
            flush_delay_s: scenario.flush_delay.as_secs_f64(),
            hot_keys: scenario.hot_keys,
            presets: question.presets.iter().map(|p| p.name.clone()).collect(),
            figures: question.presets.iter().map(figures).collect(),
            policies: question.policies.iter().map(ToString::to_string).collect(),
        }
    }
}

fn figures(preset: &Preset) -> (String, BTreeMap<&'static str, String>) {
    let figures = preset.figures();
    let values = figures
        .iter()
        .map(|figure| (figure.name, figure.value.clone()));
    (preset.name.clone(), values.collect())
}

impl LoadView {
    fn of(load: &Load) -> Self {
        match load {
            Load::Synthetic {
                rate,
                sizes,
                arrival,
                duration,
            } => Self::Synthetic {
                rate: *rate,
                size: sizes.to_string(),
                arrival: arrival.to_string(),
                duration_s: duration.as_secs_f64(),
            },
            Load::Recorded(recording) => {
                let summary = recording.summary();
                Self::Recorded {
                    file: recording.path().display().to_string(),
                    format: summary.format.clone(),
                    ios: summary.ios,
                    bytes: summary.bytes,
                    largest: summary.largest,
                    span_s: summary.span.as_secs_f64(),
                    speed: recording.speed(),
                    skipped: summary.skipped,
                    clamped: summary.clamped,
                }
            }
        }
    }
}

/// A question in a few lines.
pub(super) struct Described<'q>(pub(super) &'q Question);

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scenario = &self.0.scenario;
        match &scenario.load {
            Load::Synthetic {
                rate,
                sizes,
                arrival,
                duration,
            } => write!(
                f,
                "{rate} I/Os of {sizes} a second ({arrival}) for {}",
                show_time(*duration)
            )?,
            Load::Recorded(recording) => {
                let summary = recording.summary();
                write!(
                    f,
                    "{} ({}): {} I/Os, {} MB, over {:.1} s",
                    recording.path().display(),
                    summary.format,
                    summary.ios,
                    summary.bytes / 1_000_000,
                    recording.duration().as_secs_f64(),
                )?;
            }
        }
        let bytes = match scenario.max_stale_bytes {
            u64::MAX => "no bound on bytes".to_owned(),
            bytes => format!("at most {} of stale keys", show_bytes(bytes)),
        };
        write!(
            f,
            ", on {} regions ({} free list).\nThe peer takes {}; {} transfers at once; {} hot keys; \
             flushes start {}; seed {}.\nThe pool's own bounds are out of the way, so that each \
             policy shows its own face: max_age {} (the library's default is 1s), {bytes}.",
            scenario.regions,
            order_name(scenario.order),
            show_time(scenario.service_time),
            scenario.concurrency,
            scenario.hot_keys,
            if scenario.flush_delay.is_zero() {
                "when they are due".to_owned()
            } else {
                format!("{} late", show_time(scenario.flush_delay))
            },
            scenario.seed,
            show_time(scenario.max_age),
        )?;
        if !self.0.changes.is_empty() {
            write!(f, "\nWith {}.", self.0.changes.join(", "))?;
        }
        Ok(())
    }
}
