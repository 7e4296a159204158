//! Everything that talks to the operating system.
//!
//! # Purpose
//! Signals, registers, stack bounds, clocks, the list of modules, memory, saved files and fork:
//! what the profiler needs from Linux and the C library. Each file offers a few safe functions, and
//! their documentation is the contract. A port to another system replaces these files and no
//! others.
//!
//! # Threads and locks
//! The only locks are those that belong to one call (`thread/channel.rs`). A fork waits for the
//! profiler's own calls to the loader (`loader_calls.rs`). Code that runs in the signal handler is
//! marked in the head comment of its file.
//!
//! # Imports
//! `types`, `util`
//!
//! # Invariants
//! Only this folder uses `libc`, `nix` and `std::os`. The signal handler calls `libc` alone. All
//! other code calls `nix`, except for system calls that `nix` does not have. Memory that other code
//! may unmap is read only while it cannot be unmapped, or through the kernel (`guarded_memory.rs`).
//! The application may replace any descriptor in its table. So the sampler has a table of its own
//! where it can (`thread/own_descriptors.rs`). Elsewhere a file or pipe is used and closed only if
//! its device and inode are still those of the profiler's (`shared_file.rs`, `signal/pipe_end.rs`).
//!
//! # Read next
//! `signal/handler.rs`, then `crate::sampler`.

mod arch;
#[forbid(unsafe_code)]
mod availability;
mod clock;
#[forbid(unsafe_code)]
mod cpu_frequency;
#[forbid(unsafe_code)]
mod errno;
#[forbid(unsafe_code)]
mod existing_file;
mod fork;
mod identity;
#[forbid(unsafe_code)]
mod loader_calls;
mod memory;
mod modules;
mod perf_event;
mod pinned_library;
#[forbid(unsafe_code)]
mod power;
#[forbid(unsafe_code)]
mod private_folder;
mod process_end;
#[forbid(unsafe_code)]
mod procfs;
#[forbid(unsafe_code)]
mod root_certificates;
mod sandbox;
#[forbid(unsafe_code)]
mod shared_file;
mod signal;
mod socket;
#[forbid(unsafe_code)]
mod spool_file;
mod standard_streams;
#[forbid(unsafe_code)]
mod sysfs;
#[forbid(unsafe_code)]
mod temporary_file;
#[cfg(test)]
mod test_library;
mod thread;
mod variables;

