//! Everything that talks to the operating system.
//!
//! # Purpose
//! Signals, registers, stack bounds, clocks, the list of modules, memory and fork: what the
//! profiler needs from Linux and the C library. Each file offers a few safe functions, and their
//! documentation is the contract. A port to another system replaces these files and no others.
//!
//! # Threads and locks
//! There is no lock here. A fork waits for the profiler's own calls to the loader
//! (`loader_calls.rs`). Code that runs in the signal handler is marked in the head comment of its
//! file.
//!
//! # Imports
//! `types`, `util`
//!
//! # Invariants
//! Only this folder uses `libc`, `nix` and `std::os`. The signal handler calls `libc` alone. All
//! other code calls `nix`, except for system calls that `nix` does not have. Memory that other code
//! may unmap is read only while it cannot be unmapped, or through the kernel (`guarded_memory.rs`).
//!
//! # Read next
//! `signal/handler.rs`, then `crate::sampler`.

mod arch;
mod clock;
mod fork;
mod identity;
#[forbid(unsafe_code)]
mod loader_calls;
mod memory;
mod modules;
#[forbid(unsafe_code)]
mod private_file;
#[forbid(unsafe_code)]
mod procfs;
mod signal;
#[forbid(unsafe_code)]
pub(crate) mod system_info;
#[cfg(test)]
mod test_library;
mod thread;

pub(crate) use arch::{
    GENERAL_REGISTERS, Registers, copy_words_in_handler, current_registers, current_stack_pointer,
    thread_pointer,
};
pub(crate) use clock::{
    ProcessStart, calibrate_clock, current_thread_cpu_ns_in_handler, monotonic_now, process_cpu_ns,
    process_start, reset_clock_calibration_in_child, sleep_until, thread_cpu_ns,
};
pub(crate) use fork::{ForkHooks, install_fork_handlers};
pub(crate) use identity::{
    StandardStream, current_process_id, current_processor, current_thread_id, is_main_thread,
    prepare_sampler_thread, with_signal_unblocked, with_signals_blocked, write_to_standard,
};
pub(crate) use memory::{
    CodeBytes, LazyRegion, MemoryPiece, check_sandbox, heavy_barrier, read_guarded,
    read_guarded_in_handler, read_own_memory,
};
pub(crate) use modules::{
    LoaderForkGuard, ModuleChanges, ModuleImage, hold_loader_for_fork, is_stuck_in_loader,
    list_modules, module_changes,
};
pub(crate) use private_file::{create_private, open_own_file, read_exe_path};
pub(crate) use procfs::{BlockedAt, ProbeResult, ThreadProbe, is_sandboxed};
pub(crate) use signal::{
    ArrivalInHandler, ControlPipe, ControlRequest, ControlSignal, HandlerCheck, Sent, SignalSource,
    SignalTicket, ThreadTimer, check_control_signals, ensure_handler, install_handler,
    release_control_signal, resolve_sampling_signal, send_request, signal_is_queued, take_signal,
    thread_exists,
};
pub(crate) use system_info::{current_thread_os_name, system_info};
#[cfg(test)]
pub(crate) use test_library::{TestFolder, TestLibrary};
pub(crate) use thread::{
    OtherThreadsActivity, ProcessCpuSum, ProfilerThread, StackBounds, current_stack_bounds,
    other_threads_activity_by_rusage, spawn_profiler_thread,
};
