//! The policies that the parser knows, so that none is left out of the tests over all of them.

use mr_policies::{ParseErrorKind, Policy, syntax};

/// The name of every form in [`syntax`], which is the parser's own list. Those of [`Named`](mr_policies::Named)
/// are not among them.
pub(crate) fn forms() -> Vec<String> {
    let syntax = syntax().to_string();
    let words = syntax.lines().filter_map(|line| line.split(' ').next());
    let names = words.map(|word| word.split('=').next().unwrap_or_default());
    // The lines about names and about combinations begin with no policy.
    let known = |name: &&str| {
        let error = name.parse::<Policy>().err();
        error.is_none_or(|error| *error.kind() != ParseErrorKind::UnknownPolicy)
    };
    let forms: Vec<String> = names.filter(known).map(str::to_owned).collect();
    assert_eq!(forms.len(), syntax.lines().count() - 2, "{syntax}");
    forms
}

/// Whether `text` is a policy of this form.
pub(crate) fn is_of(text: &str, form: &str) -> bool {
    text.split('=').next() == Some(form)
}
