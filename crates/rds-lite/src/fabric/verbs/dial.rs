//! Dialling.

use super::link::VerbsLink;
use super::{Shared, lock};
use crate::fabric::Sink;
use crate::proto::{LinkId, Path};
use mr_verbs::cm::{Dial, DialError, Dialled, RejectReason, Waker, dial};
use std::net::{IpAddr, SocketAddrV4};
use std::sync::{Arc, Weak};

/// Makes a link. Runs in a thread of its own, which the link then has.
pub(super) fn run(
    shared: &Arc<Shared>,
    id: LinkId,
    path: Path,
    introduction: &[u8],
    sink: Weak<dyn Sink>,
) {
    let dialled = connect(shared, id, path, introduction);
    lock(&shared.dials).remove(&id);
    let Dialled {
        connection,
        poller,
        private_data,
        ..
    } = match dialled {
        Ok(dialled) => dialled,
        Err(error) => {
            tracing::debug!(%path, %error, "dial failed");
            return fail(shared, id, &error, &sink);
        }
    };
    let link = VerbsLink::new(id, connection, sink);
    let known = shared.enter(id, &link);
    let host = link.host().filter(|_| known);
    let wanted = host.is_some_and(|host| host.opened(id, &private_data, Arc::clone(&link) as _));
    if !wanted {
        link.end();
    }
    link.run(shared, poller, true);
    shared.leave(id);
}

fn connect(
    shared: &Shared,
    id: LinkId,
    path: Path,
    introduction: &[u8],
) -> Result<Dialled, DialError> {
    let (IpAddr::V4(local), IpAddr::V4(remote)) = (path.local, path.remote) else {
        return Err(DialError::Cancelled);
    };
    let waker = Waker::new()?;
    lock(&shared.dials).insert(id, waker.clone());
    if shared.is_stopped() {
        return Err(DialError::Cancelled);
    }
    let wanted = Dial {
        local,
        remote: SocketAddrV4::new(remote, shared.config.port),
        private_data: introduction,
        timeout: shared.config.connect_timeout,
    };
    dial(&shared.domain, &wanted, &shared.config.connection, &waker)
}

fn fail(shared: &Shared, id: LinkId, error: &DialError, sink: &Weak<dyn Sink>) {
    let Some(host) = sink.upgrade().filter(|_| !shared.is_stopped()) else {
        return;
    };
    match error {
        DialError::Rejected {
            reason: RejectReason::Application,
            private_data,
        } => host.rejected(id, private_data),
        _ => host.lost(id),
    }
}
