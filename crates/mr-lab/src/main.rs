//! `mr-lab`: what does an invalidation policy cost for my load?

use std::io::{stderr, stdout};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = std::env::args_os();
    ExitCode::from(mr_lab::cli::main(args, &mut stdout().lock(), &mut stderr()))
}
