//! Messages over plain TCP as one writes them by hand: a length of four bytes and the payload, blocking
//! std sockets without Nagle's delay, reads through a buffer.

use std::io::{BufReader, BufWriter, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use anyhow::{Result, ensure};

use super::load::{End, Ends, LIMIT};

/// Bytes of the length ahead of each message.
const PREFIX: usize = 4;
/// Bytes of the buffers.
pub(super) const BUFFER: usize = 64 << 10;

/// How messages are written.
#[derive(Clone, Copy)]
pub(super) enum Writes {
    /// Each by itself.
    Single,
    /// Through a buffer that is flushed when it is full, or before waiting: what corked sockets do.
    Gathered,
}

struct Plain {
    to: BufWriter<TcpStream>,
    from: BufReader<TcpStream>,
    /// With room for the length ahead of the payload, as `received` has.
    message: Vec<u8>,
    received: Vec<u8>,
    received_len: usize,
}

/// Both ends of a connection for messages of this size.
pub(super) fn pair(size: usize, writes: Writes) -> Result<Ends> {
    // The backlog takes the connection, so that one thread can make both ends.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, peer) = listener.accept()?;
    ensure!(peer == near.local_addr()?, "{peer} has come in between");
    Ok([
        Box::new(Plain::new(near, size, writes)?),
        Box::new(Plain::new(far, size, writes)?),
    ])
}

impl Plain {
    fn new(stream: TcpStream, size: usize, writes: Writes) -> Result<Self> {
        let held = match writes {
            Writes::Single => 0,
            Writes::Gathered => BUFFER,
        };
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        Ok(Self {
            from: BufReader::with_capacity(BUFFER, stream.try_clone()?),
            to: BufWriter::with_capacity(held, stream),
            message: vec![1; PREFIX + size],
            received: vec![0; PREFIX + size],
            received_len: 0,
        })
    }
}

impl End for Plain {
    fn send(&mut self) -> Result<()> {
        write(&mut self.to, &mut self.message)
    }

    fn receive(&mut self) -> Result<usize> {
        if self.from.buffer().is_empty() {
            self.to.flush()?;
        }
        let mut prefix = [0; PREFIX];
        self.from.read_exact(&mut prefix)?;
        let len = u32::from_be_bytes(prefix) as usize;
        let room = self.received.len() - PREFIX;
        ensure!(len <= room, "a message of {len} bytes, more than {room}");
        self.from
            .read_exact(&mut self.received[PREFIX..PREFIX + len])?;
        self.received_len = len;
        Ok(len)
    }

    fn answer(&mut self) -> Result<()> {
        let message = &mut self.received[..PREFIX + self.received_len];
        write(&mut self.to, message)
    }

    fn mark(&mut self) -> Result<()> {
        write(&mut self.to, &mut [0; PREFIX])?;
        self.to.flush()?;
        Ok(())
    }
}

/// Writes a message whose first bytes are kept free for its length.
fn write(to: &mut impl Write, message: &mut [u8]) -> Result<()> {
    let len = u32::try_from(message.len() - PREFIX)?;
    message[..PREFIX].copy_from_slice(&len.to_be_bytes());
    to.write_all(message)?;
    Ok(())
}
