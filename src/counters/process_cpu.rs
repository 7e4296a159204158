//! The CPU time of the whole process, threads that nobody registered included.

use crate::base::Features;
use crate::counters::CounterDescription;
use crate::platform::process_cpu_ns;

/// Feature `processcpu`.
pub(crate) const PROCESS_CPU: CounterDescription = CounterDescription {
    id: 1,
    feature: Features::PROCESS_CPU,
    name: "processCPU",
    category: "CPU",
    description: "Process CPU utilization",
};

/// Nanoseconds since the process began. One system call.
pub(crate) fn sample_process_cpu_ns() -> i64 {
    process_cpu_ns() as i64
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_grows_while_the_process_works() {
        let before = super::sample_process_cpu_ns();
        while super::sample_process_cpu_ns() < before + 1_000_000 {}
    }
}
