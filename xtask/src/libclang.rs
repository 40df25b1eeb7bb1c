//! Finding a libclang that the bindings to libibverbs can be made with.
//!
//! `rdma-sys` 0.3.0 makes them with bindgen 0.59, which stops at the names that libclang 16 and later give to anonymous
//! unions.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// Newest version that works.
pub(crate) const NEWEST: u32 = 15;

/// Versions that work, in the order in which they are tried; 14 is Debian 12's own.
pub(crate) const WANTED: [u32; 3] = [14, NEWEST, 13];

/// What was found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Libclang {
    /// One that works, in this directory.
    Good {
        version: u32,
        directory: PathBuf,
    },
    /// `LIBCLANG_PATH` leads to one that does not work.
    TooNew {
        version: u32,
        directory: PathBuf,
    },
    /// `LIBCLANG_PATH` leads to this directory, which holds none.
    Astray {
        directory: PathBuf,
    },
    Missing,
}

/// Looks where `LIBCLANG_PATH` leads, else where Debian puts it.
pub(crate) fn find() -> Libclang {
    if let Some(chosen) = env::var_os("LIBCLANG_PATH") {
        let directory = PathBuf::from(chosen);
        return match version_in(&directory) {
            Some(version) if version > NEWEST => Libclang::TooNew { version, directory },
            Some(version) => Libclang::Good { version, directory },
            None => Libclang::Astray { directory },
        };
    }
    for version in WANTED {
        let directory = PathBuf::from(format!("/usr/lib/llvm-{version}/lib"));
        if version_in(&directory) == Some(version) {
            return Libclang::Good { version, directory };
        }
    }
    Libclang::Missing
}

/// The newest version among the libraries of a directory.
fn version_in(directory: &Path) -> Option<u32> {
    let entries = fs::read_dir(directory).ok()?;
    entries
        .flatten()
        .filter_map(|entry| version_of(&entry.file_name().to_string_lossy()))
        .max()
}

/// `libclang-14.so.14.0.6`, `libclang-14.so.1` and `libclang.so.14` are version 14.
fn version_of(file: &str) -> Option<u32> {
    let rest = file.strip_prefix("libclang")?;
    let (dashed, dotted) = rest.split_once(".so")?;
    let number = dashed
        .strip_prefix('-')
        .or_else(|| dotted.strip_prefix('.'))?;
    number.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_file_names() {
        for (file, version) in [
            ("libclang-14.so.14.0.6", Some(14)),
            ("libclang-14.so.1", Some(14)),
            ("libclang-16.so", Some(16)),
            ("libclang.so.15", Some(15)),
            ("libclang.so", None),
            ("libclang-cpp.so.14", None),
            ("libclangAST.a", None),
        ] {
            assert_eq!(version_of(file), version, "{file}");
        }
    }

    #[test]
    fn a_directory_without_one_has_none() {
        assert_eq!(version_in(Path::new("/proc/self/fd")), None);
        assert_eq!(version_in(Path::new("/no/such/directory")), None);
    }
}
