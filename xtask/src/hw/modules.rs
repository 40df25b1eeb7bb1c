//! Which kernel modules belong together: reading `modules.dep`, `modules.alias` and `modules.builtin`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};

/// The modules of one kernel, by name.
pub(super) struct Modules<'a> {
    /// Name → path and the paths it needs, as a line of `modules.dep` has them.
    by_name: BTreeMap<String, (&'a str, Vec<&'a str>)>,
    builtin: BTreeSet<String>,
}

impl<'a> Modules<'a> {
    /// Reads the texts of `modules.dep` and `modules.builtin`.
    pub(super) fn parse(dep: &'a str, builtin: &str) -> Self {
        let lines = dep.lines().filter_map(|line| line.split_once(':'));
        let by_name = lines
            .map(|(path, needs)| (name(path), (path, needs.split_whitespace().collect())))
            .collect();
        Self {
            by_name,
            builtin: builtin.lines().map(name).collect(),
        }
    }

    /// The paths of the wanted modules and of all that they need. What is built into the kernel needs no file.
    ///
    /// # Errors
    /// A wanted module, or one that it needs, does not exist.
    pub(super) fn closure(&self, wanted: &[&str]) -> Result<BTreeSet<&'a str>> {
        let mut paths = BTreeSet::new();
        let mut open: Vec<String> = wanted.iter().map(|module| name(module)).collect();
        while let Some(module) = open.pop() {
            if self.builtin.contains(&module) {
                continue;
            }
            let (path, needs) = self
                .by_name
                .get(&module)
                .with_context(|| format!("this kernel has no module {module}"))?;
            if paths.insert(*path) {
                open.extend(needs.iter().map(|path| name(path)));
            }
        }
        Ok(paths)
    }
}

/// The lines of a `modules.dep` for these paths alone.
pub(super) fn dep_of(dep: &str, paths: &BTreeSet<&str>) -> String {
    keep_lines(dep, |line| {
        line.split_once(':')
            .is_some_and(|(path, _)| paths.contains(path))
    })
}

/// The lines of a `modules.alias` that lead to these paths.
pub(super) fn alias_of(alias: &str, paths: &BTreeSet<&str>) -> String {
    let names: BTreeSet<String> = paths.iter().map(|path| name(path)).collect();
    keep_lines(alias, |line| {
        line.rsplit(' ')
            .next()
            .is_some_and(|module| names.contains(&name(module)))
    })
}

fn keep_lines(text: &str, keep: impl Fn(&str) -> bool) -> String {
    text.lines()
        .filter(|line| keep(line))
        .flat_map(|line| [line, "\n"])
        .collect()
}

/// `kernel/net/a-b.ko.xz` and `a_b` are the module `a_b`.
fn name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split(".ko").next().unwrap_or(file).replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEP: &str = "kernel/a/rdma-rxe.ko: kernel/a/ib_core.ko kernel/b/udp_tunnel.ko.xz\n\
        kernel/a/ib_core.ko: kernel/c/base.ko\n\
        kernel/b/udp_tunnel.ko.xz:\n\
        kernel/c/base.ko: kernel/a/ib_core.ko\n\
        kernel/d/other.ko:\n\
        kernel/d/broken.ko: kernel/d/gone.ko\n";
    const BUILTIN: &str = "kernel/e/virtio-pci.ko\n";

    fn closure(wanted: &[&str]) -> Result<Vec<&'static str>> {
        Ok(Modules::parse(DEP, BUILTIN)
            .closure(wanted)?
            .into_iter()
            .collect())
    }

    #[test]
    fn a_closure_holds_what_is_needed_and_nothing_else() {
        let expected = [
            "kernel/a/ib_core.ko",
            "kernel/a/rdma-rxe.ko",
            "kernel/b/udp_tunnel.ko.xz",
            "kernel/c/base.ko",
        ];
        assert_eq!(closure(&["rdma_rxe"]).unwrap(), expected);
        assert_eq!(
            closure(&["rdma-rxe", "virtio_pci", "udp_tunnel"]).unwrap(),
            expected
        );
        assert!(closure(&["virtio_pci"]).unwrap().is_empty());
    }

    #[test]
    fn a_module_that_does_not_exist_is_named() {
        assert!(
            closure(&["nonsuch"])
                .unwrap_err()
                .to_string()
                .contains("nonsuch")
        );
        assert!(
            closure(&["broken"])
                .unwrap_err()
                .to_string()
                .contains("gone")
        );
    }

    #[test]
    fn tables_are_cut_to_what_is_packed() {
        let paths = BTreeSet::from(["kernel/a/rdma-rxe.ko", "kernel/b/udp_tunnel.ko.xz"]);
        assert_eq!(
            dep_of(DEP, &paths),
            "kernel/a/rdma-rxe.ko: kernel/a/ib_core.ko kernel/b/udp_tunnel.ko.xz\nkernel/b/udp_tunnel.ko.xz:\n"
        );
        let alias = "# Aliases\nalias rdma-link-rxe rdma_rxe\nalias x other\n";
        assert_eq!(alias_of(alias, &paths), "alias rdma-link-rxe rdma_rxe\n");
    }
}
