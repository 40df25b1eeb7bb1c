//! The presets that come with the crate.

macro_rules! shipped {
    ($($name:literal),+ $(,)?) => {
        const SHIPPED: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../presets/", $name, ".toml")))),+];
    };
}

shipped![
    "connectx-2008",
    "connectx-3",
    "connectx-3-frwr",
    "connectx-3-registration",
    "connectx-5",
    "connectx-5-window",
    "soft-roce",
];

pub(super) fn text(name: &str) -> Option<&'static str> {
    SHIPPED
        .iter()
        .find(|(shipped, _)| *shipped == name)
        .map(|(_, text)| *text)
}

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    SHIPPED.iter().map(|(name, _)| *name)
}
