//! A table whose places are reused, with names that are not.

/// Names one entry for as long as it lives, and nothing afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SockId {
    index: u32,
    generation: u32,
}

#[derive(Debug)]
pub(crate) struct Slots<T> {
    places: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Slots<T> {
    pub(crate) const fn new() -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(crate) fn insert(&mut self, value: T) -> SockId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            self.places.len() as u32 - 1
        });
        let place = &mut self.places[index as usize];
        place.1 = Some(value);
        SockId {
            index,
            generation: place.0,
        }
    }

    pub(crate) fn get(&self, id: SockId) -> Option<&T> {
        let place = self.places.get(id.index as usize)?;
        (place.0 == id.generation).then_some(place.1.as_ref()?)
    }

    pub(crate) fn get_mut(&mut self, id: SockId) -> Option<&mut T> {
        let place = self.places.get_mut(id.index as usize)?;
        (place.0 == id.generation).then_some(place.1.as_mut()?)
    }

    pub(crate) fn remove(&mut self, id: SockId) -> Option<T> {
        let place = self.places.get_mut(id.index as usize)?;
        if place.0 != id.generation {
            return None;
        }
        let value = place.1.take()?;
        place.0 = place.0.wrapping_add(1);
        self.free.push(id.index);
        Some(value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (SockId, &T)> {
        (0..).zip(&self.places).filter_map(|(index, place)| {
            let generation = place.0;
            let value = place.1.as_ref()?;
            Some((SockId { index, generation }, value))
        })
    }
}
