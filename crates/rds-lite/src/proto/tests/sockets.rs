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
