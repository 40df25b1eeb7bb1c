//! The guest's file system: everything it can run, in one archive.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::BufWriter;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::artifacts::Program;
use super::cpio::Archive;
use super::kernel::Kernel;
use super::ldd;
use super::modules::{Modules, alias_of, dep_of};
use crate::process::{capture, note};

/// The guest's first process.
const INIT: &str = include_str!("init.sh");

/// Kernel modules that the guest can load: the machine's devices, the software RDMA device and its interfaces to
/// user space, the kernel's own RDS, and a queue that loses packets.
const MODULES: &[&str] = &[
    "qemu_fw_cfg",
    "virtio_pci",
    "virtio_net",
    // rdma_rxe asks the crypto layer for it at run time, so no module lists it as needed.
    "crc32_generic",
    "rdma_rxe",
    "ib_uverbs",
    "rdma_ucm",
    "rds",
    "rds_rdma",
    "rds_tcp",
    "sch_netem",
];

/// Where the guest has the programs that were packed; first on its path.
const PROGRAMS: &str = "opt/bin";

/// The shell, and nearly everything that one expects on its path, in one static program.
const BUSYBOX: &str = "/bin/busybox";

/// Whether a name is a command of the guest's shell.
///
/// # Errors
/// busybox cannot be started.
pub(super) fn shell_has(name: &str) -> Result<bool> {
    let commands = capture(Command::new(BUSYBOX).arg("--list"))?;
    Ok(commands.lines().any(|command| command == name))
}

enum Entry {
    Directory,
    Link(String),
    Console,
    Text { mode: u32, text: String },
    Copy(PathBuf),
}

/// What goes into an archive, by its path in the guest without the leading slash.
#[derive(Default)]
pub(super) struct Contents {
    entries: BTreeMap<String, Entry>,
}

impl Contents {
    /// A guest with this kernel's modules, a shell, the software RDMA device and these programs.
    ///
    /// # Errors
    /// A module, a program or one of its libraries is missing.
    pub(super) fn collect(kernel: &Kernel, programs: &[Program]) -> Result<Self> {
        let mut contents = Self::default();
        contents.add_base(Path::new(BUSYBOX))?;
        contents.add_modules(kernel)?;
        let provider = find_provider(Path::new("/usr/lib"))?;
        contents.add_text("etc/libibverbs.d/rxe.driver", "driver rxe\n");
        for library in libraries(provider, programs)? {
            contents.add(&guest_path(&library), Entry::Copy(library));
        }
        for program in programs {
            let path = format!("{PROGRAMS}/{}", program.name);
            contents.add(&path, Entry::Copy(program.path.clone()));
        }
        Ok(contents)
    }

    /// Writes the archive if what it should hold has changed since it was written; returns its size in bytes.
    ///
    /// # Errors
    /// A file cannot be read or the archive cannot be written.
    pub(super) fn write(&self, archive: &Path) -> Result<u64> {
        let key_file = archive.with_extension("key");
        let key = self.key()?;
        if !archive.exists() || fs::read_to_string(&key_file).ok().as_deref() != Some(&key) {
            // Without its key an archive counts as missing, so an interrupted run is harmless.
            let _ = fs::remove_file(&key_file);
            let out = File::create(archive)
                .with_context(|| format!("cannot write {}", archive.display()))?;
            self.pack(Archive::new(BufWriter::new(out)))?;
            fs::write(key_file, key)?;
            note(&format!(
                "packed {} files, {} MiB",
                self.entries.len(),
                fs::metadata(archive)?.len() >> 20
            ));
        }
        Ok(fs::metadata(archive)?.len())
    }

    fn add(&mut self, path: &str, entry: Entry) {
        for (slash, _) in path.match_indices('/') {
            self.entries
                .entry(path[..slash].to_owned())
                .or_insert(Entry::Directory);
        }
        self.entries.insert(path.to_owned(), entry);
    }

    fn add_base(&mut self, busybox: &Path) -> Result<()> {
        let busybox = fs::canonicalize(busybox).context("busybox-static has no busybox")?;
        self.add(
            "init",
            Entry::Text {
                mode: 0o755,
                text: INIT.to_owned(),
            },
        );
        self.add("bin/busybox", Entry::Copy(busybox));
        // The kernel calls /sbin/modprobe when it misses a module.
        self.add("sbin", Entry::Link("bin".to_owned()));
        self.add("dev/console", Entry::Console);
        for directory in ["proc", "sys", "run", "tmp"] {
            self.add(directory, Entry::Directory);
        }
        self.add_text(
            "etc/hosts",
            "127.0.0.1 localhost\n10.0.0.1 guest1\n10.0.0.2 guest2\n",
        );
        self.add_text("etc/nsswitch.conf", "hosts: files\npasswd: files\n");
        self.add_text("etc/passwd", "root:x:0:0:root:/:/bin/sh\n");
        Ok(())
    }

    fn add_text(&mut self, path: &str, text: &str) {
        self.add(
            path,
            Entry::Text {
                mode: 0o644,
                text: text.to_owned(),
            },
        );
    }

