//! What is to run: the tests that need a device (of `mr-verbs`, `mr-lab` and `rds-lite`), programs of this workspace, and any
//! other on the path.

use std::env;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::process::{announce, capture, cargo};

/// The member whose tests need an RDMA device.
const SUITE: &str = "mr-verbs";

/// What else has a test for one: the member and its test; the feature makes it one.
const OTHER_TESTS: [(&str, &str); 2] = [("mr-lab", "measure"), ("rds-lite", "verbs")];

/// The feature that gives a member's programs a real device.
const FEATURE: &str = "verbs";

/// A file that can be executed, and the name to call it by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Program {
    pub(super) name: String,
    pub(super) path: PathBuf,
}

/// How to build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Profile {
    /// As tests are: built sooner, and with the debug checks on.
    Test,
    Release,
}

impl Profile {
    fn apply(self, build: &mut Command) {
        if self == Self::Release {
            build.arg("--release");
        }
    }
}

/// What `cargo metadata` says of this workspace.
pub(super) struct Workspace {
    metadata: Value,
}

impl Workspace {
    pub(super) fn read() -> Result<Self> {
        let metadata = capture(&mut cargo(&[
            "metadata",
            "--no-deps",
            "--format-version",
            "1",
        ]))?;
        Ok(Self {
            metadata: serde_json::from_str(&metadata).context("cargo metadata")?,
        })
    }

    /// Where caches go: `target/hw`.
    pub(super) fn cache(&self) -> Result<PathBuf> {
        let target = self.metadata["target_directory"]
            .as_str()
            .context("cargo metadata: no target directory")?;
        Ok(Path::new(target).join("hw"))
    }

    fn packages(&self) -> impl Iterator<Item = &Value> {
        self.metadata["packages"].as_array().into_iter().flatten()
    }

    /// The member that has a program of this name, and whether that is one of its programs proper
    /// (`bin`) or of its examples.
    fn owner(&self, program: &str) -> Option<(&Value, &'static str)> {
        let has_one = |package: &Value, kind| {
            let targets = package["targets"].as_array().into_iter().flatten();
            let mut programs = targets.filter(|target| has(&target["kind"], kind));
            programs.any(|target| target["name"] == program)
        };
        ["bin", "example"].into_iter().find_map(|kind| {
            let owner = self.packages().find(|package| has_one(package, kind))?;
            Some((owner, kind))
        })
    }
}

/// Builds the tests that need a device; one program per test binary.
///
/// # Errors
/// There is no such member, or it does not build.
pub(super) fn suite(workspace: &Workspace, profile: Profile) -> Result<Vec<Program>> {
    if !workspace.packages().any(|package| package["name"] == SUITE) {
        bail!(
            "this workspace has no member {SUITE}, so there is no suite to run; give a command after `--`"
        );
    }
    let others = OTHER_TESTS.map(|(member, test)| {
        let what = ["-p", member, "--features", FEATURE, "--test", test];
        what.to_vec()
    });
    let mut programs = Vec::new();
    for what in [vec!["-p", SUITE]].into_iter().chain(others) {
        let mut build = cargo(&["test", "--locked", "--no-run"]);
        build.args(&what);
        profile.apply(&mut build);
        let tests = built(&mut build, true)?;
        if tests.is_empty() {
            bail!("no tests came out of cargo test {}", what.join(" "));
        }
        programs.extend(tests);
    }
    tell_apart(&mut programs);
    Ok(programs)
}

/// The program of this name: a program or example of this workspace, which is built, a file, or one on the path.
///
/// `None` when there is none, which may still be a command of the guest's shell.
///
/// # Errors
/// It does not build, or it is a script, which needs more than its libraries to run elsewhere.
pub(super) fn find(workspace: &Workspace, name: &str, profile: Profile) -> Result<Option<Program>> {
    if let Some((owner, kind)) = workspace.owner(name) {
        return tool(owner, kind, name, profile).map(Some);
    }
    let Some(path) = on_path(name) else {
        return Ok(None);
    };
    let mut magic = [0; 4];
    let read = File::open(&path).and_then(|mut file| file.read_exact(&mut magic));
    if read.is_err() || magic != *b"\x7fELF" {
        bail!(
            "{} is no ELF program; a script cannot be packed",
            path.display()
        );
    }
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    Ok(Some(Program { name, path }))
}

