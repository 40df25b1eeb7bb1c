//! Measuring on a device.

mod alone;
mod cpu;
mod load;
mod rig;
mod way;

use super::answer::median;
use super::{Alone, Measured, Measurement, Mechanism, Plan, Ratios};
use crate::LabError;
use alone::Bench;
use mr_core::{Access, InvalidationPolicy, MrBackend, PoolLimits};
use mr_policies::Policy;
use mr_verbs::{Error, RegistrationBackend, Window1Backend, Window2Backend};
use rig::Rig;
use way::Way;

const ACCESS: Access = Access::REMOTE_WRITE;

/// As [`super::measure`], of a plan that can be.
pub(super) fn measure(plan: &Plan) -> Result<Measurement, LabError> {
    let rig = Rig::new(plan)?;
    match plan.backend {
        Mechanism::Reg => {
            let make = || Ok(RegistrationBackend::new(&rig.domain));
            measure_with(plan, &rig, make, Way::waited(), None)
        }
        Mechanism::Mw1 => {
            let make = || Window1Backend::new(&rig.domain, [rig.arena.clone()]);
            measure_with(plan, &rig, make, Way::waited(), None)
        }
        Mechanism::Mw2 => {
            let make = || Window2Backend::new(&rig.ours, [rig.arena.clone()]);
            let chained = plan.chained.then(Way::chained);
            measure_with(plan, &rig, make, Way::waited(), chained)
        }
    }
}

fn measure_with<B: MrBackend<Error = Error>>(
    plan: &Plan,
    rig: &Rig,
    make: impl Fn() -> Result<B, Error>,
    waited: Way<B>,
    chained: Option<Way<B>>,
) -> Result<Measurement, LabError> {
    let backend = make().map_err(device_error)?;
    check_policies(plan, &backend)?;
    drop(backend);

    let bench = Bench::new(plan, rig, &make, waited, chained)?;
    let series = bench.measure()?;
    let way = chained.unwrap_or(waited);
    let (request_cpu_us, rows) = if plan.policies.is_empty() {
        (None, Vec::new())
    } else {
        measure_load(plan, rig, &make, way)?
    };
    Ok(Measurement {
        plan: plan.clone(),
        device: rig.device.name().to_owned(),
        software: rig.device.is_software(),
        alone: series.iter().map(Alone::new).collect(),
        ratios: Ratios::new(&series),
        request_cpu_us,
        rows,
    })
}

/// Before anything is measured: all policies can hold.
fn check_policies(plan: &Plan, backend: &impl MrBackend) -> Result<(), LabError> {
    let limits = PoolLimits::new(plan.regions, &backend.capabilities());
    for policy in &plan.policies {
        policy
            .check(&limits)
            .map_err(|reason| LabError::PolicyCannotHold {
                preset: name(plan),
                reason,
            })?;
    }
    Ok(())
}

/// The load under each policy, and under registration and deregistration per I/O, in turn; with what
/// a request takes of the CPU if there are requests, which is not counted.
fn measure_load<B: MrBackend<Error = Error>>(
    plan: &Plan,
    rig: &Rig,
    make: impl Fn() -> Result<B, Error>,
    way: Way<B>,
) -> Result<(Option<f64>, Vec<Measured>), LabError> {
    let immediate: Policy = "immediate".parse()?;
    let mut rounds: Vec<Vec<Measured>> = vec![Vec::new(); plan.policies.len() + 1];
    let mut requests = Vec::new();
    for round in 0..=plan.rounds {
        let registration = RegistrationBackend::new(&rig.domain);
        let waited = Way::waited();
        let baseline = load::run(plan, rig, registration, waited, &immediate, "registration")?;
        let request = match way.announces {
            true => load::requests(plan, rig)?,
            false => 0.0,
        };
        let mut rows = Vec::with_capacity(rounds.len());
        for place in order(plan.policies.len(), round) {
            let backend = make().map_err(device_error)?;
            let policy = &plan.policies[place];
            let mut row = load::run(plan, rig, backend, way, policy, &name(plan))?;
            row.cpu_us_per_io -= request;
            rows.push((place + 1, row));
        }
        rows.push((0, baseline));
        // The first warms up.
        if round > 0 {
            requests.push(request);
            for (place, row) in rows {
                rounds[place].push(row);
            }
        }
    }
    let rows = rounds.iter();
    let rows = rows.filter_map(|rounds| Measured::median(rounds));
    let mut rows: Vec<_> = rows.collect();
    let baseline = rows.first().map_or(0.0, |row| row.cpu_us_per_io);
    rows.iter_mut().for_each(|row| row.compare_with(baseline));
    let request = way.announces.then(|| median(&requests));
    Ok((request, rows))
}

/// The places in the order of this round: every second one is backwards.
fn order(count: usize, round: u32) -> impl Iterator<Item = usize> {
    (0..count).map(move |place| {
        if round.is_multiple_of(2) {
            place
        } else {
            count - 1 - place
        }
    })
}

/// What the backend is called in an answer.
fn name(plan: &Plan) -> String {
    match (plan.backend, plan.chained) {
        (Mechanism::Reg, _) => "reg",
        (Mechanism::Mw1, _) => "mw1",
        (Mechanism::Mw2, false) => "mw2",
        (Mechanism::Mw2, true) => "mw2 chained",
    }
    .to_owned()
}

fn device_error(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> LabError {
    LabError::Device(error.into())
}
