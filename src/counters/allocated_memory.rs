//! The memory that the application has allocated.

use std::borrow::Cow;

use crate::counters::description::{ALLOCATED_MEMORY_ID, CounterDescription, CounterKind};
use crate::types::{CounterUnit, Features};

/// The counter of feature `memory`: the bytes that the application has allocated and not freed since
/// the session began, without the profiler's buffer, and the number of allocations and frees. The
/// level may be negative, because the application may free what it allocated before.
///
/// The viewer knows the category `Memory` and the name.
#[doc(alias = "sMallocCounter")]
pub(crate) const ALLOCATED_MEMORY: CounterDescription = CounterDescription {
    id: ALLOCATED_MEMORY_ID,
    feature: Features::MEMORY,
    name: Cow::Borrowed("malloc"),
    category: Cow::Borrowed("Memory"),
    description: Cow::Borrowed("Amount of allocated memory"),
    kind: CounterKind::Level,
    counts_operations: true,
    unit: CounterUnit::Bytes,
    color: None,
};
