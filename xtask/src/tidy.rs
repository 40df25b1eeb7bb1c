//! House rules that no compiler checks, as tests over the files of the workspace.
//!
//! Each rule is a function from a file to complaints, held twice: against a sample that breaks it, so that
//! the rule is known to bite, and against the workspace.

use std::fs;
use std::path::Path;
use std::str::FromStr;

use proc_macro2::{TokenStream, TokenTree};

use crate::process::workspace_root;

/// Longest source file, in lines: beyond it two ideas share one file.
const LINES_MAX: usize = 700;

/// Crates whose time comes in from outside, so that a test or the lab can be its master.
const VIRTUAL_TIME: &[&str] = &["crates/mr-core/src/", "crates/rds-lite/src/"];

/// Where `unsafe` may be written, and why.
const UNSAFE_ALLOWED: &[(&str, &str)] = &[
    (
        "crates/mr-bench/src/backends.rs",
        "a backend vouches for memory, and what a pool is measured against lends it without one",
    ),
    (
        "crates/mr-core/src/buffer.rs",
        "the buffer trait: whoever implements it vouches for memory",
    ),
    (
        "crates/mr-mock/src/dma.rs",
        "a mock HCA writes to raw addresses, as a real one does",
    ),
    (
        "crates/mr-mock/src/dma/ghost.rs",
        "a simulation lends memory that it cuts out of a mapping of its own",
    ),
    (
        "crates/mr-mock/tests/common/",
        "tests lend memory to the mock without a pool",
    ),
    (
        "crates/mr-mock/tests/raw.rs",
        "the raw variant is what is shown",
    ),
    (
        "crates/mr-policies/tests/support/",
        "a buffer that tells when it is dropped, and a backend that watches another",
    ),
    (
        "crates/mr-core/src/pool/models.rs",
        "a model needs a backend, though it calls none",
    ),
    (
        "crates/mr-policies/examples/soak.rs",
        "a backend that watches another",
    ),
    (
        "crates/mr-core/tests/",
        "backends that watch or wrap another",
    ),
    ("crates/mr-verbs/", "libibverbs is C"),
    (
        "crates/rds-lite/src/fabric/tcp/queue.rs",
        "no safe library asks TCP what is not acknowledged",
    ),
    (
        "crates/rds-interop/src/kernel/sys.rs",
        "options of the kernel's RDS sockets, and memory that an HCA writes",
    ),
];

/// A file of the workspace: its path from the root and its text.
struct File {
    path: String,
    text: String,
}

impl File {
    fn is_rust(&self) -> bool {
        Path::new(&self.path)
            .extension()
            .is_some_and(|ext| ext == "rs")
    }

    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

// ---------------------------------------------------------------------------------------------- rules

fn is_short(file: &File) -> Vec<String> {
    let lines = file.text.lines().count();
    if file.is_rust() && lines > LINES_MAX {
        return vec![format!(
            "{}: {lines} lines, more than {LINES_MAX}",
            file.path
        )];
    }
    Vec::new()
}

fn has_no_leftovers(file: &File) -> Vec<String> {
    // Put together here, so that this file does not complain about itself.
    let words = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
    ];
    complain_by_line(file, |line| {
        let word = words.iter().find(|word| has_word(line, word))?;
        Some(format!("{word}: do it, or make an issue of it"))
    })
}

fn names_no_machine(file: &File) -> Vec<String> {
    let roots = ["/home", "/root", "/work", "/tmp", "/Users"].map(|root| format!("{root}/"));
    complain_by_line(file, |line| {
        let root = roots.iter().find(|root| starts_a_path(line, root))?;
        Some(format!("a path below {root} exists on one machine only"))
    })
}

fn skips_no_test(file: &File) -> Vec<String> {
    const REASON: &str = "an ignored test proves nothing";
    let mut complaints = complain_by_token(file, |tokens| {
        (tokens[0] == "#" && tokens[1] == "[" && tokens[2] == "ignore").then_some(REASON)
    });
    if file.is_rust() {
        complaints.extend(complain_by_line(file, |line| {
            let doc = line.trim_start().trim_start_matches(['/', '!', ' ']);
            let fence = doc.strip_prefix("```")?;
            has_word(fence, "ignore").then(|| REASON.to_owned())
        }));
    }
    complaints
}

fn keeps_unsafe_in_its_place(file: &File) -> Vec<String> {
    if UNSAFE_ALLOWED
        .iter()
        .any(|(place, _)| file.path.starts_with(place))
    {
        return Vec::new();
    }
    complain_by_token(file, |tokens| {
        // `unsafe trait` and `unsafe impl` do nothing unsafe: they ask for a promise and give it.
        let promise = ["impl", "trait"].contains(&tokens[1].as_str());
        (tokens[0] == "unsafe" && !promise).then_some("unsafe outside the files that may have it")
    })
}

