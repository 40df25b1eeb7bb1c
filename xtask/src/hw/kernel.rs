//! The distribution's kernel, fetched and unpacked into a cache without being installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::packages::{apt, is_known, update};
use crate::process::{capture, must, must_aside, note};

/// The package that depends on the current kernel.
const NEWEST: &str = "linux-image-amd64";

/// An unpacked kernel package.
pub(super) struct Kernel {
    pub(super) image: PathBuf,
    /// The directory that holds `modules.dep`.
    pub(super) modules: PathBuf,
    pub(super) version: String,
}

/// The kernel in this cache; fetches it first if the cache is empty. Delete the directory to get a newer one.
///
/// # Errors
/// It cannot be fetched or is not laid out as expected.
pub(super) fn ensure(cache: &Path) -> Result<Kernel> {
    let directory = cache.join("kernel");
    if !directory.exists() {
        let partial = cache.join("kernel.partial");
        if partial.exists() {
            fs::remove_dir_all(&partial)?;
        }
        fs::create_dir_all(&partial)?;
        fetch(&partial)?;
        // Only a whole one gets the name, so that an interrupted run leaves nothing half-done behind.
        fs::rename(&partial, &directory)?;
    }
    locate(&directory)
}

fn fetch(into: &Path) -> Result<()> {
    if !is_known(NEWEST) {
        update()?;
    }
    let depends = capture(
        Command::new("apt-cache")
            .args(["depends", NEWEST])
            .env("LC_ALL", "C"),
    )?;
    let package =
        image_package(&depends).with_context(|| format!("{NEWEST} depends on no kernel image"))?;
    note(&format!("fetching the kernel: {package}"));
    if must_aside(apt("download").arg(&package).current_dir(into)).is_err() {
        // The lists can be older than what the mirror still keeps.
        update()?;
        must_aside(apt("download").arg(&package).current_dir(into))?;
    }
    let archive = only_file(into, "linux-image-")?;
    must_aside(Command::new("dpkg").arg("-x").arg(&archive).arg(into))?;
    fs::remove_file(archive)?;
    let version = locate(into)?.version;
    // Named in full: only root has its directory on the path.
    must(
        Command::new("/sbin/depmod")
            .arg("-b")
            .arg(into)
            .arg(version),
    )
}

/// The package in the output of `apt-cache depends linux-image-amd64`.
fn image_package(depends: &str) -> Option<String> {
    let packages = depends
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "));
    packages
        .map(str::trim)
        .find(|package| package.starts_with("linux-image-"))
        .map(str::to_owned)
}

fn locate(directory: &Path) -> Result<Kernel> {
    let image = only_file(&directory.join("boot"), "vmlinuz-")?;
    let name = image.file_name().unwrap_or_default().to_string_lossy();
    let version = name.trim_start_matches("vmlinuz-").to_owned();
    // Since Debian 13 modules are below usr.
    let places =
        ["lib/modules", "usr/lib/modules"].map(|place| directory.join(place).join(&version));
    let modules = places.into_iter().find(|place| place.is_dir());
    let modules =
        modules.with_context(|| format!("{} has no modules of {version}", directory.display()))?;
    Ok(Kernel {
        image,
        modules,
        version,
    })
}

fn only_file(directory: &Path, prefix: &str) -> Result<PathBuf> {
    let entries =
        fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let mut found = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    match (found.next(), found.next()) {
        (Some(entry), None) => Ok(entry.path()),
        _ => bail!(
            "{} does not hold exactly one {prefix}*; delete it to start again",
            directory.display()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_package_is_what_the_newest_one_depends_on() {
        let depends = "linux-image-amd64\n  Depends: linux-image-6.1.0-57-amd64\n";
        assert_eq!(
            image_package(depends).unwrap(),
            "linux-image-6.1.0-57-amd64"
        );
        let several = "linux-image-amd64\n  PreDepends: linux-image-x\n  Depends: linux-base\n  Depends: linux-image-7\n";
        assert_eq!(image_package(several).unwrap(), "linux-image-7");
        assert_eq!(image_package("linux-image-amd64\n"), None);
    }
}
