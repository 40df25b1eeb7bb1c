//! Dialling.

use super::Shared;
use super::link::VerbsLink;
use crate::fabric::Sink;
use crate::proto::{LinkId, Path};
use mr_verbs::cm::{Dial, DialError, Dialled, RejectReason, Waker, prepare};
use std::net::{IpAddr, SocketAddrV4};
use std::sync::{Arc, Weak};

/// Makes a link. Runs in a thread of its own, which the link then has.
pub(super) fn run(
    shared: &Arc<Shared>,
    id: LinkId,
    path: Path,
    (introduction, cancel): (&[u8], &Waker),
    sink: Weak<dyn Sink>,
) {
    let Dialled {
        connection,
        poller,
        private_data,
        ..
    } = match connect(shared, (id, path), introduction, cancel, &sink) {
        Ok(dialled) => dialled,
        Err(error) => {
            tracing::debug!(%path, %error, "dial failed");
            fail(shared, id, &error, &sink);
            return shared.dials.end(id, false);
        }
    };
    let link = VerbsLink::new(id, connection, &shared.threads, sink);
    let known = shared.enter(id, &link);
    let host = link.host().filter(|_| known);
    let wanted = host.is_some_and(|host| host.opened(id, &private_data, Arc::clone(&link) as _));
    shared.dials.end(id, wanted);
    if !wanted {
        link.end();
    }
    link.run(shared, poller, true);
    shared.leave(id);
}

fn connect(
    shared: &Shared,
    (id, path): (LinkId, Path),
    introduction: &[u8],
    cancel: &Waker,
    sink: &Weak<dyn Sink>,
) -> Result<Dialled, DialError> {
    let (IpAddr::V4(local), IpAddr::V4(remote)) = (path.local, path.remote) else {
        return Err(DialError::Cancelled);
    };
    if shared.is_stopped() {
        return Err(DialError::Cancelled);
    }
    let wanted = Dial {
        local,
        remote: SocketAddrV4::new(remote, shared.config.port),
        private_data: introduction,
        timeout: shared.config.connect_timeout,
    };
    let prepared = prepare(&shared.domain, &wanted, &shared.config.connection, cancel)?;
    let is_wanted = || sink.upgrade().is_some_and(|host| host.wants(id));
    let request = || is_wanted().then(|| prepared.request());
    match shared.dials.request(id, request) {
        Some(requested) => requested?.answer(cancel),
        None => Err(DialError::Cancelled),
    }
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
