//! The types of markers that were ever added, each by a number, which stands in the buffer.
//!
//! A type is found by its `TypeId`, with a load for each that has the same place in the table: no lock, and as many types as
//! there are. It is kept for ever. What is called when a profile is written is the host's code, which may be gone by then, with
//! its library; so it is looked whether it is still what it was.

use std::any::TypeId;
use std::hash::{Hash, Hasher};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::base::{NumberMap, as_own_work};
use crate::markers::json_writer::JSONWriter;
use crate::markers::payload;
use crate::markers::profiler_marker::ProfilerMarker;
use crate::markers::schema::MarkerSchema;
use crate::platform::CodeBytes;

const PLACES: usize = 1024;

static PLACES_OF_TYPES: [OnceLock<&'static MarkerType>; PLACES] =
    [const { OnceLock::new() }; PLACES];

/// 0 is no type.
static LAST_NUMBER: AtomicU32 = AtomicU32::new(0);

/// Why a payload is not in the profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PayloadFailure {
    /// Its type did not say it to its end.
    Uncoded,
    /// Its type does not read back what it wrote.
    Unreadable,
    /// Its code panicked.
    Panicked,
    /// Its code is gone.
    Unloaded,
}

impl PayloadFailure {
    /// In words, for behind the marker's name.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Uncoded => "payload could not be coded",
            Self::Unreadable => "payload cannot be read back",
            Self::Panicked => "payload panicked",
            Self::Unloaded => "library of its payload was unloaded",
        }
    }
}

/// A type of markers.
#[derive(Debug)]
pub(crate) struct MarkerType {
    id: TypeId,
    pub(crate) number: u32,
    name: fn() -> &'static str,
    schema: fn() -> MarkerSchema,
    stream: fn(&[u8], &mut JSONWriter<'_>) -> Result<(), PayloadFailure>,
    /// Where these are, and their first bytes, as they were when the type was new.
    code: [CodeBytes; 3],
    /// The next type with the same place.
    next: OnceLock<&'static MarkerType>,
}

/// A type's id as a number. Those of two types may be the same.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|&byte| self.0 = self.0.rotate_left(8) ^ u64::from(byte));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 ^= number;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[inline(always)]
fn place_of(id: TypeId) -> &'static OnceLock<&'static MarkerType> {
    let mut hasher = IdHasher::default();
    id.hash(&mut hasher);
    &PLACES_OF_TYPES[hasher.finish() as usize % PLACES]
}

impl MarkerType {
    /// The number of a type, which is new the first time; then memory is allocated, once.
    #[inline]
    pub(crate) fn number_of<T: ProfilerMarker + 'static>() -> u32 {
        let id = TypeId::of::<T>();
        let mut place = place_of(id);
        while let Some(known) = place.get() {
            if known.id == id {
                return known.number;
            }
            place = &known.next;
        }
        as_own_work(|| Self::add::<T>(id))
    }

    #[cold]
    fn add<T: ProfilerMarker + 'static>(id: TypeId) -> u32 {
        let (name, schema, stream) = (
            T::marker_type_name,
            T::marker_type_display,
            payload::stream::<T>,
        );
        let number = LAST_NUMBER.fetch_add(1, Ordering::Relaxed) + 1;
        let code = [
            CodeBytes::at(name as *const ()),
            CodeBytes::at(schema as *const ()),
            CodeBytes::at(stream as *const ()),
        ];
        let mut new: &'static Self = Box::leak(Box::new(Self {
            id,
            number,
            name,
            schema,
            stream,
            code,
            next: OnceLock::new(),
        }));
        let mut place = place_of(id);
        // Others may have been added meanwhile, and this one, too.
        while let Err(back) = place.set(new) {
            new = back;
            if let Some(known) = place.get() {
                if known.id == id {
                    return known.number;
                }
                place = &known.next;
            }
        }
        number
    }

    /// All types there are, by their numbers.
    pub(crate) fn all() -> NumberMap<&'static Self> {
        let mut all = NumberMap::default();
        for place in &PLACES_OF_TYPES {
            let mut place = place;
            while let Some(known) = place.get() {
                all.insert(u64::from(known.number), *known);
                place = &known.next;
            }
        }
        all
    }

    /// Whether its code is where it was.
    pub(crate) fn is_loaded(&self) -> bool {
        self.code.iter().all(CodeBytes::are_there)
    }

    /// Calls the host's code, which may panic.
    pub(crate) fn name(&self) -> &'static str {
        (self.name)()
    }

    /// The same.
    pub(crate) fn schema(&self) -> MarkerSchema {
        (self.schema)()
    }

    /// The same.
    pub(crate) fn stream(
        &self,
        payload: &[u8],
        json: &mut JSONWriter<'_>,
    ) -> Result<(), PayloadFailure> {
        (self.stream)(payload, json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Serialize, serde::Deserialize)]
    struct Numbered<const N: usize>;

    impl<const N: usize> ProfilerMarker for Numbered<N> {
        fn marker_type_name() -> &'static str {
            "Numbered"
        }
        fn marker_type_display() -> MarkerSchema {
            MarkerSchema::new(&[])
        }
        fn stream_json_marker_data(&self, json: &mut JSONWriter<'_>) {
            json.uint_property("n", N as u64);
        }
    }

    macro_rules! numbers_of {
        ($($tens:literal)+) => {
            [$(
                MarkerType::number_of::<Numbered<{ $tens * 10 }>>(),
                MarkerType::number_of::<Numbered<{ $tens * 10 + 1 }>>(),
                MarkerType::number_of::<Numbered<{ $tens * 10 + 2 }>>(),
                MarkerType::number_of::<Numbered<{ $tens * 10 + 3 }>>(),
                MarkerType::number_of::<Numbered<{ $tens * 10 + 4 }>>(),
            )+]
        };
    }

    #[test]
    fn each_type_has_a_number_of_its_own_that_stays_whoever_asks_first() {
        let ask = || {
            numbers_of!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33
                34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60)
        };
        let numbers = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("numbers"))
                .collect::<Vec<_>>()
        });
        assert!(
            numbers.iter().all(|these| *these == numbers[0]),
            "all threads are told the same"
        );
        let mut sorted = numbers[0].to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(
            (sorted.len(), sorted.contains(&0)),
            (61 * 5, false),
            "more types than Gecko has room for"
        );
        let all = MarkerType::all();
        assert!(
            sorted
                .iter()
                .all(|number| all[&u64::from(*number)].is_loaded())
        );
    }
}
