//! The soak, in short: real threads, the real clock, the flusher on, faults on.

#[path = "../examples/soak.rs"]
#[allow(dead_code, reason = "its main is not called")]
mod soak;

#[test]
fn counters_return_to_zero_and_no_key_comes_back_while_stale() {
    let mut out = Vec::new();
    for seed in 1..=3 {
        soak::soak(60_000, 4, seed, &mut out).unwrap();
    }
    assert!(String::from_utf8_lossy(&out).contains("every counter back at zero"));
}
