//! The CPU time of the whole process, including threads that are not registered.

use std::borrow::Cow;

use crate::counters::description::{CounterDescription, CounterKind, PROCESS_CPU_ID};
use crate::model::{PROCESS_CPU_CATEGORY, PROCESS_CPU_NAME};
use crate::platform::process_cpu_ns;
use crate::types::{CounterUnit, Features};

/// The first counter of feature `processcpu`.
#[doc(alias = "processCPU")]
pub(crate) const PROCESS_CPU: CounterDescription = CounterDescription {
    id: PROCESS_CPU_ID,
    feature: Features::PROCESS_CPU,
    name: Cow::Borrowed(PROCESS_CPU_NAME),
    category: Cow::Borrowed(PROCESS_CPU_CATEGORY),
    description: Cow::Borrowed("CPU time of the process, in ns"),
    kind: CounterKind::Total,
    counts_operations: false,
    unit: CounterUnit::Number,
    color: None,
};

/// Returns the CPU time of the process since it began, in ns. Makes one system call.
pub(crate) fn sample_process_cpu_ns() -> i64 {
    process_cpu_ns() as i64
}

#[cfg(test)]
mod tests {
    #[test]
    fn process_cpu_grows_while_process_works() {
        let before = super::sample_process_cpu_ns();
        while super::sample_process_cpu_ns() < before + 1_000_000 {}
    }
}
