//! The CPU time of the whole process, including threads that are not registered.

use crate::counters::description::CounterDescription;
use crate::model::{PROCESS_CPU_CATEGORY, PROCESS_CPU_NAME};
use crate::platform::process_cpu_ns;
use crate::types::Features;

/// The first counter of feature `processcpu`.
#[doc(alias = "processCPU")]
pub(crate) const PROCESS_CPU: CounterDescription = CounterDescription {
    id: 1,
    feature: Features::PROCESS_CPU,
    name: PROCESS_CPU_NAME,
    category: PROCESS_CPU_CATEGORY,
    description: "CPU time of the process, in ns",
    is_level: false,
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
