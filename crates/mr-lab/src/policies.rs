//! Which policies are compared if nobody says.

use crate::LabError;
use mr_policies::{Named, Policy};

/// Some of each kind, besides the named ones.
const COMPARED: [&str; 8] = [
    "use-once",
    "use-n=32",
    "threshold=4000",
    "threshold=99",
    "periodic=4s",
    "max-exposure=100ms",
    "adaptive=5key-s",
    "immediate",
];

/// What `compare` runs by default.
///
/// # Errors
///
/// None: the texts are constants, and a test reads them.
pub fn compared() -> Result<Vec<Policy>, LabError> {
    let named = Named::ALL.into_iter().map(Named::name);
    let texts = COMPARED.into_iter().chain(named);
    texts.map(|text| Ok(text.parse()?)).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn all_can_be_read() {
        assert_eq!(super::compared().unwrap().len(), 15);
    }
}
