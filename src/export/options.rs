//! What a writer writes of a profile, and how it counts.

use crate::model::{FrameId, FunctionKind, ProfileModel, Sample, StackId, Thread};

/// What a sample counts for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum SampleWeight {
    /// Each sample counts for one interval, whether the thread ran or waited.
    #[default]
    Samples,
    /// A sample counts for the CPU time since the thread's previous sample. In a profile without
    /// CPU times, it counts for one interval.
    Cpu,
}

/// Options of the writers.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExportOptions {
    /// Name or id of the thread to write. `None` for all threads. A format for one thread then gets
    /// the thread that used the most CPU time, or that has the most samples.
    pub(crate) thread: Option<String>,
    pub(crate) weight: SampleWeight,
    /// Whether the outermost frames that belong to the runtime of Rust or of Tokio are left out:
    /// see [`runtime_frames_end`].
    pub(crate) folds_runtime: bool,
}

impl ExportOptions {
    /// Returns the indices of the threads that the options choose, in their order.
    pub(crate) fn threads(&self, profile: &ProfileModel) -> Vec<usize> {
        let is_chosen = |thread: &Thread| {
            let wanted = self.thread.as_ref();
            wanted.is_none_or(|wanted| thread.name == *wanted || thread.tid == *wanted)
        };
        let chosen = profile.threads.iter().enumerate();
        let chosen = chosen.filter(|(_, thread)| is_chosen(thread));
        chosen.map(|(index, _)| index).collect()
    }

    /// Returns the index of the thread that a format for one thread gets; `None` if no thread is
    /// chosen.
    pub(crate) fn busiest_thread(&self, profile: &ProfileModel) -> Option<usize> {
        let used = |index: &usize| {
            let samples = &profile.threads[*index].samples;
            let cpu = samples.iter().filter_map(|sample| sample.cpu_delta_ns);
            (cpu.fold(0, u64::saturating_add), samples.len())
        };
        let chosen = self.threads(profile).into_iter().rev();
        chosen.max_by_key(used)
    }

    /// Returns the time that a sample counts for, in ns.
    pub(crate) fn weight_ns(&self, profile: &ProfileModel, sample: &Sample) -> u64 {
        let interval_ns = || {
            let weight = sample.weight.max(0).unsigned_abs();
            profile.meta.interval_ns.saturating_mul(weight)
        };
        match self.weight {
            SampleWeight::Cpu if profile.meta.has_cpu_deltas => sample.cpu_delta_ns.unwrap_or(0),
            SampleWeight::Cpu | SampleWeight::Samples => interval_ns(),
        }
    }
}

/// Functions that run a thread's own code. All frames outside of them are the same for each sample.
const RUN_LOOPS: &[&str] = &[
    "std::sys::backtrace::__rust_begin_short_backtrace",
    "tokio::runtime::scheduler::multi_thread::worker::Context::run_task",
    "tokio::runtime::blocking::pool::Inner::run",
    "rayon_core::registry::WorkerThread::wait_until_cold",
];

/// Returns the innermost frame of a stack that belongs to the runtime, with the stack that ends in
/// it. The frames up to it are the same in all samples of a thread, and say nothing of its work.
/// `None` if the stack has no such frame.
pub(crate) fn runtime_frames_end(
    profile: &ProfileModel,
    stack: StackId,
) -> Option<(StackId, FrameId)> {
    let mut next = Some(stack);
    while let Some(stack) = next {
        let (prefix, frame) = profile.stack(stack);
        let function = profile.function(profile.frame(frame).function);
        let name = profile.text(function.name);
        let is_run_loop = |run_loop: &&str| {
            let rest = name.strip_prefix(*run_loop);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::<"))
        };
        if function.kind == FunctionKind::Native && RUN_LOOPS.iter().any(is_run_loop) {
            return Some((stack, frame));
        }
        next = prefix;
    }
    None
}
