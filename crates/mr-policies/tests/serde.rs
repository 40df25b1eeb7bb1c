//! Policies in configuration files (feature `serde`).

use mr_policies::Policy;

#[test]
fn a_policy_is_its_text() {
    let policy: Policy = serde_json::from_str("\"use-n=32, threshold=25%\"").unwrap();
    let json = serde_json::to_string(&policy).unwrap();
    assert_eq!(json, "\"use-n=32,threshold=25%\"");
    assert_eq!(serde_json::from_str::<Policy>(&json).unwrap(), policy);
}

#[test]
fn a_bad_text_is_pointed_at() {
    let error = serde_json::from_str::<Policy>("\"use-n=0\"").unwrap_err();
    assert!(
        error
            .to_string()
            .contains("column 7: the value is out of range")
    );
    let error = serde_json::from_str::<Policy>("32").unwrap_err();
    assert!(error.to_string().contains("the text of a policy"));
}
