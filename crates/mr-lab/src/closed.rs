//! What arithmetic says about a steady load, without a simulation.
//!
//! With `r` releases a second, all alike, a policy gathers batches of `D` regions. Each flush takes
//! `T(D)`, its price of one fence and `D` regions, and starts a delay `d` after it could. Then
//!
//! | policy | `D` | oldest key at the start | exposure, mean and max |
//! | --- | --- | --- | --- |
//! | by count: `threshold=M`, or `use-once` with `M = N - L` | `M + r d` | `(D - 1) / r` | half of that, and that, plus `T(D)` |
//! | `periodic=P` | `r (P + d)` | `P + d` | the same |
//! | `max-exposure=A` | `r (A + d) + 1` | `A + d` | the same |
//! | `adaptive=Q` | `(1 + sqrt(1 + 8 Q r)) / 2`, rounded down | `Q / D + (D - 1) / 2r` | `Q / D`, and that, plus `T(D)` |
//! | `immediate`, and whatever flushes faster than flushes are done | `r T(D)` | `T(D)` | `3/2 T(D)` and `2 T(D)` |
//!
//! where `N` is the number of regions and `L = r T_io` those that are leased. At `N - L` a lease
//! finds no region and calls for a flush itself, so no `D` is above `N - L + r d`, nor above `N`.
//!
//! With `n` mappings of a region between invalidations on a FIFO free list there are bounds:
//! each of the `n - 1` mappings after the first comes a round of `N - L` regions later, so
//! exposure is at most `(n - 1) (N - L) / r + n D / r + T(D)`, and half of that in the mean. For a
//! LIFO list there is no bound and for a random one no closed form.

use crate::scenario::{Load, Scenario};
use crate::shape::Shape;
use mr_core::{DrawOrder, Fence};
use mr_mock::Preset;
use mr_policies::Policy;
use serde::Serialize;

/// What the closed forms say. Times in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Forecast {
    /// Flushes per second.
    pub flushes_per_s: f64,
    /// Regions per flush.
    pub regions_per_flush: f64,
    /// Exposure in the mean.
    pub exposure_mean_s: f64,
    /// Exposure at most.
    pub exposure_max_s: f64,
    /// The exposures are bounds, and the others only hold in the long run.
    pub bound: bool,
}

/// One reason to flush: how many regions it gathers, and the ages then.
#[derive(Clone, Copy, Debug)]
struct Trigger {
    regions: f64,
    oldest: f64,
    mean: f64,
}

/// The numbers that the formulas are made of.
struct Setting {
    rate: f64,
    delay: f64,
    regions: f64,
    /// Regions that can be stale when a lease finds none: those that are not leased.
    room: f64,
    /// Bytes of an I/O.
    bytes: f64,
    /// Of a flush, in seconds.
    fence: f64,
    per_region: f64,
}

/// The closed form for `policy`; `None` if there is none: the load is not steady or its lengths
/// differ, the machine is overloaded, or the free list makes it a matter of chance.
pub fn forecast(scenario: &Scenario, preset: &Preset, policy: &Policy) -> Option<Forecast> {
    let setting = Setting::of(scenario, preset)?;
    let shape =
        Shape::of(policy, scenario.regions).within(scenario.max_age, scenario.max_stale_bytes);
    if shape.maps > 1 {
        return (scenario.order == DrawOrder::Fifo).then(|| setting.reuse(&shape));
    }
    let trigger = setting.first(&shape);
    let flush = setting.flush_time(trigger.regions);
    let cycle = trigger.regions / setting.rate;
    if flush > cycle {
        return setting.back_to_back();
    }
    Some(Forecast {
        flushes_per_s: 1.0 / cycle,
        regions_per_flush: trigger.regions,
        exposure_mean_s: trigger.mean + flush,
        exposure_max_s: trigger.oldest + flush,
        bound: false,
    })
}

