//! The frames of stacks: in code of many kinds, on other stacks, and in replaced libraries.

#[cfg(target_arch = "x86_64")]
pub(crate) mod accuracy;
#[cfg(target_arch = "x86_64")]
mod assembly;
mod chain;
#[cfg(target_arch = "x86_64")]
mod constant_dlopen;
mod deep;
#[cfg(target_arch = "x86_64")]
mod generated_code;
mod other_stacks;
#[cfg(target_arch = "x86_64")]
mod perf_map;
#[cfg(target_arch = "x86_64")]
mod relative_path;
#[cfg(target_arch = "x86_64")]
mod replaced_library;
#[cfg(target_arch = "x86_64")]
mod trampoline;
#[cfg(target_arch = "x86_64")]
mod without_information;
