//! The values of a heap profile, from the markers of sampled allocations and frees.
//!
//! Names and order are those of Go's heap profile. A free belongs to the stack that allocated, so
//! what is in use is what was allocated, less what was freed. A free whose allocation is not in the
//! profile counts for nothing.

use crate::export::payloads::{field, is_of_type};
use crate::model::{FieldValue, Marker, ProfileModel, StackId};
use crate::util::{NumberMap, SharedSort};

/// Types and units of the values, in their order.
pub(super) const HEAP_VALUES: [(&str, &str); 4] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
];

/// The allocations with one stack, in the order of [`HEAP_VALUES`].
#[derive(Clone, Copy, Default)]
pub(super) struct HeapValues(pub(super) [i64; 4]);

/// Sums of allocations, not rounded: a sample may represent a number of objects that is not whole.
#[derive(Clone, Copy, Default)]
struct Sums {
    allocated: Amount,
    in_use: Amount,
}

#[derive(Clone, Copy, Default)]
struct Amount {
    objects: f64,
    bytes: i64,
}

impl Amount {
    fn add(&mut self, other: Self) {
        self.objects += other.objects;
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    fn subtract(&mut self, other: Self) {
        self.objects -= other.objects;
        self.bytes = self.bytes.saturating_sub(other.bytes);
    }
}

impl Sums {
    fn values(&self) -> HeapValues {
        let [allocated, in_use] = [self.allocated, self.in_use];
        HeapValues([
            allocated.objects.round() as i64,
            allocated.bytes,
            in_use.objects.round() as i64,
            in_use.bytes,
        ])
    }
}

/// The allocations of a thread's track by stack, in the order of their first allocations.
pub(super) type HeapRows = Vec<(Option<StackId>, HeapValues)>;

/// An allocation, or with negative bytes a free.
struct Event {
    time_ns: i64,
    address: u64,
    bytes: i64,
    objects: f64,
    stack: Option<StackId>,
}

impl Event {
    fn of(profile: &ProfileModel, marker: &Marker<'_>) -> Option<Self> {
        if !is_of_type(profile, marker, "Native allocation") {
            return None;
        }
        let field = |key| match field(profile, marker, key)? {
            FieldValue::Integer(number) => Some(number),
            FieldValue::Number(number) => Some(number as i64),
            _ => None,
        };
        let bytes = field("size")?;
        let sampled = field("sampledSize").filter(|size| *size > 0);
        let objects = sampled.map_or(1.0, |size| (bytes as f64 / size as f64).abs());
        Some(Self {
            time_ns: marker.start_ns.or(marker.end_ns)?,
            address: field("memoryAddress").unwrap_or(0).cast_unsigned(),
            bytes,
            objects,
            stack: marker.payload?.stack.map(|(stack, _)| stack),
        })
    }
}

/// Returns the allocations of the thread with this index.
pub(super) fn heap_rows(profile: &ProfileModel, thread: usize) -> HeapRows {
    let markers = profile.threads[thread].markers.iter();
    let mut events: Vec<_> = markers
        .filter_map(|marker| Event::of(profile, &marker))
        .collect();
    // The sampler has written them in the order in which they happened. A file may have another one.
    events.shared_sort_by_key(|event| event.time_ns);
    let mut rows: Vec<(Option<StackId>, Sums)> = Vec::new();
    let mut row_of_stack = NumberMap::<usize>::default();
    // For each address in use, the row and the amount of its allocation.
    let mut in_use = NumberMap::<(usize, Amount)>::default();
    for event in events {
        let before = if event.bytes < 0 {
            in_use.remove(&event.address)
        } else {
            let key = event.stack.map_or(0, |stack| u64::from(stack.0) + 1);
            let row = *row_of_stack.entry(key).or_insert_with(|| {
                rows.push((event.stack, Sums::default()));
                rows.len() - 1
            });
            let amount = Amount {
                objects: event.objects,
                bytes: event.bytes,
            };
            let sums = &mut rows[row].1;
            sums.allocated.add(amount);
            sums.in_use.add(amount);
            // The older one at this address has been freed in between, which the profile lacks.
            in_use.insert(event.address, (row, amount))
        };
        if let Some((row, amount)) = before {
            rows[row].1.in_use.subtract(amount);
        }
    }
    let rows = rows.iter().map(|(stack, sums)| (*stack, sums.values()));
    rows.collect()
}
