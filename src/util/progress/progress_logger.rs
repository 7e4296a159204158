//! Reports the progress of a long job from any depth of its call tree.

use crate::util::progress::proportion_value::ProportionValue;
use crate::util::progress::shared_progress::{ProgressLocation, SharedProgress};

/// Reports the progress of one share of a job.
///
/// The code that works on the share reports its own progress, from 0 to 1. The logger maps that to
/// the share's part of the whole job. Dropping the logger marks the share as done.
#[derive(Debug)]
pub(crate) struct ProgressLogger {
    /// `None` if the progress is not watched.
    shared: Option<SharedProgress>,
    begin: ProportionValue,
    end: ProportionValue,
    end_location: ProgressLocation,
}

impl ProgressLogger {
    /// Begins a job and returns its logger.
    pub(crate) fn for_job(shared: Option<&SharedProgress>) -> Self {
        if let Some(shared) = shared {
            shared.begin();
        }
        Self {
            shared: shared.cloned(),
            begin: ProportionValue::ZERO,
            end: ProportionValue::ONE,
            end_location: ProgressLocation::Done,
        }
    }

    /// Returns a logger whose reports are discarded.
    pub(crate) fn unwatched() -> Self {
        Self::for_job(None)
    }

    /// Converts the progress of this share to that of the job. A share ends exactly where the next
    /// one begins.
    fn to_job_progress(&self, local: ProportionValue) -> ProportionValue {
        self.begin + (self.end - self.begin) * local
    }

    /// Reports the progress of this share. An invalid progress, meaning unknown, is not reported.
    #[doc(alias = "SetLocalProgress")]
    pub(crate) fn set_local_progress(&self, progress: ProportionValue, location: ProgressLocation) {
        if let Some(shared) = &self.shared {
            shared.reach(self.to_job_progress(progress), location);
        }
    }

    /// Begins the part of this share between `from` and `to`, and returns its logger.
    #[doc(alias = "CreateSubLoggerFromTo")]
    pub(crate) fn sub_logger(
        &self,
        from: ProportionValue,
        to: ProportionValue,
        location: ProgressLocation,
    ) -> Self {
        self.set_local_progress(from, location);
        Self {
            shared: self.shared.clone(),
            begin: self.to_job_progress(from),
            end: self.to_job_progress(to),
            end_location: location,
        }
    }

    /// Iterates over the items, with a logger of an equal share for each.
    #[doc(alias = "CreateLoopSubLoggersTo")]
    pub(crate) fn loop_sub_loggers<I: IntoIterator<IntoIter: ExactSizeIterator>>(
        &self,
        items: I,
        location: ProgressLocation,
    ) -> impl Iterator<Item = (Self, I::Item)> {
        let items = items.into_iter();
        let count = items.len();
        items.enumerate().map(move |(index, item)| {
            let done = |index| ProportionValue::from_ratio(index, count);
            (
                self.sub_logger(done(index), done(index + 1), location),
                item,
            )
        })
    }

    /// Iterates over the items of a long list and reports the progress about 128 times.
    pub(crate) fn watch<I: Iterator>(
        &self,
        items: I,
        count: usize,
        location: ProgressLocation,
    ) -> impl Iterator<Item = I::Item> {
        // Often enough for a progress bar, at negligible cost.
        let step = count / 128 + 1;
        let (mut until_next, mut seen) = (0, 0);
        items.inspect(move |_| {
            if until_next == 0 {
                self.set_local_progress(ProportionValue::from_ratio(seen, count), location);
                until_next = step;
                seen += step;
            }
            until_next -= 1;
        })
    }
}

impl Drop for ProgressLogger {
    fn drop(&mut self) {
        self.set_local_progress(ProportionValue::ONE, self.end_location);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn percent(percent: u32) -> ProportionValue {
        ProportionValue::percent(percent)
    }

    fn assert_at(progress: &SharedProgress, proportion: f64, location: &str) {
        assert!(
            (progress.proportion() - proportion).abs() < 1e-6,
            "{}",
            progress.proportion()
        );
        assert_eq!(progress.last_location(), location);
    }

    #[test]
    fn sub_loggers_report_parts_of_the_job() {
        let progress = SharedProgress::new();
        let job = ProgressLogger::for_job(Some(&progress));
        assert_at(&progress, 0.0, "not begun");
        job.set_local_progress(percent(10), ProgressLocation::Meta);
        assert_at(&progress, 0.1, "meta");
        let threads = job.sub_logger(percent(20), percent(80), ProgressLocation::Frames);
        assert_at(&progress, 0.2, "a thread's frames");
        threads.set_local_progress(percent(50), ProgressLocation::Samples);
        assert_at(&progress, 0.5, "a thread's samples");
        let inner =
            threads.sub_logger(percent(50), ProportionValue::ONE, ProgressLocation::Markers);
        inner.set_local_progress(percent(50), ProgressLocation::Markers);
        assert_at(&progress, 0.65, "a thread's markers");
        drop(inner);
        assert_at(&progress, 0.8, "a thread's markers");
        drop(threads);
        assert_at(&progress, 0.8, "a thread's markers");
        drop(job);
        assert_at(&progress, 1.0, "done");
    }

    #[test]
    fn progress_decreases_only_when_the_next_job_begins() {
        let progress = SharedProgress::new();
        let job = ProgressLogger::for_job(Some(&progress));
        job.set_local_progress(percent(60), ProgressLocation::Names);
        job.set_local_progress(percent(30), ProgressLocation::Samples);
        assert_at(&progress, 0.6, "naming addresses");
        job.set_local_progress(ProportionValue::INVALID, ProgressLocation::Done);
        assert_at(&progress, 0.6, "naming addresses");
        drop(job);
        let _next = ProgressLogger::for_job(Some(&progress));
        assert_at(&progress, 0.0, "not begun");
    }

    #[test]
    fn loop_sub_loggers_split_share_equally() {
        let progress = SharedProgress::new();
        let job = ProgressLogger::for_job(Some(&progress));
        let list = job.sub_logger(ProportionValue::ZERO, percent(80), ProgressLocation::Frames);
        let mut seen = Vec::new();
        for (share, item) in list.loop_sub_loggers(["a", "b", "c", "d"], ProgressLocation::Samples)
        {
            share.set_local_progress(percent(50), ProgressLocation::Markers);
            seen.push((item, (progress.proportion() * 100.0).round()));
        }
        assert_eq!(seen, [("a", 10.0), ("b", 30.0), ("c", 50.0), ("d", 70.0)]);
        assert_at(&progress, 0.8, "a thread's samples");
        assert_eq!(
            list.loop_sub_loggers([(); 0], ProgressLocation::Samples)
                .count(),
            0
        );
        drop(list);
        let rows = job.sub_logger(percent(80), ProportionValue::ONE, ProgressLocation::Tables);
        let mut last = progress.proportion();
        for row in rows.watch(0..1024, 1024, ProgressLocation::Tables) {
            assert!(
                progress.proportion() >= last && progress.proportion() < 1.0,
                "at {row}"
            );
            last = progress.proportion();
        }
        assert!(progress.proportion() > 0.99, "{last}");
        assert_eq!(
            rows.watch([(); 3].iter(), 0, ProgressLocation::Done)
                .count(),
            3
        );
    }

    #[test]
    fn unwatched_logger_accepts_reports() {
        let job = ProgressLogger::unwatched();
        job.sub_logger(percent(1), percent(2), ProgressLocation::Meta)
            .set_local_progress(ProportionValue::ONE, ProgressLocation::Meta);
    }
}
