//! The registry of marker types: each type that was ever added has a number, which entries in the
//! buffer refer to.
//!
//! The registry finds a type by its `TypeId` in a fixed table of buckets, each with a linked list
//! of types. A lookup takes no lock and costs one load for each type in the bucket; the number of
//! types is unlimited.
//! Types are never removed. Writing a profile calls the application's code, which may be unloaded
//! by then together with its library. So the registry remembers the first bytes of that code and
//! compares them before it uses the type for a profile.

use std::any::TypeId;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU32, Ordering};

use once_cell::race::OnceRef;

use crate::markers::codec::payload::{self, PayloadFailure};
use crate::markers::json_writer::JSONWriter;
use crate::markers::profiler_marker::ProfilerMarker;
use crate::markers::schema::MarkerSchema;
use crate::platform::CodeBytes;
use crate::util::{NumberMap, as_profiler_work};

const BUCKET_COUNT: usize = 1024;

/// A reference to the first type in a bucket, or from a type to the next one. Setting it is one
/// atomic operation, so neither a signal handler nor the child of a fork ever waits for it.
type Link = OnceRef<'static, MarkerType>;

static BUCKETS: [Link; BUCKET_COUNT] = [const { OnceRef::new() }; BUCKET_COUNT];

/// The number assigned last; no type has the number 0.
static LAST_NUMBER: AtomicU32 = AtomicU32::new(0);

/// A type of markers.
#[derive(Debug)]
pub(crate) struct MarkerType {
    id: TypeId,
    pub(crate) number: u32,
    name: fn() -> &'static str,
    schema: fn() -> MarkerSchema,
    stream: fn(&[u8], &mut JSONWriter<'_>) -> Result<(), PayloadFailure>,
    /// Addresses and first bytes of these three functions at the time of registration.
    code: [CodeBytes; 3],
    /// The next type in the same bucket.
    next: Link,
}

/// Hashes a `TypeId` to a number, which two types may share.
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
fn bucket_of(id: TypeId) -> &'static Link {
    let mut hasher = IdHasher::default();
    id.hash(&mut hasher);
    &BUCKETS[hasher.finish() as usize % BUCKET_COUNT]
}

impl MarkerType {
    /// Returns the number of a type; the first call for a type registers it and allocates memory.
    #[inline]
    pub(crate) fn number_of<T: ProfilerMarker + 'static>() -> u32 {
        let id = TypeId::of::<T>();
        let mut slot = bucket_of(id);
        while let Some(known) = slot.get() {
            if known.id == id {
                return known.number;
            }
            slot = &known.next;
        }
        as_profiler_work(|| Self::add::<T>(id))
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
        let new: &'static Self = Box::leak(Box::new(Self {
            id,
            number,
            name,
            schema,
            stream,
            code,
            next: OnceRef::new(),
        }));
        let mut slot = bucket_of(id);
        // Other threads may have registered types since the lookup, even this type.
        while slot.set(new).is_err() {
            if let Some(known) = slot.get() {
                if known.id == id {
                    return known.number;
                }
                slot = &known.next;
            }
        }
        number
    }

    /// Returns all registered types by their numbers.
    pub(crate) fn all() -> NumberMap<&'static Self> {
        let mut all = NumberMap::default();
        for bucket in &BUCKETS {
            let mut slot = bucket;
            while let Some(known) = slot.get() {
                all.insert(u64::from(known.number), known);
                slot = &known.next;
            }
        }
        all
    }

    /// Returns whether the code of the type is still loaded at its address.
    pub(crate) fn is_loaded(&self) -> bool {
        self.code.iter().all(CodeBytes::is_unchanged)
    }

    /// Returns the type's name. Calls the application's code, which may panic.
    pub(crate) fn name(&self) -> &'static str {
        (self.name)()
    }

    /// Returns the type's schema. Calls the application's code, which may panic.
    pub(crate) fn schema(&self) -> MarkerSchema {
        (self.schema)()
    }

    /// Writes the fields of a serialized payload. Calls the application's code, which may panic.
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
    fn number_of_from_several_threads_is_unique_and_stable() {
        let register_all = || {
            numbers_of!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33
                34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60)
        };
        let numbers = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(register_all)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("numbers"))
                .collect::<Vec<_>>()
        });
        assert!(
            numbers.iter().all(|these| *these == numbers[0]),
            "all threads get the same numbers"
        );
        let mut sorted = numbers[0].to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(
            (sorted.len(), sorted.contains(&0)),
            (61 * 5, false),
            "more types than Gecko supports"
        );
        let all = MarkerType::all();
        assert!(
            sorted
                .iter()
                .all(|number| all[&u64::from(*number)].is_loaded())
        );
    }
}
