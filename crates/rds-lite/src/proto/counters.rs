//! What has happened, counted under the kernel's names.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// Events of a host since it was made. All only grow. Names and meaning are the kernel's
        /// (`rds-info -c`), except for those that begin with `lite_`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)+
        }

        impl Counters {
            /// Names and values, in the order of `rds-info -c`.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)+].into_iter()
            }
        }
    };
}

counters! {
    /// Links lost.
    conn_reset,
    /// Headers whose checksum was wrong.
    recv_drop_bad_checksum,
    /// Messages that had arrived before.
    recv_drop_old_seq,
    /// Messages to a port without a socket.
    recv_drop_no_sock,
    /// Messages to a socket that was being closed.
    recv_drop_dead_sock,
    /// Messages handed to applications.
    recv_delivered,
    /// Messages queued at sockets.
    recv_queued,
    /// Messages that asked for an acknowledgement.
    recv_ack_required,
    /// Bytes that peers say they have moved by RDMA.
    recv_rdma_bytes,
    /// Pings.
    recv_ping,
    /// Times that a connection had nothing to send.
    send_queue_empty,
    /// Sends refused for want of room.
    send_queue_full,
    /// Times that a thread found another sending on the connection.
    send_lock_contention,
    /// Times that what the fabric could not take was sent later.
    send_delayed_retry,
    /// Messages that were about to be sent again when their acknowledgement came.
    send_drop_acked,
    /// Messages sent that ask for an acknowledgement.
    send_ack_required,
    /// Messages queued.
    send_queued,
    /// RDMA operations queued.
    send_rdma,
    /// Their bytes.
    send_rdma_bytes,
    /// Pings answered.
    send_pong,
    /// Bytes copied to applications.
    copy_to_user,
    /// Bytes copied from applications.
    copy_from_user,
    /// Congestion maps queued.
    cong_update_queued,
    /// Congestion maps received.
    cong_update_received,
    /// Sends refused since the destination is congested.
    cong_send_error,
    /// Sends that waited for a congested destination.
    cong_send_blocked,
    /// Bytes queued at sockets.
    recv_bytes_added_to_sock,
    /// Bytes taken from sockets.
    recv_bytes_freed_fromsock,
    /// Acknowledgements sent by themselves.
    ib_ack_sent,
    /// Acknowledgements that had to wait for the end of the one before.
    ib_ack_send_delayed,
    /// Acknowledgements sent on messages.
    ib_ack_send_piggybacked,
    /// Acknowledgements received.
    ib_ack_received,
    /// Dials that crossed a dial of the peer.
    ib_connect_raced,
    /// Compare-and-swaps queued.
    ib_atomic_cswp,
    /// Fetch-and-adds queued.
    ib_atomic_fadd,
    /// Dials that a peer rejected.
    lite_dials_rejected,
    /// Introductions of peers that could not be used: no common version, or other addresses.
    lite_bad_introductions,
    /// Messages sent again.
    lite_retransmitted,
    /// Messages shed for want of receive buffers. Those of peers come again, unless the peer is a kernel and its
    /// TCP connection had ended; those from this host do not, and the sender is told.
    lite_shed,
    /// Times that nothing was read from a kernel's TCP connection for want of receive buffers: what is
    /// shed does not come again there.
    lite_stalled,
    /// Extension headers of unknown type.
    lite_unknown_ext,
    /// Congestion maps of a wrong size, or with other flags than a map has.
    lite_bad_map,
    /// Connections refused since there were too many.
    lite_refused_connections,
    /// Peers forgotten to make room for others.
    lite_forgotten_peers,
    /// Times that a peer came back with another boot generation.
    lite_peer_restarts,
    /// Reports that nobody read, dropped to make room for newer ones.
    lite_notes_dropped,
    /// Pings not answered since too many waited.
    lite_pings_ignored,
}
