//! How the sampler takes samples, in each state of a thread.

pub(crate) mod places;

mod alternating;
mod announced;
mod blocked_signal;
mod context_switches;
mod counters;
mod cpu_sums;
mod deep_kept;
mod deep_limit;
mod engines;
#[cfg(target_arch = "x86_64")]
mod entered_sandbox;
mod few_descriptors;
mod few_processors;
mod idle_bytes;
mod machine;
mod max_cpu;
mod missed;
mod not_dumpable;
mod own_clock;
mod restarted;
#[cfg(target_arch = "x86_64")]
mod same_place;
#[cfg(target_arch = "x86_64")]
pub(crate) mod sandbox;
mod shares;
mod sleeping;
mod strict_mode;
mod unprivileged_events;
mod waits;