fn reads_no_clock(file: &File) -> Vec<String> {
    if file.name() == "clock.rs"
        || !VIRTUAL_TIME
            .iter()
            .any(|place| file.path.starts_with(place))
    {
        return Vec::new();
    }
    complain_by_token(file, |tokens| {
        let clock = tokens[0] == "Instant" || tokens[0] == "SystemTime";
        (clock && tokens[1..4] == [":", ":", "now"])
            .then_some("time is passed in; only clock.rs reads a clock")
    })
}

fn leaves_the_binding_to_one_module(file: &File) -> Vec<String> {
    // Below it are its parts, which name the binding through it.
    if file.path == "crates/mr-verbs/src/sys.rs" {
        return Vec::new();
    }
    complain_by_token(file, |tokens| {
        (tokens[0] == "rdma_sys").then_some("only mr-verbs/src/sys.rs names the binding")
    })
}

fn has_crate_doc(file: &File) -> Vec<String> {
    let is_root = matches!(file.name(), "lib.rs" | "main.rs")
        && file.path.ends_with(&format!("/src/{}", file.name()));
    if is_root && !file.text.starts_with("//!") {
        return vec![format!("{}: begins without a crate doc (//!)", file.path)];
    }
    Vec::new()
}

fn takes_workspace_lints(file: &File) -> Vec<String> {
    if file.name() != "Cargo.toml" {
        return Vec::new();
    }
    let Ok(manifest) = file.text.parse::<toml::Table>() else {
        return vec![format!("{}: is no TOML", file.path)];
    };
    let lint = |path: &[&str]| {
        path.iter()
            .try_fold(toml::Value::Table(manifest.clone()), |at, key| {
                at.get(key).cloned()
            })
    };
    let mut complaints = Vec::new();
    if manifest.contains_key("package") && lint(&["lints", "workspace"]) != Some(true.into()) {
        complaints.push(format!("{}: lacks [lints] workspace = true", file.path));
    }
    if manifest.contains_key("workspace")
        && lint(&["workspace", "lints", "rust", "missing_docs"]).is_none()
    {
        complaints.push(format!(
            "{}: the workspace's lints lack missing_docs",
            file.path
        ));
    }
    complaints
}

// --------------------------------------------------------------------------------- how rules look at files

/// One complaint per line that `look` objects to.
fn complain_by_line(file: &File, look: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let lines = file.text.lines().zip(1..);
    lines
        .filter_map(|(line, number)| Some(format!("{}:{number}: {}", file.path, look(line)?)))
        .collect()
}

/// One complaint per place in Rust code that `look` objects to; it sees four tokens at a time.
///
/// Comments and strings are no tokens, so talking about a thing is not doing it.
fn complain_by_token(
    file: &File,
    look: impl Fn(&[String; 4]) -> Option<&'static str>,
) -> Vec<String> {
    if !file.is_rust() {
        return Vec::new();
    }
    let Ok(stream) = TokenStream::from_str(&file.text) else {
        return vec![format!("{}: is no Rust", file.path)];
    };
    let mut tokens = Vec::new();
    flatten(stream, &mut tokens);
    let at = |index: usize| {
        tokens
            .get(index)
            .map_or_else(String::new, |(token, _)| token.clone())
    };
    let windows = tokens
        .iter()
        .enumerate()
        .map(|(i, (_, line))| ([at(i), at(i + 1), at(i + 2), at(i + 3)], line));
    windows
        .filter_map(|(window, line)| Some(format!("{}:{line}: {}", file.path, look(&window)?)))
        .collect()
}

/// The tokens in order with their lines, groups opened up.
fn flatten(stream: TokenStream, into: &mut Vec<(String, usize)>) {
    for token in stream {
        let line = token.span().start().line;
        match token {
            TokenTree::Group(group) => {
                let open = match group.delimiter() {
                    proc_macro2::Delimiter::Bracket => "[",
                    _ => "(",
                };
                into.push((open.to_owned(), line));
                flatten(group.stream(), into);
            }
            TokenTree::Literal(_) => into.push(("literal".to_owned(), line)),
            other => into.push((other.to_string(), line)),
        }
    }
}

fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(start, _)| {
        let (before, after) = (&line[..start], &line[start + word.len()..]);
        !before.ends_with(is_part) && !after.starts_with(is_part)
    })
}

fn starts_a_path(line: &str, root: &str) -> bool {
    line.match_indices(root).any(|(start, _)| {
        !line[..start].ends_with(|c: char| {
            c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | '}' | '*' | '~')
        })
    })
}

/// Everything that is written by hand: sources, manifests, scripts and pages.
fn workspace_files() -> Vec<File> {
    let mut files = Vec::new();
    collect(&workspace_root(), "", &mut files);
    assert!(
        files.iter().any(|file| file.path == "xtask/src/tidy.rs"),
        "looked in the wrong place"
    );
    files
}

