//! Prints what a trace holds: `cargo run --release -p mr-lab --example trace_info -- FILE [IOS_PER_SECOND]`.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use mr_lab::trace::{self, Kind, Options};

fn main() -> ExitCode {
    match report(&mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to tell if stderr is gone.
            let _ = writeln!(io::stderr(), "trace_info: {error}");
            ExitCode::from(2)
        }
    }
}

fn report(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let path = arguments.next().ok_or("expected a trace file")?;
    let rate = arguments.next().map(|rate| rate.to_string_lossy().parse());
    let options = Options {
        rate: rate.transpose()?,
        ..Options::default()
    };
    let mut trace = trace::open(&path, options)?;
    let (mut reads, mut writes, mut end) = ((0_u64, 0_u64), (0_u64, 0_u64), Duration::ZERO);
    for io in trace.by_ref() {
        let io = io?;
        let (count, bytes) = match io.kind {
            Kind::Read => &mut reads,
            Kind::Write => &mut writes,
        };
        *count += 1;
        *bytes += io.bytes;
        end = io.at;
    }
    match trace.counted_action() {
        Some(action) => writeln!(out, "{}, counted at {action}", trace.format())?,
        None => writeln!(out, "{}", trace.format())?,
    }
    writeln!(
        out,
        "{} reads of {} bytes, {} writes of {} bytes, over {end:?}",
        reads.0, reads.1, writes.0, writes.1
    )?;
    writeln!(
        out,
        "skipped: {:?}; stamps clamped: {}",
        trace.skipped(),
        trace.clamped()
    )?;
    Ok(())
}
