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

use once_cell::race::{OnceBox, OnceRef};

use crate::json::json_text;
use crate::markers::codec::described::describe;
use crate::markers::codec::payload::{self, PayloadFailure};
use crate::markers::json_writer::JSONWriter;
use crate::markers::profiler_marker::ProfilerMarker;
use crate::markers::schema::{MarkerSchema, name_for_fields};
use crate::platform::CodeBytes;
use crate::util::{NumberMap, as_profiler_work, run_callback};

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
    /// Returns how payloads of the type are printed, encoded.
    describe: fn() -> Option<Vec<u8>>,
    /// Addresses and first bytes of these three functions at the time of registration.
    code: [CodeBytes; 3],
    /// The next type in the same bucket.
    next: Link,
}

/// Called with each type that is registered, on the thread that adds the first marker of it. Set
/// once, by a higher layer.
static NEW_TYPE_HOOK: OnceBox<fn(&'static MarkerType)> = OnceBox::new();

/// Sets the function that is called with each new type. The first one stays.
pub(crate) fn set_new_type_hook(hook: fn(&'static MarkerType)) {
    NEW_TYPE_HOOK.get_or_init(|| Box::new(hook));
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
        Self::add_and_tell::<T>(id)
    }

    #[cold]
    fn add_and_tell<T: ProfilerMarker + 'static>(id: TypeId) -> u32 {
        let (number, is_new) = as_profiler_work(|| Self::add::<T>(id));
        if let (Some(hook), Some(new)) = (NEW_TYPE_HOOK.get(), is_new) {
            hook(new);
        }
        number
    }

    /// Returns the type's number, and the type if this call has registered it.
    fn add<T: ProfilerMarker + 'static>(id: TypeId) -> (u32, Option<&'static Self>) {
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
            describe: describe::<T>,
            code,
            next: OnceRef::new(),
        }));
        let mut slot = bucket_of(id);
        // Other threads may have registered types since the lookup, even this type.
        while slot.set(new).is_err() {
            if let Some(known) = slot.get() {
                if known.id == id {
                    return (known.number, None);
                }
                slot = &known.next;
            }
        }
        (number, Some(new))
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

    /// Describes the type for a program that does not have it. Calls the application's code; returns
    /// `None` if that panics or is no longer loaded.
    pub(crate) fn describe(&self) -> Option<TypeDescription> {
        if !self.is_loaded() {
            return None;
        }
        let mut names = None;
        run_callback(|| names = Some((self.name(), self.schema())));
        let (name, schema) = names?;
        // A type that cannot be traced has a name and a schema nevertheless.
        let mut payload = None;
        run_callback(|| payload = (self.describe)());
        let name = name_for_fields(name, &schema);
        Some(TypeDescription {
            schema: json_text(|json| schema.write(json, name)),
            name: name.to_owned(),
            payload: payload.unwrap_or_default(),
        })
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

/// A type's description of itself: see `markers/codec/described/`.
#[derive(Debug)]
pub(crate) struct TypeDescription {
    pub(crate) name: String,
    pub(crate) schema: String,
    /// Empty if the type cannot be traced.
    pub(crate) payload: Vec<u8>,
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
