//! Threads as the system knows them: stack bounds, activity, and the profiler's own threads.

#[forbid(unsafe_code)]
mod channel;
#[forbid(unsafe_code)]
mod kept_file;
mod other_threads_activity;
mod own_descriptors;
#[forbid(unsafe_code)]
mod own_threads;
mod profiler_thread;
#[forbid(unsafe_code)]
mod resident_memory;
#[forbid(unsafe_code)]
mod shared_jobs;
mod signal_stack;
mod stack_bounds;
mod task_list;
mod thread_exit;
#[forbid(unsafe_code)]
mod thread_probe;

pub(crate) use channel::{Receiver, Sender, channel};
pub(super) use kept_file::KeptFile;
pub(crate) use other_threads_activity::{
    OtherThreadsActivity, ProcessCpuSum, other_threads_activity_by_rusage,
};
pub(super) use own_descriptors::first_number_to_close;
pub(crate) use own_descriptors::{
    OwnTable, feed_own_descriptors, follow_standard_error, has_own_descriptors,
    is_out_of_descriptors, on_own_descriptors, use_own_descriptors,
    use_own_descriptors_and_standard_error,
};
pub(crate) use own_threads::{
    forget_own_threads_in_child, is_current_thread_own, is_own_thread, is_own_thread_beginning,
};
pub(crate) use profiler_thread::{ProfilerThread, spawn_profiler_thread};
pub(crate) use resident_memory::ResidentMemory;
pub(crate) use shared_jobs::share_jobs;
pub(crate) use signal_stack::{SignalStack, install_lasting_signal_stack};
pub(crate) use stack_bounds::{StackBounds, current_stack_bounds};
pub(crate) use task_list::{TaskList, names_of_other_threads, read_thread_name};
pub(crate) use thread_exit::{AtThreadExit, ThreadExitKey};
pub(crate) use thread_probe::{
    AGE_RESOLUTION_NS, ProbeResult, SwitchCounts, SwitchResult, ThreadProbe,
};
