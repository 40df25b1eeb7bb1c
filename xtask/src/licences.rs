//! Licences of all dependencies against the list in `deny.toml`, for machines without cargo-deny.
//!
//! Like cargo-deny, it takes the text of a package's licence file for what it is when the package
//! does not name its licence; the only text that it knows is that of the MIT licence.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use spdx::{Expression, Licensee, ParseMode};

use crate::process::{capture, cargo, say, workspace_root};

/// Checks every package in `Cargo.lock`, whatever platform or feature it is for.
///
/// # Errors
/// `deny.toml` or the output of `cargo metadata` cannot be read.
pub(crate) fn check() -> Result<bool> {
    let config =
        fs::read_to_string(workspace_root().join("deny.toml")).context("cannot read deny.toml")?;
    let allowed = allowed(&config)?;
    let metadata = capture(&mut cargo(&[
        "metadata",
        "--locked",
        "--format-version",
        "1",
    ]))?;
    let packages = packages(&metadata)?;

    let mut ok = true;
    for (package, licence) in &packages {
        if let Err(error) = accept(licence.as_deref(), &allowed) {
            say(&format!("{package}: {error:#}"));
            ok = false;
        }
    }
    say(&format!(
        "licences: {} packages against deny.toml: {}",
        packages.len(),
        if ok { "ok" } else { "FAILED" }
    ));
    Ok(ok)
}

/// The list `licenses.allow` of a `deny.toml`.
fn allowed(config: &str) -> Result<Vec<Licensee>> {
    let config: toml::Table = config.parse().context("deny.toml")?;
    let list = config
        .get("licenses")
        .and_then(|licenses| licenses.get("allow")?.as_array())
        .context("deny.toml has no list licenses.allow")?;
    list.iter()
        .map(|name| {
            let name = name
                .as_str()
                .context("deny.toml: licenses.allow holds something other than a text")?;
            Licensee::parse(name).with_context(|| format!("deny.toml: licenses.allow: {name:?}"))
        })
        .collect()
}

/// Name with version, and licence, of each package in the output of `cargo metadata`.
fn packages(metadata: &str) -> Result<Vec<(String, Option<String>)>> {
    let metadata: Value = serde_json::from_str(metadata).context("cargo metadata")?;
    let packages = metadata["packages"]
        .as_array()
        .context("cargo metadata lists no packages")?;
    packages
        .iter()
        .map(|package| {
            let name = package["name"]
                .as_str()
                .context("cargo metadata: a package without a name")?;
            let version = package["version"].as_str().unwrap_or("?");
            let named = package["license"].as_str().map(str::to_owned);
            Ok((
                format!("{name} {version}"),
                named.or_else(|| licence_of_file(package)),
            ))
        })
        .collect()
}

/// The licence of a package that names only a file, if its text is known.
fn licence_of_file(package: &Value) -> Option<String> {
    let manifest = Path::new(package["manifest_path"].as_str()?);
    let file = manifest.parent()?.join(package["license_file"].as_str()?);
    let text = fs::read_to_string(file).ok()?;
    let known = fs::read_to_string(workspace_root().join("LICENSE-MIT")).ok()?;
    (terms(&text).is_some() && terms(&text) == terms(&known)).then(|| "MIT".to_owned())
}

/// The words of a licence from the permission on: without title and copyright, however broken
/// into lines.
fn terms(text: &str) -> Option<Vec<&str>> {
    let start = text.find("Permission is hereby granted")?;
    Some(text[start..].split_whitespace().collect())
}

/// Fails unless the expression can be met with allowed licences alone.
fn accept(licence: Option<&str>, allowed: &[Licensee]) -> Result<()> {
    let text = licence.context("states no licence")?;
    // Old packages write "MIT/Apache-2.0"; cargo-deny takes that as OR, too.
    let expression = Expression::parse_mode(text, ParseMode::LAX)
        .with_context(|| format!("licence {text:?} is no SPDX expression"))?;
    if !expression.evaluate(|wanted| allowed.iter().any(|licence| licence.satisfies(wanted))) {
        bail!("licence {text:?} is not allowed by deny.toml");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "[licenses]\nallow = ['MIT', 'Apache-2.0', 'Unicode-3.0']";

    #[test]
    fn expressions_are_met_by_allowed_licences_alone() {
        let allowed = allowed(CONFIG).unwrap();
        for good in [
            "MIT",
            "MIT OR Apache-2.0",
            "MIT/Apache-2.0",
            "GPL-3.0-only OR MIT",
            "(MIT OR Zlib) AND Unicode-3.0",
        ] {
            assert!(accept(Some(good), &allowed).is_ok(), "{good}");
        }
        for bad in [
            "GPL-3.0-only",
            "MIT AND Zlib",
            "Apache-2.0 WITH LLVM-exception",
            "free for all",
            "",
        ] {
            assert!(accept(Some(bad), &allowed).is_err(), "{bad}");
        }
        assert!(accept(None, &allowed).is_err());
    }

    #[test]
    fn a_licence_file_is_known_by_its_words() {
        let known = fs::read_to_string(workspace_root().join("LICENSE-MIT")).unwrap();
        let other = format!("MIT License\r\n\r\n{}", known.replace('\n', "\r\n"));
        assert!(terms(&known).is_some());
        assert_eq!(terms(&other), terms(&known));
        assert_ne!(
            terms(&known.replace("free of charge", "for a fee")),
            terms(&known)
        );
        assert_eq!(terms("all rights reserved"), None);
    }

    #[test]
    fn a_list_that_is_missing_or_wrong_is_an_error() {
        for bad in [
            "",
            "[licenses]",
            "[licenses]\nallow = 3",
            "[licenses]\nallow = [3]",
            "[licenses]\nallow = ['Mitt']",
        ] {
            assert!(allowed(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_shipped_list_reads() {
        let config = fs::read_to_string(workspace_root().join("deny.toml")).unwrap();
        assert!(!allowed(&config).unwrap().is_empty());
    }
}
