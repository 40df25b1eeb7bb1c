//! Says at once what `rdma-sys` would only say by a panic of its build script.
//!
//! It makes its bindings with bindgen 0.59, which stops at the names that libclang 16 and later give
//! to anonymous unions. This script is built long before bindgen is, so its message comes first.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Newest version that works.
const NEWEST: u32 = 15;

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=LIBCLANG_PATH");
    match check() {
        Ok(()) => ExitCode::SUCCESS,
        Err(advice) => {
            println!("cargo::error={advice}");
            ExitCode::FAILURE
        }
    }
}

fn check() -> Result<(), String> {
    if let Some(chosen) = env::var_os("LIBCLANG_PATH") {
        let directory = PathBuf::from(chosen);
        return match version_in(&directory) {
            Some(version) if version > NEWEST => Err(format!(
                "LIBCLANG_PATH leads to libclang {version}, and the bindings to libibverbs can be made with versions up to {NEWEST} only: run `cargo xtask setup` and set it to what that prints"
            )),
            _ => Ok(()),
        };
    }
    let installed = installed();
    let good = installed
        .iter()
        .rev()
        .find(|(version, _)| *version <= NEWEST);
    match (installed.last(), good) {
        // Without a choice, bindgen takes the newest.
        (Some((version, _)), Some((_, good))) if *version > NEWEST => Err(format!(
            "libclang {version} would be used, and the bindings to libibverbs can be made with versions up to {NEWEST} only: export LIBCLANG_PATH={}",
            good.display()
        )),
        (Some((version, _)), None) => Err(format!(
            "only libclang {version} is installed, and the bindings to libibverbs can be made with versions up to {NEWEST} only: run `cargo xtask setup`"
        )),
        // Where it is on other systems bindgen may know.
        _ => Ok(()),
    }
}

/// Versions that Debian's packages have installed, oldest first.
fn installed() -> Vec<(u32, PathBuf)> {
    let entries = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let llvm = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("llvm-"));
    let libraries = llvm.map(|entry| entry.path().join("lib"));
    let mut found: Vec<_> = libraries
        .filter_map(|directory| Some((version_in(&directory)?, directory)))
        .collect();
    found.sort();
    found
}

/// The newest version among the libraries of a directory.
fn version_in(directory: &Path) -> Option<u32> {
    let entries = fs::read_dir(directory).ok()?.flatten();
    entries
        .filter_map(|entry| version_of(&entry.file_name().to_string_lossy()))
        .max()
}

/// `libclang-14.so.14.0.6`, `libclang-14.so.1` and `libclang.so.14` are version 14.
fn version_of(file: &str) -> Option<u32> {
    let (dashed, dotted) = file.strip_prefix("libclang")?.split_once(".so")?;
    let number = dashed
        .strip_prefix('-')
        .or_else(|| dotted.strip_prefix('.'))?;
    number.split('.').next()?.parse().ok()
}
