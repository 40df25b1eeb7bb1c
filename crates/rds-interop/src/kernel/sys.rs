//! What no safe library offers: options of RDS sockets, and memory that others write.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `SOL_RDS`: the level of RDS's options and control messages.
pub(super) const LEVEL: i32 = 276;

/// Sets an option of RDS to these bytes.
///
/// No option that this crate sets has the kernel keep an address from the bytes, except for those of
/// control messages, which are not set here.
pub(super) fn set_option(socket: BorrowedFd<'_>, name: i32, value: &[u8]) -> io::Result<()> {
    let len = libc::socklen_t::try_from(value.len()).map_err(io::Error::other)?;
    // SAFETY: the pointer and the length are those of a slice, which the kernel only reads.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), LEVEL, name, value.as_ptr().cast(), len) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// What an option of RDS has to tell.
#[derive(Debug)]
pub(super) enum Told {
    /// The buffer holds so many bytes, of items of this size.
    Items { item: usize, len: usize },
    /// It needs a buffer of this size.
    TooSmall(usize),
}

/// Reads an option of RDS into `buffer`.
pub(super) fn get_option(socket: BorrowedFd<'_>, name: i32, buffer: &mut [u8]) -> io::Result<Told> {
    let mut len = libc::socklen_t::try_from(buffer.len()).map_err(io::Error::other)?;
    // SAFETY: the kernel writes at most `len` bytes to the slice, and the length to `len`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            LEVEL,
            name,
            buffer.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    match usize::try_from(result) {
        // Unlike others these options return the size of an item.
        Ok(item) => Ok(Told::Items {
            item,
            len: (len as usize).min(buffer.len()),
        }),
        Err(_) => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENOSPC) => Ok(Told::TooSmall(len as usize)),
            error => Err(error),
        },
    }
}

/// What one receive brought.
#[derive(Debug)]
pub(super) struct Got {
    pub(super) from: Option<SocketAddr>,
    pub(super) len: usize,
    /// Bytes of control messages.
    pub(super) control: usize,
}

/// Receives into `buffer`, with control messages in `control`.
pub(super) fn receive(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    control: &mut [u8],
    flags: i32,
) -> io::Result<Got> {
    let mut name = [0_u8; size_of::<libc::sockaddr_in6>()];
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: all zeros are a message header that names nothing.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_name = name.as_mut_ptr().cast();
    header.msg_namelen = name.len() as libc::socklen_t;
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = control.len();
    // SAFETY: the header names three buffers with their lengths, all of which outlive the call.
    let result = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags) };
    let len = usize::try_from(result).map_err(|_| io::Error::last_os_error())?;
    Ok(Got {
        from: address(&name[..(header.msg_namelen as usize).min(name.len())]),
        len,
        control: header.msg_controllen,
    })
}

/// An IPv4 address as the kernel writes it.
fn address(name: &[u8]) -> Option<SocketAddr> {
    let (family, rest) = name.split_first_chunk()?;
    let (port, rest) = rest.split_first_chunk()?;
    let ip: &[u8; 4] = rest.first_chunk()?;
    let is_ipv4 = i32::from(u16::from_ne_bytes(*family)) == libc::AF_INET;
    is_ipv4.then(|| SocketAddr::from((*ip, u16::from_be_bytes(*port))))
}

/// Copies out of memory that an HCA may write at the same time.
///
/// The range must lie in `map`; otherwise nothing is copied and the answer is false.
pub(super) fn copy_out(map: &memmap2::MmapRaw, at: usize, into: &mut [u8]) -> bool {
    if at.checked_add(into.len()).is_none_or(|end| end > map.len()) {
        return false;
    }
    for (offset, byte) in into.iter_mut().enumerate() {
        // SAFETY: the sum is below the length of the mapping, as checked above.
        let source = unsafe { map.as_ptr().add(at + offset) };
        // SAFETY: the mapping lives as long as the borrow of it. Nobody has a reference into it, and what
        // an HCA writes meanwhile makes the value arbitrary, no more.
        *byte = unsafe { source.read_volatile() };
    }
    true
}

/// Copies into memory that an HCA may read or write at the same time. As [`copy_out`].
pub(super) fn copy_in(map: &memmap2::MmapRaw, at: usize, from: &[u8]) -> bool {
    if at.checked_add(from.len()).is_none_or(|end| end > map.len()) {
        return false;
    }
    for (offset, byte) in from.iter().enumerate() {
        // SAFETY: the sum is below the length of the mapping, as checked above.
        let target = unsafe { map.as_mut_ptr().add(at + offset) };
        // SAFETY: the mapping lives as long as the borrow of it and is writable; nobody has a reference into it.
        unsafe { target.write_volatile(*byte) };
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_in_network_order() {
        let name = [2, 0, 0x0f, 0xa0, 10, 0, 0, 2, 0, 0];
        assert_eq!(
            address(&name),
            Some(SocketAddr::from(([10, 0, 0, 2], 4000)))
        );
        assert_eq!(address(&name[..7]), None);
        assert_eq!(address(&[10, 0, 0, 1, 1, 1, 1, 1]), None);
    }
}