fn collect(root: &Path, below: &str, into: &mut Vec<File>) {
    for entry in fs::read_dir(root.join(below)).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let path = if below.is_empty() {
            name.clone()
        } else {
            format!("{below}/{name}")
        };
        if entry.file_type().unwrap().is_dir() {
            if name != "target" && name != ".git" {
                collect(root, &path, into);
            }
        } else if ["rs", "toml", "md", "sh", "fio"]
            .iter()
            .any(|ext| name.ends_with(&format!(".{ext}")))
            || path == ".ci/run"
        {
            let text = fs::read_to_string(root.join(&path)).unwrap();
            into.push(File { path, text });
        }
    }
}

// ------------------------------------------------------------------------------------- rules held to samples

fn sample(path: &str, text: &str) -> File {
    File {
        path: path.to_owned(),
        text: text.to_owned(),
    }
}

/// The number of complaints about a text at a path.
fn complaints(rule: fn(&File) -> Vec<String>, path: &str, text: &str) -> usize {
    rule(&sample(path, text)).len()
}

#[test]
fn rules_bite() {
    let lib = "crates/mr-core/src/lib.rs";
    assert_eq!(complaints(is_short, lib, &"\n".repeat(LINES_MAX)), 0);
    assert_eq!(complaints(is_short, lib, &"\n".repeat(LINES_MAX + 1)), 1);

    let leftover = concat!("// TO", "DO: later\nlet TO", "DOS = 1;");
    assert_eq!(complaints(has_no_leftovers, lib, leftover), 1);

    for (text, count) in [
        ("a = /ho!me/x", 1),
        ("see <https://host/wo!rk/x>", 0),
        ("../wo!rk/x", 0),
        ("(/tm!p/x)", 1),
    ] {
        assert_eq!(
            complaints(names_no_machine, "README.md", &text.replace('!', "")),
            count,
            "{text}"
        );
    }

    assert_eq!(
        complaints(skips_no_test, lib, "#[test]\n#[ignore]\nfn a() {}"),
        1
    );
    assert_eq!(
        complaints(
            skips_no_test,
            lib,
            "#[test]\n#[ignore = \"slow\"]\nfn a() {}"
        ),
        1
    );
    assert_eq!(
        complaints(skips_no_test, lib, "/// ```rust,ignore\n/// ```\nfn a() {}"),
        1
    );
    assert_eq!(
        complaints(skips_no_test, lib, "// #[ignore]\nfn ignore() {}"),
        0
    );

    let unsound = "fn f() { unsafe { g() } }";
    assert_eq!(complaints(keeps_unsafe_in_its_place, lib, unsound), 1);
    assert_eq!(
        complaints(
            keeps_unsafe_in_its_place,
            "crates/mr-core/src/buffer.rs",
            unsound
        ),
        0
    );
    assert_eq!(
        complaints(
            keeps_unsafe_in_its_place,
            lib,
            "#![forbid(unsafe_code)] /* unsafe */ const A: &str = \"unsafe\";"
        ),
        0
    );

    let clock = "fn f() { std::time::Instant::now(); SystemTime::now() }";
    assert_eq!(complaints(reads_no_clock, lib, clock), 2);
    assert_eq!(
        complaints(reads_no_clock, "crates/mr-core/src/clock.rs", clock),
        0
    );
    assert_eq!(
        complaints(reads_no_clock, "crates/mr-lab/src/main.rs", clock),
        0
    );

    assert_eq!(complaints(has_crate_doc, lib, "pub mod a;"), 1);
    assert_eq!(
        complaints(has_crate_doc, lib, "//! A crate.\npub mod a;"),
        0
    );

    assert_eq!(
        complaints(
            takes_workspace_lints,
            "crates/a/Cargo.toml",
            "[package]\nname = 'a'"
        ),
        1
    );
    assert_eq!(
        complaints(
            takes_workspace_lints,
            "crates/a/Cargo.toml",
            "[package]\n[lints]\nworkspace = true"
        ),
        0
    );
    assert_eq!(
        complaints(
            takes_workspace_lints,
            "Cargo.toml",
            "[workspace]\nmembers = []"
        ),
        1
    );
}

// ---------------------------------------------------------------------------------- rules held to the workspace

/// Fails with all complaints of a rule about the workspace.
#[track_caller]
fn hold(rule: fn(&File) -> Vec<String>) {
    let complaints: Vec<String> = workspace_files().iter().flat_map(rule).collect();
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn files_are_short() {
    hold(is_short);
}

#[test]
fn nothing_is_left_over() {
    hold(has_no_leftovers);
}

#[test]
fn no_path_of_one_machine() {
    hold(names_no_machine);
}

#[test]
fn no_test_is_ignored() {
    hold(skips_no_test);
}

#[test]
fn one_module_knows_libibverbs() {
    hold(leaves_the_binding_to_one_module);
}

#[test]
fn unsafe_is_in_its_place() {
    hold(keeps_unsafe_in_its_place);
}

#[test]
fn clocks_are_read_in_one_file() {
    hold(reads_no_clock);
}

#[test]
fn crates_begin_with_their_doc() {
    hold(has_crate_doc);
}

#[test]
fn members_take_the_workspace_lints() {
    hold(takes_workspace_lints);
}
