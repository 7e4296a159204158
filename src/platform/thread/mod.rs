//! Threads as the system knows them: stack bounds, activity, and the profiler's own threads.

#[forbid(unsafe_code)]
pub(super) mod channel;
#[forbid(unsafe_code)]
pub(super) mod kept_file;
pub(super) mod other_threads_activity;
pub(super) mod own_descriptors;
#[forbid(unsafe_code)]
pub(super) mod own_threads;
pub(super) mod profiler_thread;
#[forbid(unsafe_code)]
pub(super) mod shared_jobs;
pub(super) mod signal_stack;
pub(super) mod stack_bounds;
pub(super) mod task_list;
pub(super) mod thread_exit;
#[forbid(unsafe_code)]
pub(super) mod thread_probe;
