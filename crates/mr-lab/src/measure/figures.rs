//! What a preset of the mock HCA needs to know of a device, out of one measurement.

use super::answer::{Alone, Measurement, Step, quantile};

/// A figure of a preset.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Figure {
    /// Its name in the preset's file.
    pub name: &'static str,
    /// Its value in ns. Not above zero if a difference is lost in noise.
    pub nanos: f64,
    /// `measured`, or `assumed` to be as another one that is.
    pub evidence: &'static str,
    /// What it was made of.
    pub how: &'static str,
}

/// The figures that follow from a measurement of type 2 windows with chains as long as a batch and
/// requests chained behind maps, of a device that sends `packet` bytes at a time. Those of which
/// something was not measured are left out.
///
/// What goes in chains is a loop, and is taken as one. A doorbell comes after other work, as under
/// load: so its figure is that of calls that come after an RDMA write.
pub fn figures(measured: &Measurement, packet: u64) -> Vec<Figure> {
    let alone = |step| measured.alone.iter().find(|alone| alone.step == step);
    let mut figures = Vec::new();
    let mut add = |name, us: f64, how| {
        let nanos = us * 1e3;
        figures.push(Figure {
            name,
            nanos,
            evidence: "measured",
            how,
        });
    };
    if let Some(write) = alone(Step::Write) {
        let packets = measured.plan.size.div_ceil(packet.max(1)).max(1);
        let each = write.wall_us_per_io / packets as f64;
        add("packet_ns", each, "an RDMA write, by its packets");
    }
    let (Some(chains), Some(cold)) = (alone(Step::Chains), alone(Step::Cold)) else {
        return figures;
    };
    let Alone {
        map_us_per_io: bind,
        invalidate_us_per_io: invalidation,
        ..
    } = *chains;
    if let Some(lease) = deferred(measured) {
        add(
            "map_ns",
            lease - bind - invalidation,
            "CPU time of a lease in front of its request, under load, the median of the deferred policies, less map_hca_ns and invalidate_hca_ns",
        );
    }
    add("map_hca_ns", bind, "a bind in a chain");
    let doorbell = cold.cpu_us_per_io / 2.0 - invalidation;
    add(
        "doorbell_ns",
        doorbell,
        "half the CPU time of a bind and a LOCAL_INV that come after an RDMA write each, less invalidate_hca_ns: the call out of the processor's caches, as under load",
    );
    add("invalidate_hca_ns", invalidation, "LOCAL_INV in a chain");
    add(
        "completion_ns",
        cold.invalidate_us_per_io - doorbell - invalidation,
        "from post to completion of one LOCAL_INV after an RDMA write, less doorbell_ns and invalidate_hca_ns",
    );
    figures.push(Figure {
        name: "remote_invalidate_hca_ns",
        nanos: invalidation * 1e3,
        evidence: "assumed",
        how: "as LOCAL_INV in a chain",
    });
    figures
}

/// CPU time per I/O under the policies that flush several regions at a time, or none at all.
fn deferred(measured: &Measurement) -> Option<f64> {
    // The first row is registration and deregistration.
    let rows = measured.rows.iter().skip(1);
    let deferred = rows.filter(|row| row.policy != "immediate");
    let times: Vec<_> = deferred.map(|row| row.cpu_us_per_io).collect();
    (!times.is_empty()).then(|| quantile(times.into_iter(), 0.5))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Measured, Mechanism, Plan, Ratios, Sample, Series};
    use crate::row::{Latency, MeanMax};

    fn row(policy: &str, cpu_us_per_io: f64) -> Measured {
        Measured {
            backend: "mw2 chained".into(),
            policy: policy.into(),
            ios: 10,
            elapsed_s: 1.0,
            flushes: 1.0,
            flushes_per_s: 1.0,
            regions_per_flush: 1.0,
            cpu_us_per_io,
            cpu_us_quartile_low: cpu_us_per_io,
            cpu_us_quartile_high: cpu_us_per_io,
            process_cpu_us_per_io: cpu_us_per_io,
            caller_us_per_io: 1.0,
            throughput_mb_s: 1.0,
            latency_us: Latency {
                p50: 1.0,
                p99: 1.0,
                p999: 1.0,
            },
            waits: 0.0,
            exposure_s: MeanMax {
                mean: 1.0,
                max: 1.0,
            },
            key_seconds: 1.0,
            registration_ratio: None,
        }
    }

    fn measured(rows: Vec<Measured>) -> Measurement {
        let alone = |step, map_ns, invalidate_ns, cpu_ns| {
            let sample = Sample {
                ios: 1,
                map_ns,
                invalidate_ns,
                cpu_ns,
            };
            Alone::new(&Series {
                step,
                samples: vec![sample],
            })
        };
        Measurement {
            plan: Plan {
                device: None,
                backend: Mechanism::Mw2,
                chained: true,
                policies: Vec::new(),
                size: 65_536,
                ios: 10,
                rate: Some(200.0),
                regions: 8,
                batch: 4,
                depth: 4,
                rounds: 1,
            },
            device: "rxe0".into(),
            software: true,
            alone: vec![
                alone(Step::Write, 1_600_000, 0, 1_600_000),
                alone(Step::Chains, 7_900, 6_500, 14_400),
                alone(Step::Cold, 170_000, 157_000, 233_000),
            ],
            ratios: Ratios::new(&[]),
            request_cpu_us: None,
            rows,
        }
    }

    fn nanos(measured: &Measurement, name: &str) -> Option<f64> {
        let figures = figures(measured, 1024);
        let figure = figures.iter().find(|figure| figure.name == name)?;
        Some(figure.nanos.round())
    }

    /// By hand, for one set of times.
    #[test]
    fn figures_are_what_the_parts_come_to() {
        let rows = [
            ("immediate", 324.0),
            ("immediate", 120.0),
            ("use-once", 31.0),
            ("threshold=64", 30.0),
            ("periodic=100ms", 29.0),
        ];
        let measured = measured(rows.map(|(policy, cpu)| row(policy, cpu)).into());
        assert_eq!(nanos(&measured, "packet_ns"), Some(25_000.0));
        assert_eq!(nanos(&measured, "map_hca_ns"), Some(7_900.0));
        assert_eq!(nanos(&measured, "invalidate_hca_ns"), Some(6_500.0));
        assert_eq!(nanos(&measured, "map_ns"), Some(15_600.0));
        assert_eq!(nanos(&measured, "doorbell_ns"), Some(110_000.0));
        assert_eq!(nanos(&measured, "completion_ns"), Some(40_500.0));
    }

    #[test]
    fn without_a_load_there_is_no_time_of_a_lease_under_it() {
        let measured = measured(Vec::new());
        assert_eq!(nanos(&measured, "map_ns"), None);
        assert_eq!(nanos(&measured, "map_hca_ns"), Some(7_900.0));
    }
}
