//! Everything that talks to the operating system.
//!
//! # Purpose
//! Signals, registers, stack bounds, clocks, the list of modules, memory and fork: what the
//! profiler needs from Linux and the C library. Each file offers a few safe functions, and their
//! documentation is the contract. A port to another system replaces these files and no others.
//!
//! # Threads and locks
//! The only lock here is the one that `modules.rs` holds around calls to the loader. Code that runs
//! in the signal handler is marked in the head comment of its file.
//!
//! # Imports
//! `base`
//!
//! # Invariants
//! Only this folder uses `libc` and `std::os`. Memory that other code may unmap is read only while
//! it cannot be unmapped, or through the kernel (`guarded_memory.rs`).
//!
//! # Read next
//! `signal.rs`, then `crate::sampler`.

mod barrier;
mod clock;
#[forbid(unsafe_code)]
mod code_bytes;
mod control_pipe;
#[cfg(target_arch = "x86_64")]
mod fast_clock;
mod fork;
mod guarded_memory;
mod identity;
mod memory;
mod modules;
mod others_activity;
mod pipe_end;
#[forbid(unsafe_code)]
mod private_file;
#[forbid(unsafe_code)]
mod procfs;
mod profiler_thread;
mod registers;
#[cfg_attr(target_arch = "x86_64", path = "registers_x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "registers_aarch64.rs")]
mod registers_arch;
mod signal;
mod stack_bounds;
#[forbid(unsafe_code)]
mod system_info;
#[cfg(test)]
mod test_library;
mod thread_timer;

pub(crate) use barrier::heavy_barrier;
pub(crate) use clock::{
    ProcessStart, current_thread_cpu_ns_in_handler, follow_clock, forget_clock_follower_in_child,
    monotonic_now, process_cpu_ns, process_start, sleep_until, thread_cpu_ns,
};
pub(crate) use code_bytes::CodeBytes;
pub(crate) use control_pipe::{
    ControlPipe, ControlRequest, ControlSignal, check_control_signals, give_signal_back,
    take_signal,
};
pub(crate) use fork::{ForkHooks, install_fork_handlers};
pub(crate) use guarded_memory::{
    MemoryPiece, follow_sandbox, read_guarded, read_guarded_in_handler, read_own_memory,
};
pub(crate) use identity::{
    StandardStream, current_process_id, current_thread_id, is_main_thread, prepare_sampler_thread,
    with_signals_blocked, with_signals_unblocked, write_to_standard,
};
pub(crate) use memory::LazyRegion;
pub(crate) use modules::{
    ModuleChanges, ModuleImage, hold_loader_for_fork, list_modules, module_changes,
};
pub(crate) use others_activity::{OthersActivity, RunningSum, others_activity_thread_by_thread};
pub(crate) use private_file::{create_private, open_own_file, read_exe_path};
pub(crate) use procfs::{BlockedAt, Look, ThreadWindow, is_sandboxed};
pub(crate) use profiler_thread::{ProfilerThread, spawn_profiler_thread};
pub(crate) use registers::{
    GENERAL_REGISTERS, Registers, copy_words_in_handler, current_registers, current_stack_pointer,
    thread_pointer,
};
pub(crate) use signal::{
    ArrivalInHandler, HandlerCheck, Sent, SignalSource, SignalTicket, ensure_handler,
    install_handler, send_request, signal_is_acceptable, signal_is_queued, thread_exists,
};
pub(crate) use stack_bounds::{StackBounds, current_stack_bounds};
pub(crate) use system_info::{current_thread_os_name, system_info};
#[cfg(test)]
pub(crate) use test_library::{TestFolder, TestLibrary};
pub(crate) use thread_timer::ThreadTimer;