impl Setting {
    fn of(scenario: &Scenario, preset: &Preset) -> Option<Self> {
        let Load::Synthetic {
            rate,
            sizes,
            arrival: crate::arrival::Arrival::Steady,
            ..
        } = &scenario.load
        else {
            return None;
        };
        let bytes = sizes.fixed()?;
        let pages = bytes.div_ceil(preset.page_bytes.value) as f64;
        let nanos = |figure: u64| figure as f64 / 1e9;
        let unmap = nanos(preset.unmap_ns.value) + pages * nanos(preset.unmap_page_ns.value);
        let (fence, per_region) = match preset.fence.value {
            Fence::Global => (nanos(preset.sync_ns.value), unmap),
            Fence::PerKey => (
                nanos(preset.doorbell_ns.value) + nanos(preset.completion_ns.value),
                unmap + nanos(preset.invalidate_hca_ns.value),
            ),
        };
        let transfer = transfer_time(preset, bytes);
        let leased = rate * (scenario.service_time.as_secs_f64() + transfer);
        Some(Self {
            rate: *rate,
            delay: scenario.flush_delay.as_secs_f64(),
            regions: f64::from(scenario.regions),
            room: f64::from(scenario.regions) - leased,
            bytes: bytes as f64,
            fence,
            per_region,
        })
        .filter(|setting| setting.room >= 1.0 && rate * transfer < 1.0)
    }

    fn flush_time(&self, regions: f64) -> f64 {
        self.fence + regions * self.per_region
    }

    /// The trigger that comes first.
    fn first(&self, shape: &Shape) -> Trigger {
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        let immediate = shape.immediate.then_some(1.0);
        let by_bytes = shape.bytes.map(|bytes| (bytes as f64 / self.bytes).ceil());
        let counts = [immediate, shape.worn.map(f64::from), by_bytes];
        let counts = counts
            .into_iter()
            .flatten()
            .map(|count| self.by_count(count));
        let period = shape.period.map(|period| {
            let oldest = seconds(period) + self.delay;
            Trigger {
                regions: self.rate * oldest,
                oldest,
                mean: oldest / 2.0,
            }
        });
        let age = shape.age.map(|age| {
            let oldest = seconds(age) + self.delay;
            let regions = (self.rate * oldest).floor() + 1.0;
            Trigger {
                regions,
                oldest,
                mean: oldest - (regions - 1.0) / 2.0 / self.rate,
            }
        });
        let quota = shape.quota.map(|quota| self.by_quota(seconds(quota)));
        let full = self.by_count(self.room);
        counts
            .chain([period, age, quota].into_iter().flatten())
            .fold(full, |first, other| {
                if other.regions < first.regions {
                    other
                } else {
                    first
                }
            })
    }

    fn by_count(&self, count: f64) -> Trigger {
        // While I/Os wait for a late flush, those that have their lease go on to their ends.
        let regions = (count.min(self.room) + self.rate * self.delay).min(self.regions);
        let oldest = (regions - 1.0) / self.rate;
        Trigger {
            regions,
            oldest,
            mean: oldest / 2.0,
        }
    }

    fn by_quota(&self, quota: f64) -> Trigger {
        let regions = ((1.0 + (1.0 + 8.0 * quota * self.rate).sqrt()) / 2.0).floor();
        let mean = quota / regions + self.delay / 2.0;
        Trigger {
            regions: regions + self.rate * self.delay,
            oldest: quota / regions + (regions - 1.0) / 2.0 / self.rate + self.delay,
            mean,
        }
    }

    /// Flushes one after the other, each of what was released during the one before.
    fn back_to_back(&self) -> Option<Forecast> {
        let regions = self.rate * self.fence / (1.0 - self.rate * self.per_region);
        (regions > 0.0 && 2.0 * regions < self.room).then(|| {
            let flush = self.flush_time(regions);
            Forecast {
                flushes_per_s: 1.0 / flush,
                regions_per_flush: regions,
                exposure_mean_s: 1.5 * flush,
                exposure_max_s: 2.0 * flush,
                bound: false,
            }
        })
    }

