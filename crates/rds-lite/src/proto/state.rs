//! The states of a connection, declared once.

use std::fmt;

/// Where a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkState {
    /// No link. A dial follows, at once or after a pause, if there is any use for one.
    Down,
    /// The fabric is making a link.
    Connecting,
    /// There is a link, and the peer has not said yet who it is.
    Greeting,
    /// Messages flow.
    Up,
    /// The host is shut down: terminal.
    Closed,
}

/// What happens to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkEvent {
    /// This side asks the fabric for a link.
    Dial,
    /// The peer asks for a link, and is to get it.
    Asked,
    /// The fabric has the link that either side has dialled.
    Opened,
    /// The peer has said who it is, or does not do so.
    Greeted,
    /// The link is gone, could not be made, or something on it was wrong.
    Lost,
    /// The host shuts down.
    Close,
}

use LinkEvent::{Asked, Close, Dial, Greeted, Lost, Opened};
use LinkState::{Closed, Connecting, Down, Greeting, Up};

/// Every transition there is. What is not here does not happen.
const TABLE: [(LinkState, LinkEvent, LinkState); 15] = [
    (Down, Dial, Connecting),
    (Down, Asked, Connecting),
    // Both have dialled, or the peer has given up what it had asked for.
    (Connecting, Asked, Connecting),
    (Connecting, Opened, Greeting),
    (Connecting, Lost, Down),
    (Greeting, Greeted, Up),
    // The peer has lost the link and made another before this side noticed.
    (Greeting, Asked, Connecting),
    (Greeting, Lost, Down),
    (Up, Asked, Connecting),
    (Up, Lost, Down),
    (Down, Close, Closed),
    (Connecting, Close, Closed),
    (Greeting, Close, Closed),
    (Up, Close, Closed),
    (Closed, Close, Closed),
];

impl LinkState {
    /// All states.
    pub const ALL: [Self; 5] = [Down, Connecting, Greeting, Up, Closed];

    /// The state after `event`; `None` if it cannot happen in this state.
    pub fn after(self, event: LinkEvent) -> Option<Self> {
        let row = TABLE.iter().find(|row| row.0 == self && row.1 == event);
        row.map(|row| row.2)
    }

    /// Whether there is a link.
    pub const fn has_link(self) -> bool {
        matches!(self, Greeting | Up)
    }

    /// The letters by which rds-info shows it.
    pub const fn letters(self) -> &'static str {
        match self {
            Down => "--",
            Connecting | Greeting => "-c",
            Up => "-C",
            Closed => "-E",
        }
    }
}

impl LinkEvent {
    /// All events.
    pub const ALL: [Self; 6] = [Dial, Asked, Opened, Greeted, Lost, Close];
}

impl fmt::Display for LinkState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Down => "down",
            Connecting => "connecting",
            Greeting => "greeting",
            Up => "up",
            Closed => "closed",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_everything_once() {
        for (place, row) in TABLE.iter().enumerate() {
            let twin = TABLE[place + 1..]
                .iter()
                .find(|other| (other.0, other.1) == (row.0, row.1));
            assert_eq!(twin, None);
        }
    }

    #[test]
    fn every_error_leads_to_a_reconnect_or_to_the_end() {
        for state in LinkState::ALL {
            // From wherever a connection is, whatever goes wrong...
            let after = state.after(Lost).unwrap_or(state);
            // ...it can be dialled again or accept a dial, unless the host is shut down.
            match after {
                Down => assert_eq!(after.after(Dial), Some(Connecting)),
                Closed => assert!(
                    LinkEvent::ALL
                        .iter()
                        .all(|&event| { after.after(event).is_none_or(|next| next == Closed) })
                ),
                other => panic!("{other} outlives its link"),
            }
            assert_eq!(state.after(Close), Some(Closed));
        }
    }

    #[test]
    fn up_is_reached_only_through_a_greeting() {
        for state in LinkState::ALL {
            for event in LinkEvent::ALL {
                if state.after(event) == Some(Up) {
                    assert_eq!((state, event), (Greeting, Greeted));
                }
            }
        }
    }
}
