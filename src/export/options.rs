//! What the options of a writer mean for a profile: which threads it writes, and what their samples
//! count for.

use std::io::{self, Write};

use crate::model::{ChargedSample, ChargedSamples, ProfileModel, Samples, Thread, WeightUnit};
pub(crate) use crate::types::{ExportOptions, Look, SampleWeight};

/// Writes a profile in one format.
pub(super) type Writer = fn(&ProfileModel, &ExportOptions, &mut dyn Write) -> io::Result<()>;

impl ExportOptions {
    fn chooses(&self, thread: &Thread) -> bool {
        let wanted = self.thread.as_ref();
        wanted.is_none_or(|wanted| thread.name == *wanted || thread.tid == *wanted)
    }

    /// Checks that the profile has the thread that is to be written.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if the profile has no thread of that name or id.
    pub(crate) fn check_thread(&self, profile: &ProfileModel) -> io::Result<()> {
        match &self.thread {
            Some(thread) if !profile.threads.iter().any(|thread| self.chooses(thread)) => {
                /// Number of names in the message.
                const MAX_NAMES: usize = 12;
                let names = profile.threads.iter().map(|thread| thread.name.as_str());
                let mut names: Vec<_> = names.collect();
                names.sort_unstable();
                names.dedup();
                let more = if names.len() > MAX_NAMES { ", …" } else { "" };
                names.truncate(MAX_NAMES);
                let names = names.join(", ");
                let message = format!(
                    "got the thread {thread:?}, expected the name or id of one of the profile's \
                     threads: {names}{more}"
                );
                Err(io::Error::new(io::ErrorKind::InvalidInput, message))
            }
            _ => Ok(()),
        }
    }

    /// Returns the indices of the threads that the options choose, in their order. The track of the
    /// waiting tasks counts only if it is chosen by its name or id: its rows are not samples.
    pub(crate) fn threads(&self, profile: &ProfileModel) -> Vec<usize> {
        let mut chosen = self.tracks(profile);
        chosen.retain(|&index| self.thread.is_some() || !profile.threads[index].is_waiting_tasks());
        chosen
    }

    /// Like [`Self::threads`], with the track of the tasks that wait, for a format that keeps the
    /// tracks apart and has weights.
    pub(crate) fn tracks(&self, profile: &ProfileModel) -> Vec<usize> {
        let chosen = profile.threads.iter().enumerate();
        let chosen = chosen.filter(|(_, thread)| self.chooses(thread));
        chosen.map(|(index, _)| index).collect()
    }

    /// Returns the index of the thread that a format for one thread gets; `None` if no thread is
    /// chosen.
    pub(crate) fn busiest_thread(&self, profile: &ProfileModel) -> Option<usize> {
        let used = |index: &usize| {
            let samples = &profile.threads[*index].samples;
            let cpu = samples.iter().filter_map(|sample| sample.cpu_delta_ns);
            let counts = samples.iter().map(|sample| samples.count(&sample));
            let add = u64::saturating_add;
            (cpu.fold(0, add), counts.fold(0, add))
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
            let message = format!("got no thread, expected one for {format}");
            io::Error::new(io::ErrorKind::InvalidInput, message)
        })?;
        Ok(&profile.threads[index])
    }

    /// Returns whether samples count for CPU time.
    pub(crate) fn counts_cpu(&self, profile: &ProfileModel) -> bool {
        self.weight == SampleWeight::Cpu && profile.meta.has_cpu_deltas
    }

    /// Returns the rows of a thread by time. If rows count for CPU time, it is charged to them, and
    /// a row may represent CPU time that belongs to no sample.
    pub(crate) fn rows<'a>(
        &self,
        profile: &'a ProfileModel,
        thread: &'a Thread,
    ) -> ChargedSamples<'a> {
        if let Some(progress) = &self.progress {
            progress.count(thread.samples.len());
        }
        match self.counts_cpu(profile) {
            true => profile.charged_samples(thread),
            false => profile.uncharged_samples(thread),
        }
    }

    /// Returns the time that a row of a thread counts for, in ns. A row that is weighted by bytes has
    /// none.
    pub(crate) fn weight_ns(
        &self,
        profile: &ProfileModel,
        samples: &Samples,
        row: &ChargedSample,
    ) -> u64 {
        match samples.weight_unit {
            _ if self.counts_cpu(profile) => row.cpu_ns,
            WeightUnit::Samples => {
                let interval_ns = profile.meta.interval_ns;
                interval_ns.saturating_mul(samples.count(&row.sample))
            }
            WeightUnit::Milliseconds => {
                let weight_ms = row.sample.weight.max(0).unsigned_abs();
                weight_ms.saturating_mul(1_000_000)
            }
            WeightUnit::Bytes => 0,
        }
    }
}

/// Returns the times of the first and the last of all samples; `None` without samples.
pub(super) fn sampled_range<'a>(all: impl Iterator<Item = &'a Samples>) -> Option<(i64, i64)> {
    let ranges = all.filter_map(|samples| {
        let last = samples.len().checked_sub(1)?;
        Some((samples.get(0).time_ns, samples.get(last).time_ns))
    });
    ranges.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
}
