//! `cargo xtask setup`: what `mr-verbs` is built with.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::libclang::{self, Libclang, NEWEST, WANTED};
use crate::packages::{self, Unavailable, is_known, update};
use crate::process::say;

/// How to set up.
#[derive(Args)]
pub(crate) struct Options {
    /// Only check: fail instead of installing packages that are missing
    #[arg(long)]
    no_install: bool,
}

/// Installs libibverbs, librdmacm and a libclang that works, and says what there is.
///
/// # Errors
/// [`Unavailable`] when something is missing and must not or cannot be installed.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    ensure(options.no_install)?;
    say(&format!("present: {}", packages::BUILD.join(" ")));
    if let Libclang::Good { version, directory } = libclang::find() {
        say(&format!(
            "present: libclang {version} in {}",
            directory.display()
        ));
        say("`cargo xtask` finds it by itself; for cargo alone, if it picks another one:");
        say(&format!("    export LIBCLANG_PATH={}", directory.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// The same without a word when nothing is missing.
///
/// # Errors
/// As [`run`].
pub(crate) fn ensure(no_install: bool) -> Result<()> {
    packages::ensure(packages::BUILD, no_install)?;
    if libclang::find() == Libclang::Missing {
        install_libclang(no_install)?;
    }
    let why = match libclang::find() {
        Libclang::Good { .. } => return Ok(()),
        Libclang::TooNew { version, directory } => format!(
            "LIBCLANG_PATH leads to libclang {version} in {}, but only versions up to {NEWEST} work; unset it",
            directory.display()
        ),
        Libclang::Astray { directory } => {
            format!(
                "LIBCLANG_PATH leads to {}, which holds no libclang; unset it",
                directory.display()
            )
        }
        Libclang::Missing => {
            "libclang is installed, but not where it is looked for; set LIBCLANG_PATH".to_owned()
        }
    };
    Err(Unavailable(why).into())
}

fn install_libclang(no_install: bool) -> Result<()> {
    let available = || {
        WANTED
            .iter()
            .map(|version| format!("libclang-{version}-dev"))
            .find(|package| is_known(package))
    };
    let package = match available() {
        Some(package) => Some(package),
        None if no_install => None,
        None => {
            update()?;
            available()
        }
    };
    let Some(package) = package else {
        let why = format!(
            "this system offers no libclang up to {NEWEST}; install one and set LIBCLANG_PATH to its directory"
        );
        return Err(Unavailable(why).into());
    };
    packages::ensure(&[&package], no_install)
}
