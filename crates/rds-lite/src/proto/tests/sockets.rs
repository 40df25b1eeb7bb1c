//! What a socket leaves behind, and what becomes of a message in its own host.

use super::*;

#[test]
fn a_closed_socket_waits_for_nothing_any_more() {
    let mut pair = Pair::new(|config| config.receive_buffer = 1000);
    pair.send(&[0; 2000]);
    pair.run(all);
    // One after the other they find the port congested, and close.
    for port in 100..200 {
        let own = SocketAddr::new(ip(0), port);
        let sock = pair.cores[0].bind(own).unwrap();
        let refused = pair.cores[0].writable(pair.now, sock, addr(1));
        assert!(matches!(refused, Err(SendError::Congested(_))));
        pair.cores[0].close(sock);
    }
    assert!(pair.conn(0).waiters.is_empty());
}

#[test]
fn a_message_in_its_own_host_that_finds_no_buffer_is_reported_as_such() {
    let mut pair = Pair::new(|config| config.receive_budget = 2 << 20);
    let (sock, now) = (pair.socks[0], pair.now);
    let core = &mut pair.cores[0];
    // The application holds on to all of it.
    let held = [(); 2].map(|()| core.buffers.get(1 << 20).unwrap());
    let send = |core: &mut Core| {
        let mut message = Sending {
            payload: Bytes::from_static(b"self"),
            ..Sending::default()
        };
        core.send(now, sock, addr(0), &mut message).unwrap()
    };
    let id = send(core);
    let (to, reason) = (addr(0), FailReason::NoBuffer);
    let note = Notification::SendFailed { to, id, reason };
    assert_eq!(core.next_note(sock), Some(note));
    assert_eq!(core.counters.lite_shed, 1);
    drop(held);
    send(core);
    assert_eq!(&*core.receive(sock).unwrap().payload, b"self");
}
