//! Which queued I/Os are another one's reflection on a lower device.

/// Block device, as major and minor number.
pub(super) type Device = (u64, u64);

/// Devices that are remembered as having I/Os of their own.
const DEVICES: usize = 64;
/// Remaps that may wait for the queueing on the lower device.
const PENDING: usize = 256;

/// Follows remaps (blkparse's action `A`) from devices whose I/Os are in the same file.
///
/// A trace of both a device-mapper volume and its disk shows each I/O as queued twice. The remap between the two tells
/// where the second one will appear. Memory is bounded: beyond 64 devices or 256 remaps under way the oldest is
/// forgotten, and its reflection is counted as an I/O.
#[derive(Debug, Default)]
pub(super) struct Remaps {
    queued: Vec<Device>,
    pending: Vec<(Device, u64)>,
}

impl Remaps {
    /// An I/O appears on `to` at `sector`, which came from `from` at `from_sector`.
    pub(super) fn remapped(&mut self, to: Device, sector: u64, from: Device, from_sector: u64) {
        // A volume on a partition is remapped twice in a row, and the first step may be listed under the disk.
        let earlier = self.pending.iter().position(|&(device, pending)| {
            pending == from_sector && (device == from || device == to)
        });
        if let Some(earlier) = earlier {
            self.pending[earlier] = (to, sector);
        } else if self.queued.contains(&from) {
            push_bounded(&mut self.pending, (to, sector), PENDING);
        }
    }

    /// An I/O is queued; whether it is the reflection of one that was counted.
    pub(super) fn is_reflection(&mut self, device: Device, sector: u64) -> bool {
        if let Some(place) = self.pending.iter().position(|&it| it == (device, sector)) {
            self.pending.remove(place);
            return true;
        }
        if !self.queued.contains(&device) {
            push_bounded(&mut self.queued, device, DEVICES);
        }
        false
    }
}

fn push_bounded<T>(list: &mut Vec<T>, item: T, limit: usize) {
    if list.len() == limit {
        list.remove(0);
    }
    list.push(item);
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: Device = (253, 0);
    const PARTITION: Device = (8, 2);
    const DISK: Device = (8, 0);

    #[test]
    fn an_io_that_goes_down_a_stack_is_counted_once() {
        let mut remaps = Remaps::default();
        for k in 0..1000 {
            assert!(!remaps.is_reflection(VOLUME, k));
            remaps.remapped(DISK, k + 2048, VOLUME, k);
            remaps.remapped(DISK, k + 4096, PARTITION, k + 2048);
            assert!(remaps.is_reflection(DISK, k + 4096));
            assert!(!remaps.is_reflection(DISK, k + 4096), "the disk's own I/O");
        }
    }

    #[test]
    fn a_remap_from_a_device_that_is_not_in_the_trace_hides_nothing() {
        let mut remaps = Remaps::default();
        remaps.remapped(DISK, 100, PARTITION, 36);
        assert!(!remaps.is_reflection(DISK, 100));
    }

    #[test]
    fn memory_is_bounded() {
        let mut remaps = Remaps::default();
        for k in 0..10_000 {
            assert!(!remaps.is_reflection((k, 0), 0));
            remaps.remapped((k, 1), k, (k, 0), u64::MAX);
        }
        assert_eq!(
            (remaps.queued.len(), remaps.pending.len()),
            (DEVICES, PENDING)
        );
    }
}