    fn add_modules(&mut self, kernel: &Kernel) -> Result<()> {
        let table = |name: &str| {
            let path = kernel.modules.join(name);
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let (dep, builtin, alias) = (
            table("modules.dep")?,
            table("modules.builtin")?,
            table("modules.alias")?,
        );
        let paths: BTreeSet<&str> = Modules::parse(&dep, &builtin).closure(MODULES)?;
        let directory = format!("lib/modules/{}", kernel.version);
        for path in &paths {
            self.add(
                &format!("{directory}/{path}"),
                Entry::Copy(kernel.modules.join(path)),
            );
        }
        self.add_text(&format!("{directory}/modules.dep"), &dep_of(&dep, &paths));
        self.add_text(
            &format!("{directory}/modules.alias"),
            &alias_of(&alias, &paths),
        );
        Ok(())
    }

    /// A text that changes when the archive would: names, texts, and which files at what time.
    fn key(&self) -> Result<String> {
        let mut key = String::new();
        for (path, entry) in &self.entries {
            let what = match entry {
                Entry::Directory => "directory".to_owned(),
                Entry::Console => "console".to_owned(),
                Entry::Link(target) => format!("link {target}"),
                Entry::Text { mode, text } => format!("{mode:o} {text:?}"),
                Entry::Copy(source) => {
                    let stat = fs::metadata(source)
                        .with_context(|| format!("cannot read {}", source.display()))?;
                    let time = (stat.mtime(), stat.mtime_nsec());
                    format!(
                        "{} {:o} {} {} {}",
                        source.display(),
                        stat.mode(),
                        stat.len(),
                        time.0,
                        time.1
                    )
                }
            };
            key.push_str(&format!("{path}: {what}\n"));
        }
        Ok(key)
    }

    fn pack(&self, mut archive: Archive<BufWriter<File>>) -> Result<()> {
        for (path, entry) in &self.entries {
            match entry {
                Entry::Directory => archive.directory(path)?,
                Entry::Link(target) => archive.link(path, target)?,
                Entry::Console => archive.character_device(path, 5, 1)?,
                Entry::Text { mode, text } => {
                    archive.file(path, *mode, text.len() as u64, &mut text.as_bytes())?
                }
                Entry::Copy(source) => {
                    let mut file = File::open(source)
                        .with_context(|| format!("cannot read {}", source.display()))?;
                    let stat = file.metadata()?;
                    archive.file(path, stat.mode(), stat.len(), &mut file)?;
                }
            }
        }
        Ok(archive.finish()?)
    }
}

fn guest_path(path: &Path) -> String {
    path.to_string_lossy().trim_start_matches('/').to_owned()
}

/// All shared libraries of a guest: the provider, what it and the programs are linked with, and one more.
fn libraries(provider: PathBuf, programs: &[Program]) -> Result<BTreeSet<PathBuf>> {
    let paths = programs.iter().map(|program| program.path.as_path());
    let mut libraries = ldd::closure(paths.chain([provider.as_path()]))?;
    // The C library loads this one by itself when a thread is cancelled, so no program lists it as needed.
    let unwinder = provider
        .ancestors()
        .nth(2)
        .map(|lib| lib.join("libgcc_s.so.1"));
    libraries.extend(unwinder.filter(|path| path.exists()));
    libraries.insert(provider);
    Ok(libraries)
}

/// The part of libibverbs for the software device: `LIB/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so`.
///
/// It goes alone: libibverbs warns about each provider that is named and not there.
fn find_provider(lib: &Path) -> Result<PathBuf> {
    let architectures = fs::read_dir(lib)?
        .flatten()
        .map(|entry| entry.path().join("libibverbs"));
    let mut files = architectures
        .filter_map(|directory| fs::read_dir(directory).ok())
        .flat_map(Iterator::flatten);
    let provider = files.find(|file| file.file_name().to_string_lossy().starts_with("librxe-"));
    provider
        .map(|file| file.path())
        .context("ibverbs-providers has no provider for rxe")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_come_before_their_children() {
        let mut contents = Contents::default();
        contents.add_text("a/b/c", "text");
        contents.add_text("a-b", "text");
        let paths: Vec<&String> = contents.entries.keys().collect();
        assert_eq!(paths, ["a", "a-b", "a/b", "a/b/c"]);
        assert!(matches!(contents.entries["a/b"], Entry::Directory));
    }

    #[test]
    fn the_key_changes_with_a_text_and_not_without() {
        let contents = |text: &str| {
            let mut contents = Contents::default();
            contents.add_text("etc/hosts", text);
            contents.key().unwrap()
        };
        assert_eq!(contents("a\n"), contents("a\n"));
        assert_ne!(contents("a\n"), contents("b\n"));
        assert_ne!(contents("a\n"), contents("a\nb: c"));
    }

    #[test]
    fn the_guest_refuses_nothing_that_its_first_process_calls() {
        // The script is read by busybox's shell, which is stricter than others: it must at least parse as plain sh.
        let parsed = std::process::Command::new("sh")
            .args(["-n", "-c", INIT])
            .status()
            .unwrap();
        assert!(parsed.success());
    }
}
