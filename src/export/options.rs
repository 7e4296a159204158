//! What a writer writes of a profile, and how it counts.

#[cfg(has_profiler)]
use std::io;

#[cfg(has_profiler)]
use crate::model::{ProfileModel, Sample, Thread};

/// What a sample counts for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SampleWeight {
    /// Each sample counts for one interval, whether the thread ran or waited.
    #[default]
    Samples,
    /// A sample counts for the CPU time since the thread's previous sample. In a profile without
    /// CPU times, it counts for one interval.
    Cpu,
}

/// Options of the writers.
#[cfg_attr(
    not(has_profiler),
    expect(dead_code, reason = "this build writes no profile")
)]
#[derive(Clone, Debug, Default)]
pub(crate) struct ExportOptions {
    /// Name or id of the thread to write. `None` for all threads. A format for one thread then gets
    /// the thread that used the most CPU time, or that has the most samples.
    pub(crate) thread: Option<String>,
    pub(crate) weight: SampleWeight,
    /// Whether the outermost frames that belong to the runtime of Rust or of Tokio are left out:
    /// see `run_loops.rs`.
    pub(crate) folds_runtime: bool,
    /// Whether the output is compressed by the caller, so that a format that is always compressed
    /// is written without its own compression.
    pub(crate) is_compressed_later: bool,
}

#[cfg(has_profiler)]
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

    /// Returns the thread that a format for one thread gets.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if no thread is chosen. `format` is the format's name.
    pub(crate) fn one_thread<'a>(
        &self,
        profile: &'a ProfileModel,
        format: &str,
    ) -> io::Result<&'a Thread> {
        let index = self.busiest_thread(profile).ok_or_else(|| {
            let got = match &self.thread {
                Some(thread) => format!("{thread:?}"),
                None => "a profile without threads".to_owned(),
            };
            let message =
                format!("cannot write {format}: got {got}, expected a thread's name or id");
            io::Error::new(io::ErrorKind::InvalidInput, message)
        })?;
        Ok(&profile.threads[index])
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
