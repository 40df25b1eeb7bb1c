//! Choosing the address of a port.

use std::fmt;
use std::fs;
use std::net::Ipv6Addr;

/// An address of a port, and its place in the port's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gid {
    /// Place in the table.
    pub index: u8,
    /// The address, in network order. An IPv4 address is written as `::ffff:a.b.c.d`.
    pub bytes: [u8; 16],
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (index {})", Ipv6Addr::from(self.bytes), self.index)
    }
}

/// How well an entry serves, the better the more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Merit {
    /// RoCEv1, or InfiniBand.
    Other,
    /// RoCEv2 over a link-local address, which needs no set-up and does not leave the link.
    LinkLocal,
    /// RoCEv2 over IPv6.
    Ipv6,
    /// RoCEv2 over IPv4.
    Ipv4,
}

/// Looks through the `count` first entries of a port's table.
pub(crate) fn choose<E>(
    device: &str,
    port: u8,
    count: u32,
    query: impl Fn(u8) -> Result<[u8; 16], E>,
) -> Option<Gid> {
    let last = u8::try_from(count.checked_sub(1)?).unwrap_or(u8::MAX);
    let entries = (0..=last).filter_map(|index| {
        let bytes = query(index).ok()?;
        let gid = Gid { index, bytes };
        Some((merit(bytes, is_roce_v2(device, port, index))?, gid))
    });
    // Of the equally good, the first.
    let best = entries.reduce(|best, next| if next.0 > best.0 { next } else { best });
    best.map(|(_, gid)| gid)
}

/// `None` for an empty entry.
fn merit(bytes: [u8; 16], roce_v2: bool) -> Option<Merit> {
    if bytes == [0; 16] {
        return None;
    }
    let address = Ipv6Addr::from(bytes);
    Some(match roce_v2 {
        false => Merit::Other,
        true if address.to_ipv4_mapped().is_some() => Merit::Ipv4,
        true if address.is_unicast_link_local() => Merit::LinkLocal,
        true => Merit::Ipv6,
    })
}

/// libibverbs has no public call for the type in the versions that `rdma-sys` can bind; this file
/// of the kernel is what those calls read.
fn is_roce_v2(device: &str, port: u8, index: u8) -> bool {
    let path = format!("/sys/class/infiniband/{device}/ports/{port}/gid_attrs/types/{index}");
    fs::read_to_string(path).is_ok_and(|kind| kind.trim() == "RoCE v2")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roce_v2_over_ipv4_is_the_best() {
        let of = |text: &str| text.parse::<Ipv6Addr>().unwrap().octets();
        assert_eq!(merit([0; 16], true), None);
        let order = [
            merit(of("::ffff:10.0.0.1"), false),
            merit(of("fe80::1"), true),
            merit(of("2001:db8::1"), true),
            merit(of("::ffff:10.0.0.1"), true),
        ];
        assert!(order.is_sorted_by(|a, b| a < b), "{order:?}");
    }

    #[test]
    fn the_first_of_equals_is_chosen_and_failures_are_skipped() {
        let table = |index: u8| match index {
            0 => Err(()),
            1 => Ok([0; 16]),
            index => Ok([index; 16]),
        };
        let chosen = choose("none", 1, 5, table).unwrap();
        assert_eq!(chosen.index, 2);
        assert_eq!(choose("none", 1, 2, table), None);
        assert_eq!(choose("none", 1, 0, table), None);
    }
}