pub(crate) use arch::{
    GENERAL_REGISTERS, Registers, copy_words_in_handler, current_registers, current_stack_pointer,
    registers_in_handler, thread_pointer,
};
pub(crate) use availability::lacking_features;
pub(crate) use clock::system_clock::{
    ProcessStart, calibrate_clock, current_thread_cpu_ns_in_handler, monotonic_now, process_cpu_ns,
    process_start, reset_clock_calibration_in_child, sleep_until, thread_cpu_ns, utc_now,
};
pub(crate) use cpu_frequency::CpuFrequencies;
pub(crate) use errno::KeptErrno;
pub(crate) use existing_file::{ExistingFile, SpecialFile, follow_links};
pub(crate) use fork::{ForkHooks, install_fork_handlers};
pub(crate) use identity::{
    cached_thread_id, current_process_id, current_processor, current_thread_id,
    has_rights_of_another_user, is_main_thread, is_thread_of_c_library, main_thread_id,
    prepare_sampler_thread, thread_exists, with_signals_blocked,
};
pub(crate) use loader_calls::WatchedThread;
pub(crate) use memory::barrier::{
    heavy_barrier, prepare_heavy_barrier, prepare_heavy_barrier_without_waiting,
};
pub(crate) use memory::code_bytes::{CodeBytes, is_after_system_call, is_interrupted_wait};
pub(crate) use memory::file_mapping::FileMapping;
pub(crate) use memory::guarded_memory::{
    read_guarded, read_guarded_in_handler, read_own_memory, read_through_pipe,
};
pub(crate) use memory::limits::{
    is_memory_available, limits_leave, look_at_memory_limits, was_memory_available,
};
pub(crate) use memory::mapping::{LazyRegion, is_mappable};
pub(crate) use memory::memory_pipe::MemoryPiece;
pub(crate) use memory::shared_mapping::{map_memory_file, map_new_file};
pub(crate) use modules::image::ModuleImage;
pub(crate) use modules::list::{is_in_executable, list_modules};
pub(crate) use modules::loader::{
    LoaderForkGuard, ModuleChanges, hold_loader_for_fork, module_changes,
    prepare_to_wait_as_loader_call, watch_loader_calls,
};
pub(crate) use pinned_library::pin_own_library;
pub(crate) use power::{EnergyCounter, EnergyDomain, find_energy_counters};
pub(crate) use private_folder::{PrivateFolder, PrivateStore, is_private_folder};
pub(crate) use process_end::exit::install_exit_handler;
pub(crate) use process_end::gate::{
    EndRequest, WaitEnd, begin_save, close_gate, finish_save, is_open_in_handler as is_gate_open,
    is_saving_thread_in_handler as is_saving_thread, open_gate,
    request_save_in_handler as request_save, serve_gate, signal_survived, wait_for_request,
    wait_for_running_save, wait_for_save_in_handler as wait_for_save,
};
pub(crate) use process_end::signals::{
    die_by_in_handler as die_by_signal, release_end_signals, take_end_signals,
};
pub(crate) use procfs::{
    BlockedAt, current_thread_os_name, process_start_ticks, system_info, usable_processors,
};
pub(crate) use root_certificates::read_root_certificates;
pub(crate) use sandbox::check_sandbox;
pub(crate) use shared_file::{
    FileDescriptor, SharedFile, open_own_file, read_exe_path, to_path_bytes,
};
pub(crate) use signal::control_pipe::{
    ControlPipe, ControlRequest, ControlSignal, check_control_signals, check_dump_signal,
    prepare_control_signals, release_control_signal, take_signals,
};
pub(crate) use signal::fault_handlers::{keep_out_of_fault_handlers, take_free_signal};
pub(crate) use signal::handler::{
    ArrivalInHandler, HandlerCheck, Sent, SignalSource, SignalTicket, ensure_handler,
    has_foreign_handler, install_handler, prepare_handler, resolve_sampling_signal, send_request,
    signal_is_queued,
};
pub(crate) use signal::task_clock::{EVENT_NUMBERS, RefusedClock, TaskClock};
pub(crate) use socket::calls::random_bytes;
pub(crate) use socket::copies_in_child::close_sockets_in_child;
#[cfg(test)]
pub(crate) use socket::unix_socket::socket_pair;
pub(crate) use socket::unix_socket::{
    Interest, ListeningSocket, Mailbox, Socket, is_socket_open, wait_for_sockets,
};
pub(crate) use spool_file::{PassedFile, SpoolFile, take_passed_file};
pub(crate) use standard_streams::{
    StandardStream, is_terminal, note_standard_streams, open_missing_standard_streams,
    terminal_columns, write_to_standard,
};
pub(crate) use sysfs::SYS_FOLDER;
#[cfg(test)]
pub(crate) use sysfs::TestTree;
pub(crate) use temporary_file::{TemporaryFile, remove_stale_files};
#[cfg(test)]
pub(crate) use test_library::{TestFolder, TestLibrary};
pub(crate) use thread::channel::{Receiver, Sender, channel};
pub(crate) use thread::kept_file::ResidentMemory;
pub(crate) use thread::other_threads_activity::{
    OtherThreadsActivity, ProcessCpuSum, other_threads_activity_by_rusage,
};
pub(crate) use thread::own_descriptors::{
    OwnTable, feed_own_descriptors, follow_standard_error, is_out_of_descriptors,
    on_own_descriptors, use_own_descriptors, use_own_descriptors_and_standard_error,
};
pub(crate) use thread::own_threads::{
    forget_own_threads_in_child, is_current_thread_own, is_own_thread, is_own_thread_beginning,
};
pub(crate) use thread::profiler_thread::{ProfilerThread, spawn_profiler_thread};
pub(crate) use thread::shared_jobs::share_jobs;
pub(crate) use thread::signal_stack::{SignalStack, install_lasting_signal_stack};
pub(crate) use thread::stack_bounds::{StackBounds, current_stack_bounds};
pub(crate) use thread::task_list::{TaskList, names_of_other_threads, read_thread_name};
pub(crate) use thread::thread_exit::{AtThreadExit, ThreadExitKey};
pub(crate) use thread::thread_probe::{
    AGE_RESOLUTION_NS, ProbeResult, SwitchCounts, SwitchResult, ThreadProbe,
};
pub(crate) use variables::{set_variable_if_only_thread, variable, variable_names};
