//! Clocks: the monotonic clock, its fast form from the processor's counter, and CPU times.

#[cfg(target_arch = "x86_64")]
mod fast_clock;
#[cfg(target_arch = "x86_64")]
#[forbid(unsafe_code)]
mod line;
mod system_clock;

pub(crate) use system_clock::{
    ProcessStart, age_of_start_ns, calibrate_clock, current_thread_cpu_ns_in_handler,
    monotonic_now, process_cpu_ns, process_start, reset_clock_calibration_in_child, sleep_until,
    thread_cpu_ns, utc_now,
};
