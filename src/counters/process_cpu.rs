//! The CPU time of the whole process, including threads that are not registered.

use crate::counters::description::CounterDescription;
use crate::platform::process_cpu_ns;
use crate::types::Features;

/// The counter of feature `processcpu`.
pub(crate) const PROCESS_CPU: CounterDescription = CounterDescription {
    id: 1,
    feature: Features::PROCESS_CPU,
    name: "processCPU",
    category: "CPU",
    description: "Process CPU utilization",
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
