//! The `rds` tool as its users run it.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of a test function"
)]

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Command, Output};

fn rds(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rds"));
    command.args(arguments.split_whitespace());
    command
}

fn run(arguments: &str) -> Output {
    rds(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    let mut all = String::from_utf8(output.stdout.clone()).unwrap();
    all.push_str(std::str::from_utf8(&output.stderr).unwrap());
    all
}

fn summary(output: &Output) -> Value {
    let text = text(output);
    assert!(output.status.success(), "{text}");
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

#[test]
fn stress_alone_runs_verifies_and_reports() {
    let output = run("stress -T 0.3 -d 4 -t 2");
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("tx us/c   rtt us cpu %"), "{text}");
    assert!(
        text.contains("(average)") && text.contains("messages verified"),
        "{text}"
    );
}

#[test]
fn stress_moves_memory_under_every_kind_of_policy_and_shows_the_exposure() {
    for (policy, flags) in [
        ("immediate", ""),
        ("immediate", "--rdma-use-once 1 --rdma-invalidate 1"),
        ("use-once,threshold=25%", "--rdma-use-once 1"),
        ("max-exposure=5ms", "--rdma-use-fence 0"),
        ("rds-frmr", "--rdma-invalidate 1 -M 1"),
        ("immediate", "--rdma-cache-mrs 1 -M 2"),
        ("use-n=4", "--hca connectx-2008"),
        ("immediate", "-I 512"),
        ("rds-frmr", "-I 3 --rdma-use-fence 0"),
    ] {
        let load = "stress -T 0.3 -d 4 -D 16K -z --format json --regions 64";
        let output = run(&format!("{load} --policy {policy} {flags}"));
        let summary = summary(&output);
        assert_eq!(summary["failures"], Value::Array(Vec::new()));
        assert!(summary["mbi K/s"].as_f64().unwrap() + summary["mbo K/s"].as_f64().unwrap() > 0.0);
        let pool = &summary["pools"][0];
        assert!(
            pool["ib_rdma_mr_used"].as_u64().unwrap() > 0,
            "{policy}: {pool}"
        );
        assert!(pool["longest_exposure_us"].is_number() && pool["key_seconds"].is_number());
        assert_eq!(summary["policy"], policy);
    }
}

#[test]
fn stress_tells_what_connections_do_if_asked_to() {
    let output = run("stress -T 0.1 -V -z");
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{told}");
    assert!(told.contains("connection") && told.contains("up"), "{told}");
    assert!(run("stress -T 0.1 -z").stderr.is_empty());
}

/// A port that was free a moment ago.
fn port() -> u16 {
    let listener = TcpListener::bind("127.0.5.9:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
fn stress_runs_between_two_processes_over_tcp() {
    // Once with the address of the active side found by itself, once one way, once named and larger
    // messages.
    for (passive, active, load) in [
        ("127.0.5.1", "", "-d 8 -v"),
        ("127.0.5.1", "", "-d 8 -o -q 100000"),
        ("127.0.5.3", "-r 127.0.5.2", "-d 2 -t 2 -q 1M -a 1M -v"),
    ] {
        // The ports of the tasks are RDS's, not TCP's.
        let (control, rds_port) = (port(), port());
        let ports = format!("-p {control} --rds-port {rds_port} --format json -z");
        let waiting = rds(&format!("stress -r {passive} {ports}"))
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let output = run(&format!(
            "stress -s {passive} {active} {ports} {load} -T 0.5 --connect-retries 20"
        ));
        let near = summary(&output);
        let far = summary(&waiting.wait_with_output().unwrap());
        for side in [near, far] {
            assert_eq!(side["failures"], Value::Array(Vec::new()));
            assert!(side["rx/s"].as_u64().unwrap() > 0, "{side}");
        }
    }
}

#[test]
fn ping_and_info_tell_what_they_see() {
    let output = run("ping -c 3 -i 0.01");
    assert!(output.status.success());
    assert_eq!(text(&output).matches(" usec").count(), 3);
    let output = run("info -c -n -p");
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    for word in [
        "send_queued",
        "RDS Connections",
        "-C",
        "ib_rdma_mr_alloc",
        "clean",
    ] {
        assert!(text.contains(word), "{word} is not in {text}");
    }
}

#[test]
fn a_ping_shows_its_hosts_meanwhile_if_told_where() {
    let at = format!("127.0.5.9:{}", port());
    let mut pinging = rds(&format!("ping -i 0.05 --info {at}"))
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    // It serves before it pings, so with its first line there is something to see.
    let mut line = String::new();
    let mut lines = BufReader::new(pinging.stdout.take().unwrap());
    lines.read_line(&mut line).unwrap();
    let output = run(&format!("info --format json {at}"));
    pinging.kill().unwrap();
    pinging.wait().unwrap();
    assert!(line.contains("usec"), "{line}");
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    let hosts: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let [near, far] = &hosts[..] else {
        panic!("two hosts ping each other: {text}");
    };
    assert_eq!(near["connections"][0]["remote"], "10.0.0.2", "{near}");
    assert_eq!(far["connections"][0]["remote"], "10.0.0.1", "{far}");
    assert_eq!(near["connections"][0]["up"], true, "{near}");
}

#[test]
fn info_shows_what_a_host_on_the_network_is_to_this_one() {
    let (control, rds_port) = (port(), port());
    let stress = |line: &str| {
        rds(&format!("stress {line} -p {control} --rds-port {rds_port}"))
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut sides = [
        stress("-r 127.0.5.7"),
        stress("-r 127.0.5.8 -s 127.0.5.7 -d 1 -T 60 --connect-retries 20"),
    ];
    let output = run(&format!(
        "info --fabric tcp --rds-port {rds_port} --format json --wait 20 --source 127.0.5.6 127.0.5.7"
    ));
    for side in &mut sides {
        side.kill().unwrap();
        side.wait().unwrap();
    }
    let host = summary(&output);
    let connection = &host["connections"][0];
    assert_eq!(connection["remote"], "127.0.5.7", "{host}");
    assert_eq!(connection["up"], true, "{host}");
    // Nobody is there any more.
    let output = run(&format!(
        "info --rds-port {rds_port} -n --wait 0.5 --source 127.0.5.6 127.0.5.7"
    ));
    let text = text(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("127.0.5.7"), "{text}");
}

#[test]
fn bad_input_is_refused_with_a_sentence() {
    for (arguments, sentence) in [
        ("stress -q 10", "-q must be from 63 to 1M"),
        ("stress -q 2M", "-q must be from 63 to 1M"),
        ("stress -D 64K -I 513", "-I must be from 1 to 512"),
        ("stress -D 15 -I 2", "-D to be at least 16"),
        ("stress -R", "chrt --rr 1"),
        ("stress -Q 1", "only 0"),
        ("stress --rdma-use-get-mr 0", "only 1"),
        ("stress -D 1K --policy no-such-policy", "no-such-policy"),
        ("stress --fabric tcp", "`rds stress` -r for this one"),
        (
            "stress --fabric mock -r 127.0.0.1",
            "leave out the addresses",
        ),
        ("stress -s 127.0.5.77 -p 9", "nobody waits at"),
        ("stress -D 64K -s 127.0.0.1", "no RDMA"),
        ("stress --rdma-use-once 1 --rdma-cache-mrs 1", "contradict"),
        ("info 127.0.5.77:9", "nobody serves at"),
        ("info 127.0.5.77:9 --fabric tcp", "whatever its fabric"),
        ("info --fabric tcp", "that of a host"),
        ("info 127.0.5", "ADDR of a host"),
        ("info --fabric mock 127.0.0.1", "leave out the addresses"),
        ("stress -T x", "no number of seconds"),
        ("stress --hca no-such-hca", "no-such-hca"),
    ] {
        let output = run(arguments);
        let text = text(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {text}");
        assert!(text.contains(sentence), "{arguments}: {text}");
        assert!(!text.contains("panicked"), "{text}");
    }
}
