//! Messages over rds-lite's sockets, sent without a copy, on hosts with default settings.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use mr_core::SystemClock;
use rds_lite::fabric::mock::MockNetwork;
use rds_lite::fabric::tcp::{TcpConfig, TcpFabric};
use rds_lite::proto::Received;
use rds_lite::{Host, Socket};

use super::load::{End, Ends, LIMIT};

/// The RDS port of both ends.
const PORT: u16 = 4000;

struct Rds {
    socket: Socket,
    peer: SocketAddr,
    corked: bool,
    message: Bytes,
    received: Option<Received>,
}

/// Two hosts over TCP on addresses of loopback network `net`, which nobody else may use meanwhile.
pub(super) fn tcp_pair(size: usize, corked: bool, net: u8) -> Result<Ends> {
    let ips = [1, 2].map(|host| IpAddr::V4(Ipv4Addr::new(127, 9, net, host)));
    let mut config = TcpConfig::default();
    // One that is free at the first address is taken to be free at the second.
    config.port = TcpListener::bind((ips[0], 0))?.local_addr()?.port();
    let host = || Host::builder(TcpFabric::new(config.clone())).build();
    pair([host()?, host()?], ips, size, corked)
}

/// Two hosts over the mock fabric, without faults or delay.
pub(super) fn mock_pair(size: usize) -> Result<Ends> {
    let clock = Arc::new(SystemClock::new());
    let network = MockNetwork::new(clock.clone(), 0);
    let host = || {
        let host = Host::builder(network.fabric(None));
        host.clock(clock.clone()).build()
    };
    let ips = [1, 2].map(|host| IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)));
    pair([host()?, host()?], ips, size, true)
}

fn pair(hosts: [Host; 2], ips: [IpAddr; 2], size: usize, corked: bool) -> Result<Ends> {
    let [near, far] = ips.map(|ip| SocketAddr::new(ip, PORT));
    let mut near_end = Rds::new(&hosts[0], near, far, size, corked)?;
    let mut far_end = Rds::new(&hosts[1], far, near, size, corked)?;
    // The connection is made before anything is measured.
    near_end.mark()?;
    let len = far_end.receive().context("no connection was made")?;
    ensure!(len == 0, "{len} bytes rather than a mark");
    Ok([Box::new(near_end), Box::new(far_end)])
}

impl Rds {
    fn new(
        host: &Host,
        addr: SocketAddr,
        peer: SocketAddr,
        size: usize,
        corked: bool,
    ) -> Result<Self> {
        let socket = host.bind(addr);
        let socket = socket.with_context(|| format!("cannot bind {addr}"))?;
        socket.set_send_timeout(Some(LIMIT));
        socket.set_receive_timeout(Some(LIMIT));
        socket.set_corked(corked);
        Ok(Self {
            socket,
            peer,
            corked,
            message: Bytes::from(vec![1; size]),
            received: None,
        })
    }
}

impl End for Rds {
    fn send(&mut self) -> Result<()> {
        self.socket.send_bytes(self.message.clone(), self.peer)?;
        Ok(())
    }

    fn receive(&mut self) -> Result<usize> {
        // Its buffer goes back before the next is waited for.
        self.received = None;
        let received = self.socket.recv_message()?;
        let len = received.payload.len();
        self.received = Some(received);
        Ok(len)
    }

    fn answer(&mut self) -> Result<()> {
        let received = self.received.take().context("nothing was received")?;
        let message = Bytes::from_owner(received.payload);
        self.socket.send_bytes(message, self.peer)?;
        Ok(())
    }

    fn mark(&mut self) -> Result<()> {
        self.socket.send_bytes(Bytes::new(), self.peer)?;
        self.socket.set_corked(false);
        self.socket.set_corked(self.corked);
        Ok(())
    }
}
