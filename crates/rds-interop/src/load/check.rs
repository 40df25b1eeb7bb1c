//! Verifying what arrives.

use super::Messages;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// What order is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Every message, in order.
    Exact,
    /// In order, and nothing twice; some may be missing.
    Increasing,
}

/// Something that should not have come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wrong {
    /// From whom.
    pub from: SocketAddr,
    /// What about it.
    pub what: String,
}

/// What has come from one sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// How many messages.
    pub messages: u64,
    /// How many bytes.
    pub bytes: u64,
    /// The number of the first.
    pub first: Option<u64>,
    /// The number of the last.
    pub last: Option<u64>,
    /// How often some were missing before the next.
    pub gaps: u64,
}

struct Expected {
    messages: Messages,
    /// The number that comes next, or at least that.
    next: u64,
    receipt: Receipt,
}

/// Verifies messages of several senders.
pub struct Checker {
    order: Order,
    senders: BTreeMap<SocketAddr, Expected>,
    /// What is compared with, to be used again.
    scratch: Vec<u8>,
}

impl Checker {
    /// Expects these messages of these senders.
    #[must_use]
    pub fn new(senders: &[(SocketAddr, Messages)], order: Order) -> Self {
        let expect = |(from, messages): &(SocketAddr, Messages)| {
            let expected = Expected {
                messages: messages.clone(),
                next: messages.first,
                receipt: Receipt::default(),
            };
            (*from, expected)
        };
        Self {
            order,
            senders: senders.iter().map(expect).collect(),
            scratch: Vec::new(),
        }
    }

    /// Takes a message.
    ///
    /// # Errors
    ///
    /// It is not the one that should come.
    pub fn take(&mut self, from: SocketAddr, message: &[u8]) -> Result<(), Wrong> {
        let wrong = |what: String| Err(Wrong { from, what });
        let Some(expected) = self.senders.get_mut(&from) else {
            return wrong(format!("{} bytes from a stranger", message.len()));
        };
        let (next, end) = (expected.next, expected.messages.end());
        let number = match self.order {
            Order::Exact => next,
            Order::Increasing => match Messages::number_of(message) {
                Some(number) => number,
                None => return wrong(format!("{} bytes without a number", message.len())),
            },
        };
        if number < next {
            return wrong(format!("message {number} again, where {next} should come"));
        }
        if number >= end {
            return wrong(format!(
                "{} bytes more, after all {} messages",
                message.len(),
                expected.messages.count
            ));
        }
        expected.messages.write(number, &mut self.scratch);
        if self.scratch != message {
            return wrong(difference(number, &self.scratch, message));
        }
        expected.next = number + 1;
        let receipt = &mut expected.receipt;
        receipt.gaps += u64::from(number > next);
        receipt.messages += 1;
        receipt.bytes += message.len() as u64;
        receipt.first = receipt.first.or(Some(number));
        receipt.last = Some(number);
        Ok(())
    }

    /// Whether the last message of every sender is there.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.senders
            .values()
            .all(|expected| expected.next >= expected.messages.end())
    }

    /// What has come from whom.
    #[must_use]
    pub fn receipts(&self) -> Vec<(SocketAddr, Receipt)> {
        self.senders
            .iter()
            .map(|(from, expected)| (*from, expected.receipt))
            .collect()
    }
}

fn difference(number: u64, expected: &[u8], got: &[u8]) -> String {
    let (wanted, came) = (expected.len(), got.len());
    let at = expected.iter().zip(got).position(|(a, b)| a != b);
    let at = at.map_or_else(String::new, |at| format!(", and byte {at} differs"));
    let says =
        Messages::number_of(got).map_or_else(String::new, |says| format!("; it says it is {says}"));
    format!("message {number} has {came} bytes of {wanted}{at}{says}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Sizes;

    fn messages(count: u64) -> Messages {
        let sizes = Sizes::Cycle(vec![20, 9]);
        Messages {
            seed: 1,
            first: 0,
            count,
            sizes,
        }
    }

    fn message(number: u64) -> Vec<u8> {
        let mut message = Vec::new();
        messages(9).write(number, &mut message);
        message
    }

    fn sender() -> SocketAddr {
        ([10, 0, 0, 1], 4000).into()
    }

    fn run(order: Order, numbers: &[u64]) -> Result<Receipt, String> {
        let mut checker = Checker::new(&[(sender(), messages(5))], order);
        for &number in numbers {
            checker
                .take(sender(), &message(number))
                .map_err(|wrong| wrong.what)?;
        }
        assert_eq!(checker.is_complete(), numbers.last() == Some(&4));
        Ok(checker.receipts()[0].1)
    }

    #[test]
    fn exactly_in_order_is_right_and_nothing_else() {
        let receipt = run(Order::Exact, &[0, 1, 2, 3, 4]).unwrap();
        let sum = 20 + 9 + 20 + 9 + 20;
        let expected = Receipt {
            messages: 5,
            bytes: sum,
            first: Some(0),
            last: Some(4),
            gaps: 0,
        };
        assert_eq!(receipt, expected);
        for wrong in [&[1][..], &[0, 0], &[0, 2], &[0, 1, 2, 3, 4, 5]] {
            assert!(run(Order::Exact, wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn gaps_can_be_right_and_repetitions_never() {
        let receipt = run(Order::Increasing, &[1, 2, 4]).unwrap();
        assert_eq!((receipt.first, receipt.gaps), (Some(1), 2));
        for wrong in [&[1, 1][..], &[2, 1], &[4, 5]] {
            assert!(run(Order::Increasing, wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn damage_and_strangers_are_told() {
        let mut checker = Checker::new(&[(sender(), messages(5))], Order::Exact);
        let mut damaged = message(0);
        damaged[15] ^= 1;
        let wrong = checker.take(sender(), &damaged).unwrap_err();
        assert_eq!(
            wrong.what,
            "message 0 has 20 bytes of 20, and byte 15 differs; it says it is 0"
        );
        assert!(
            checker
                .take(([10, 0, 0, 9], 1).into(), &message(0))
                .is_err()
        );
    }
}