fn tool(owner: &Value, kind: &str, name: &str, profile: Profile) -> Result<Program> {
    let package = owner["name"]
        .as_str()
        .context("cargo metadata: a package without a name")?;
    let mut build = cargo(&[
        "build",
        "--locked",
        "-p",
        package,
        &format!("--{kind}"),
        name,
    ]);
    if owner["features"].get(FEATURE).is_some() {
        build.args(["--features", FEATURE]);
    }
    profile.apply(&mut build);
    built(&mut build, false)?
        .pop()
        .with_context(|| format!("cargo built no program {name}"))
}

/// Gives programs that share a name (a library and its program do) the names of their files, which differ.
fn tell_apart(programs: &mut [Program]) {
    let names: Vec<String> = programs
        .iter()
        .map(|program| program.name.clone())
        .collect();
    for program in programs {
        if names.iter().filter(|name| **name == program.name).count() > 1 {
            program.name = program
                .path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
        }
    }
}

/// Runs a build and returns the test binaries, or the other programs, that came out of it.
fn built(build: &mut Command, tests: bool) -> Result<Vec<Program>> {
    announce(build);
    let messages = capture(build.arg("--message-format=json-render-diagnostics"))?;
    executables(&messages, tests)
}

/// The executables in cargo's messages: test binaries, or the others (which tests may come with).
fn executables(messages: &str, tests: bool) -> Result<Vec<Program>> {
    let mut programs = Vec::new();
    // Whatever else prints to standard output (build scripts do not) is no JSON object.
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let message: Value = serde_json::from_str(line).context("a message of cargo")?;
        if let Some(path) = message["executable"].as_str()
            && message["profile"]["test"] == tests
        {
            let name = message["target"]["name"]
                .as_str()
                .context("a message of cargo without a name")?;
            programs.push(Program {
                name: name.to_owned(),
                path: PathBuf::from(path),
            });
        }
    }
    Ok(programs)
}

fn on_path(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| is_executable(path));
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path)
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

fn has(list: &Value, word: &str) -> bool {
    list.as_array()
        .is_some_and(|list| list.iter().any(|entry| entry == word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_are_those_that_cargo_names() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","target":{"name":"a"},"executable":null}"#,
            "\nnoise\n",
            r#"{"target":{"name":"faults"},"profile":{"test":true},"executable":"/t/faults-1"}"#,
            "\n",
            r#"{"target":{"name":"tool"},"profile":{"test":false},"executable":"/t/tool"}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
        );
        assert_eq!(
            executables(messages, true).unwrap(),
            [program("faults", "/t/faults-1")]
        );
        assert_eq!(
            executables(messages, false).unwrap(),
            [program("tool", "/t/tool")]
        );
        assert!(executables("{broken", true).is_err());
    }

    #[test]
    fn programs_of_one_name_are_told_apart() {
        let mut programs = [
            program("a", "/t/a-1"),
            program("a", "/t/a-2"),
            program("b", "/t/b-3"),
        ];
        tell_apart(&mut programs);
        assert_eq!(programs.map(|program| program.name), ["a-1", "a-2", "b"]);
    }

    fn program(name: &str, path: &str) -> Program {
        Program {
            name: name.to_owned(),
            path: path.into(),
        }
    }

    #[test]
    fn the_owner_of_a_program_is_found_by_its_targets() {
        let metadata = serde_json::json!({"packages": [
            {"name": "lib", "targets": [{"kind": ["lib"], "name": "tool"}]},
            {"name": "shower", "targets": [{"kind": ["example"], "name": "tool"}, {"kind": ["example"], "name": "show"}]},
            {"name": "owner", "targets": [{"kind": ["bin"], "name": "tool"}]},
        ]});
        let workspace = Workspace { metadata };
        let owner = |name| {
            workspace
                .owner(name)
                .map(|(owner, kind)| (owner["name"].as_str().unwrap(), kind))
        };
        assert_eq!(owner("tool"), Some(("owner", "bin")));
        assert_eq!(owner("show"), Some(("shower", "example")));
        assert_eq!(owner("owner"), None);
    }

    #[test]
    fn programs_on_the_path_are_found_and_scripts_refused() {
        let workspace = Workspace {
            metadata: Value::Null,
        };
        assert_eq!(
            find(&workspace, "sh", Profile::Test).unwrap().unwrap().name,
            "sh"
        );
        assert_eq!(
            find(&workspace, "no-such-program-here", Profile::Test).unwrap(),
            None
        );
        assert!(
            find(&workspace, "ldd", Profile::Test)
                .unwrap_err()
                .to_string()
                .contains("script")
        );
    }
}
