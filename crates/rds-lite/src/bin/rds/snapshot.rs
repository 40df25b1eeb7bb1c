//! The state of a host as JSON, and a small server for it.

use anyhow::{Context, Result};
use rds_lite::Host;
use rds_lite::proto::{LinkState, QueueKind};
use serde_json::{Value, json};
use std::io::Write;
use std::net::{SocketAddr, TcpListener};

/// All that `rds info` can show of a host.
pub(crate) fn of(host: &Host) -> Value {
    let counters: Vec<Value> = host
        .counters()
        .iter()
        .map(|(name, value)| json!([name, value]))
        .collect();
    let sockets: Vec<Value> = host
        .sockets()
        .iter()
        .map(|socket| {
            json!({
                "bound": socket.bound,
                "receive_buffer": socket.receive_buffer,
                "send_buffer": socket.send_buffer,
                "receive_queue": socket.receive_queue,
                "receive_queue_bytes": socket.receive_queue_bytes,
                "send_queue_bytes": socket.send_queue_bytes,
                "regions": socket.regions,
            })
        })
        .collect();
    let connections: Vec<Value> = host
        .connections()
        .iter()
        .map(|conn| {
            let sending = if conn.send_queue > 0 { "s" } else { "-" };
            json!({
                "local": conn.path.local,
                "remote": conn.path.remote,
                "flags": format!("{sending}{}", conn.state.letters()),
                "up": conn.state == LinkState::Up,
                "next_tx_seq": conn.next_tx_seq,
                "next_rx_seq": conn.next_rx_seq,
                "links": conn.links,
                "version": conn.version.to_string(),
                "credits": conn.credits,
            })
        })
        .collect();
    let messages: Vec<Value> = host
        .messages()
        .iter()
        .map(|message| {
            json!({
                "queue": match message.queue {
                    QueueKind::Send => "send",
                    QueueKind::Retransmit => "retransmit",
                    QueueKind::Receive => "receive",
                },
                "local": message.local,
                "remote": message.remote,
                "sequence": message.sequence,
                "bytes": message.bytes,
            })
        })
        .collect();
    json!({
        "counters": counters,
        "sockets": sockets,
        "connections": connections,
        "messages": messages,
        "receive_memory": host.receive_memory(),
        "keys_reissued_while_stale": host.keys_reissued_while_stale(),
        "pool": pool(host),
    })
}

/// The pool's gauges and counters, under the kernel's names where it has them.
pub(crate) fn pool(host: &Host) -> Value {
    let Some(stats) = host.pool_stats() else {
        return Value::Null;
    };
    json!({
        "ib_rdma_mr_alloc": stats.regions.total(),
        "ib_rdma_mr_free": stats.regions.freed,
        "ib_rdma_mr_used": stats.leases,
        "ib_rdma_mr_pool_flush": stats.flushes,
        "ib_rdma_mr_pool_wait": stats.waits,
        "ib_rdma_mr_pool_depleted": stats.depleted,
        "ib_rdma_mr_reused": stats.reused,
        "clean": stats.regions.clean,
        "leased": stats.regions.leased,
        "reusable": stats.regions.reusable,
        "worn": stats.regions.worn,
        "in_flush": stats.regions.in_flush,
        "quarantined": stats.regions.quarantined,
        "stale_keys": stats.stale.keys,
        "stale_bytes": stats.stale.bytes,
        "peak_stale_keys": stats.peak_stale.keys,
        "regions_per_flush": stats.regions_per_flush(),
        "longest_exposure_us": stats.exposure.longest.as_secs_f64() * 1e6,
        "key_seconds": stats.exposure.key_seconds,
        "byte_seconds": stats.exposure.byte_seconds,
    })
}

/// Answers everyone who connects to `addr` with a snapshot, until the process ends.
pub(crate) fn serve(addr: SocketAddr, hosts: Vec<Host>) -> Result<()> {
    let listener = TcpListener::bind(addr).with_context(|| format!("cannot serve at {addr}"))?;
    std::thread::Builder::new()
        .name("rds-info".into())
        .spawn(move || {
            for stream in listener.incoming() {
                let all: Vec<Value> = hosts.iter().map(of).collect();
                // Whoever asks and goes away has only himself to blame.
                let _ = stream.and_then(|mut stream| writeln!(stream, "{}", json!(all)));
            }
        })?;
    Ok(())
}
