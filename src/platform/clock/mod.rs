//! Clocks: the monotonic clock, its fast form from the processor's counter, and CPU times.

#[cfg(target_arch = "x86_64")]
mod fast_clock;
#[cfg(target_arch = "x86_64")]
#[forbid(unsafe_code)]
mod line;
pub(super) mod system_clock;
