//! What became of every message. The checker knows nothing of the system but what an application
//! sees.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// A socket, by the order of binding.
pub(crate) type Uid = u32;

/// Bytes of a tag: sender, number, and what names a cookie.
pub(crate) const TAG: usize = 12;

struct Message {
    to: SocketAddr,
    len: usize,
    id: u64,
    token: Option<u64>,
    delivered: bool,
    reported: bool,
    /// Its arrival may have gone unseen: a socket or a host ended on the way.
    excused: bool,
}

/// The messages of one sender.
struct Sender {
    ip: IpAddr,
    messages: Vec<Message>,
    open: bool,
}

#[derive(Default)]
pub(crate) struct Checker {
    senders: Vec<Sender>,
    /// The last number that a receiver has seen of a sender.
    last: BTreeMap<(Uid, Uid), u32>,
    pub(crate) delivered: u64,
    pub(crate) reported: u64,
}

fn pattern(sender: Uid, number: u32, at: usize) -> u8 {
    (sender as usize * 31 + number as usize * 7 + at) as u8
}

impl Checker {
    pub(crate) fn bound(&mut self, ip: IpAddr) -> Uid {
        self.senders.push(Sender {
            ip,
            messages: Vec::new(),
            open: true,
        });
        self.senders.len() as Uid - 1
    }

    /// The bytes of the next message of a sender.
    pub(crate) fn compose(&self, sender: Uid, len: usize, about: u32) -> Vec<u8> {
        let number = self.senders[sender as usize].messages.len() as u32;
        let mut bytes = Vec::with_capacity(len);
        for word in [sender, number, about] {
            bytes.extend(word.to_be_bytes());
        }
        let tail = (TAG..len.max(TAG)).map(|at| pattern(sender, number, at));
        bytes.extend(tail);
        bytes
    }

    /// The system has accepted that message.
    pub(crate) fn sent(
        &mut self,
        sender: Uid,
        to: SocketAddr,
        len: usize,
        id: u64,
        token: Option<u64>,
        excused: bool,
    ) {
        self.senders[sender as usize].messages.push(Message {
            to,
            len,
            id,
            token,
            delivered: false,
            reported: false,
            excused,
        });
    }

    /// A receiver has a message. Returns its sender, and what it is about.
    pub(crate) fn received(
        &mut self,
        receiver: Uid,
        at: SocketAddr,
        from: SocketAddr,
        bytes: &[u8],
    ) -> (Uid, u32) {
        let word = |place: usize| u32::from_be_bytes(bytes[4 * place..][..4].try_into().unwrap());
        let (sender, number, about) = (word(0), word(1), word(2));
        let known = &mut self.senders[sender as usize];
        assert_eq!(known.ip, from.ip(), "from another host than it says");
        let message = &mut known.messages[number as usize];
        assert_eq!(message.to, at, "{sender}/{number} went to the wrong socket");
        assert_eq!(
            message.len,
            bytes.len(),
            "{sender}/{number} has another length"
        );
        let intact = (TAG..bytes.len()).all(|at| bytes[at] == pattern(sender, number, at));
        assert!(intact, "{sender}/{number} was changed on the way");
        assert!(!message.delivered, "{sender}/{number} was delivered twice");
        message.delivered = true;
        self.delivered += 1;
        if let Some(last) = self.last.insert((sender, receiver), number) {
            assert!(
                last < number,
                "{sender}/{number} came after {sender}/{last}"
            );
        }
        (sender, about)
    }

    /// The system says that a message may not have arrived.
    pub(crate) fn failed(&mut self, sender: Uid, id: u64) {
        let messages = &mut self.senders[sender as usize].messages;
        let message = messages.iter_mut().find(|message| message.id == id);
        message
            .expect("a report of a message that was never sent")
            .reported = true;
        self.reported += 1;
    }

    /// The system says that an operation, and with it the message, may not have been done.
    pub(crate) fn op_failed(&mut self, sender: Uid, token: u64) {
        let messages = &mut self.senders[sender as usize].messages;
        let message = messages
            .iter_mut()
            .find(|message| message.token == Some(token));
        message
            .expect("a report of an operation that was never posted")
            .reported = true;
        self.reported += 1;
    }

    /// A socket has ended: what was on its way to it is lost, as in the kernel; and what it had
    /// queued itself is taken back.
    pub(crate) fn closed(&mut self, uid: Uid, addr: SocketAddr) {
        self.senders[uid as usize].open = false;
        for message in self.messages_to(addr.ip()) {
            if message.to == addr {
                message.excused = true;
            }
        }
    }

    /// A sender was told that a peer has begun anew: what it had acknowledged may be lost.
    pub(crate) fn told_of_restart(&mut self, sender: Uid, peer: IpAddr) {
        for message in &mut self.senders[sender as usize].messages {
            if message.to.ip() == peer {
                message.excused = true;
            }
        }
    }

    fn messages_to(&mut self, ip: IpAddr) -> impl Iterator<Item = &mut Message> {
        let all = self
            .senders
            .iter_mut()
            .flat_map(|sender| &mut sender.messages);
        all.filter(move |message| message.to.ip() == ip)
    }

    /// Nothing is under way any more: every message of a sender that is still there is accounted
    /// for.
    pub(crate) fn assert_complete(&self) {
        for (sender, known) in self.senders.iter().enumerate() {
            for (number, message) in known.messages.iter().enumerate() {
                let accounted = message.delivered || message.reported || message.excused;
                assert!(
                    accounted || !known.open,
                    "{sender}/{number} to {} has vanished",
                    message.to
                );
            }
        }
    }
}
