//! Where answers go: all of it, or nothing.

use crate::LabError;
use std::fs::Permissions;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

/// Writes a complete answer to `path`, or to `out`.
pub(super) fn deliver(
    answer: &[u8],
    path: Option<&Path>,
    out: &mut dyn Write,
) -> Result<(), LabError> {
    let result = match path {
        Some(path) => replace(path, answer),
        None => match out.write_all(answer).and_then(|()| out.flush()) {
            // Whoever reads has seen enough.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            result => result,
        },
    };
    result.map_err(|source| LabError::Output {
        path: path.map(Path::to_owned),
        source,
    })
}

/// Writes beside the file, and moves it there when it is complete.
fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let beside = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    if let Some(permissions) = as_any_new_file() {
        builder.permissions(permissions);
    }
    let mut file = builder.tempfile_in(beside)?;
    file.write_all(content)?;
    file.persist(path)?;
    Ok(())
}

/// A temporary file is its owner's alone, and an answer is not: the umask decides.
#[cfg(unix)]
fn as_any_new_file() -> Option<Permissions> {
    use std::os::unix::fs::PermissionsExt;
    Some(Permissions::from_mode(0o666))
}

#[cfg(not(unix))]
fn as_any_new_file() -> Option<Permissions> {
    None
}
