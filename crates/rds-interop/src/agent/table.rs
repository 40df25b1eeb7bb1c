//! The sockets of an agent, by name.

use crate::stack::Endpoint;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Sockets at the same time.
const MOST: usize = 256;

/// How long steps may take to notice that their sockets are closed.
const NOTICE: Duration = Duration::from_secs(10);

#[derive(Clone)]
struct Slot {
    endpoint: Arc<dyn Endpoint>,
    closed: Arc<AtomicBool>,
}

#[derive(Default)]
pub(super) struct Table {
    slots: Mutex<BTreeMap<u32, Slot>>,
}

impl Table {
    pub(super) fn add(&self, name: u32, endpoint: Arc<dyn Endpoint>) -> Result<()> {
        let mut slots = self.lock();
        if slots.len() >= MOST {
            bail!("there are {MOST} sockets already");
        }
        if slots.contains_key(&name) {
            bail!("there is a socket {name} already");
        }
        let closed = Arc::default();
        slots.insert(name, Slot { endpoint, closed });
        Ok(())
    }

    /// The socket, and whether it was closed meanwhile.
    pub(super) fn get(&self, name: u32) -> Result<(Arc<dyn Endpoint>, Arc<AtomicBool>)> {
        let slots = self.lock();
        let slot = slots
            .get(&name)
            .with_context(|| format!("there is no socket {name}"))?;
        Ok((Arc::clone(&slot.endpoint), Arc::clone(&slot.closed)))
    }

    /// Closes a socket, as soon as the steps on it have noticed.
    pub(super) fn close(&self, name: u32) {
        if let Some(slot) = self.lock().remove(&name) {
            slot.closed.store(true, Ordering::SeqCst);
        }
    }

    pub(super) fn close_all(&self) -> Vec<Arc<dyn Endpoint>> {
        let slots = std::mem::take(&mut *self.lock());
        let close = |slot: Slot| {
            slot.closed.store(true, Ordering::SeqCst);
            slot.endpoint
        };
        slots.into_values().map(close).collect()
    }

    /// Closes all sockets, and waits until no step uses one.
    ///
    /// # Errors
    ///
    /// One is used for too long.
    pub(super) fn clear(&self) -> Result<()> {
        let endpoints = self.close_all();
        let deadline = Instant::now() + NOTICE;
        for endpoint in endpoints {
            while Arc::strong_count(&endpoint) > 1 {
                if Instant::now() > deadline {
                    bail!("the socket at {} is in use", endpoint.local_addr());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
