//! The shared libraries that programs need.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The libraries of all these programs and libraries, with theirs, at the places where the loader finds them.
///
/// # Errors
/// A library is missing, or `ldd` cannot be started.
pub(super) fn closure<'a>(files: impl IntoIterator<Item = &'a Path>) -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for file in files {
        let output = Command::new("ldd")
            .arg(file)
            .env("LC_ALL", "C")
            // Cargo points it at its own build directories, which the guest does not have.
            .env_remove("LD_LIBRARY_PATH")
            .stdin(Stdio::null())
            .output()
            .context("cannot start ldd")?;
        found.extend(
            parse(&String::from_utf8_lossy(&output.stdout))
                .with_context(|| format!("{}", file.display()))?,
        );
    }
    Ok(found)
}

/// The paths in the output of `ldd`; none for a program that is linked statically.
fn parse(output: &str) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for line in output.lines().map(str::trim) {
        let place = match line.split_once(" => ") {
            Some((library, "not found")) => bail!("the library {library} is not installed"),
            Some((_, place)) => place,
            None => line,
        };
        // The kernel's own page and remarks in words have no path.
        if let Some((path, _)) = place
            .rsplit_once(" (0x")
            .filter(|(path, _)| path.starts_with('/'))
        {
            paths.push(PathBuf::from(path));
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found_in_every_form() {
        let output = "\tlinux-vdso.so.1 (0x00007ffd)\n\
            \tlibibverbs.so.1 => /lib/x86_64-linux-gnu/libibverbs.so.1 (0x00007f00)\n\
            \tlibodd.so => /opt/a dir (0x1)/libodd.so (0x00007f01)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f02)\n";
        let expected = [
            "/lib/x86_64-linux-gnu/libibverbs.so.1",
            "/opt/a dir (0x1)/libodd.so",
            "/lib64/ld-linux-x86-64.so.2",
        ];
        assert_eq!(parse(output).unwrap(), expected.map(PathBuf::from));
    }

    #[test]
    fn a_static_program_needs_none() {
        assert!(parse("\tstatically linked\n").unwrap().is_empty());
        assert!(parse("").unwrap().is_empty());
    }

    #[test]
    fn a_missing_library_is_named() {
        let error = parse("\tlibgone.so.3 => not found\n").unwrap_err();
        assert!(error.to_string().contains("libgone.so.3"), "{error}");
    }
}