    fn reuse(&self, shape: &Shape) -> Forecast {
        let maps = f64::from(shape.maps);
        let regions = shape.worn.map_or(self.room, f64::from);
        let regions = (regions + self.rate * self.delay).min(self.room);
        let flush = self.flush_time(regions);
        let rounds = (maps - 1.0) * self.room / self.rate;
        let gathering = maps * regions / self.rate;
        let age = shape
            .age
            .map_or(f64::INFINITY, |age| age as f64 / 1e9 + self.delay);
        Forecast {
            flushes_per_s: self.rate / (maps * regions),
            regions_per_flush: regions,
            exposure_mean_s: ((rounds + gathering) / 2.0).min(age) + flush,
            exposure_max_s: (rounds + gathering).min(age) + flush,
            bound: true,
        }
    }
}

/// How long the HCA takes for `bytes` through a fresh key, in seconds: its engine or its link.
fn transfer_time(preset: &Preset, bytes: u64) -> f64 {
    let packets = bytes.div_ceil(preset.mtu_bytes.value);
    let line = preset.page_bytes.value * preset.mtt_line_pages.value;
    let cached = |entries: u64, fetches: u64| if entries > 0 { fetches } else { 0 };
    let misses =
        cached(preset.mpt_entries.value, 1) + cached(preset.mtt_lines.value, bytes.div_ceil(line));
    let miss = preset.miss_ns.value / preset.miss_overlap.value;
    let engine = (packets * preset.packet_ns.value + misses * miss) as f64 / 1e9;
    engine.max(bytes as f64 / preset.link_bytes_per_s.value as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, change: impl FnOnce(&mut Scenario)) -> Option<Forecast> {
        let mut scenario = Scenario::default();
        change(&mut scenario);
        let preset = Preset::named("connectx-2008").unwrap();
        forecast(&scenario, &preset, &text.parse().unwrap())
    }

    fn near(a: f64, b: f64) -> bool {
        (a / b - 1.0).abs() < 0.01
    }

    #[test]
    fn the_example_of_the_mail() {
        let seed = of("threshold=4000", |_| ()).unwrap();
        assert!(near(seed.flushes_per_s, 0.25) && near(seed.regions_per_flush, 4000.0));
        assert!(near(seed.exposure_mean_s, 2.0) && near(seed.exposure_max_s, 4.0));
        let late = of("threshold=4000", |s| {
            s.flush_delay = std::time::Duration::from_millis(500)
        });
        assert!(near(late.unwrap().regions_per_flush, 4500.0));
        let once = of("use-once", |_| ()).unwrap();
        assert!(near(once.regions_per_flush, 4990.0));
        let adaptive = of("adaptive=5key-s", |_| ()).unwrap();
        assert!(near(adaptive.regions_per_flush, 100.0));
    }

    #[test]
    fn reuse_is_bounded_on_a_queue_only() {
        let fifo = of("use-n=32,threshold=1", |s| s.order = DrawOrder::Fifo).unwrap();
        assert!(fifo.bound && near(fifo.exposure_max_s, 154.7) && near(fifo.exposure_mean_s, 77.3));
        assert_eq!(
            of("use-n=32,threshold=1", |s| s.order = DrawOrder::Lifo),
            None
        );
        assert_eq!(of("use-n=32,threshold=1", |_| ()), None);
    }

    #[test]
    fn an_overload_has_no_closed_form() {
        let rate = |per_second| {
            move |scenario: &mut Scenario| {
                if let Load::Synthetic { rate, .. } = &mut scenario.load {
                    *rate = per_second;
                }
            }
        };
        assert!(of("threshold=99", rate(1800.0)).is_some());
        assert_eq!(of("threshold=99", rate(2000.0)), None);
    }

    #[test]
    fn flushes_that_are_too_slow_share() {
        let preset = Preset::named("connectx-2008").unwrap();
        let preset = preset.with(&[("sync_ns", "10000000")]).unwrap();
        let policy = "immediate".parse().unwrap();
        let saturated = forecast(&Scenario::default(), &preset, &policy).unwrap();
        assert!(near(saturated.flushes_per_s, 100.0));
        assert!(near(saturated.exposure_max_s, 0.02));
    }
}
