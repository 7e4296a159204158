//! Tells how far a long job is, from whatever depth of it.

use crate::base::proportion_value::ProportionValue;
use crate::base::shared_progress::{ProgressLocation, SharedProgress};

/// A share of a job. What works at the share speaks of that alone, from nothing to the whole; here it becomes its part of
/// the job's progress. When it is dropped the share is done, whatever was told of it.
#[derive(Debug)]
pub(crate) struct ProgressLogger {
    /// None where nobody asked.
    shared: Option<SharedProgress>,
    begin: ProportionValue,
    end: ProportionValue,
    end_location: ProgressLocation,
}

impl ProgressLogger {
    /// Of a whole job, which begins.
    pub(crate) fn of_job(shared: Option<&SharedProgress>) -> Self {
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

    /// Of a job that nobody watches.
    pub(crate) fn unwatched() -> Self {
        Self::of_job(None)
    }

    /// A place in this share, as one in the job; the end is exactly where the next share begins.
    fn in_job(&self, local: ProportionValue) -> ProportionValue {
        self.begin + (self.end - self.begin) * local
    }

    /// The share is done so far; where that is invalid, because nobody knows, nothing is told.
    #[doc(alias = "SetLocalProgress")]
    pub(crate) fn set_local_progress(&self, progress: ProportionValue, location: ProgressLocation) {
        if let Some(shared) = &self.shared {
            shared.reach(self.in_job(progress), location);
        }
    }

    /// The share from here to there of this one, which begins now.
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
            begin: self.in_job(from),
            end: self.in_job(to),
            end_location: location,
        }
    }

    /// Goes through the items with an equal share for each.
    #[doc(alias = "CreateLoopSubLoggersTo")]
    pub(crate) fn loop_sub_loggers<I: IntoIterator<IntoIter: ExactSizeIterator>>(
        &self,
        items: I,
        location: ProgressLocation,
    ) -> impl Iterator<Item = (Self, I::Item)> {
        let items = items.into_iter();
        let count = items.len();
        items.enumerate().map(move |(index, item)| {
            let place = |index| ProportionValue::from_ratio(index, count);
            (
                self.sub_logger(place(index), place(index + 1), location),
                item,
            )
        })
    }

    /// Goes through the items of a long list and tells now and then how far it is.
    pub(crate) fn watch<I: Iterator>(
        &self,
        items: I,
        count: usize,
        location: ProgressLocation,
    ) -> impl Iterator<Item = I::Item> {
        // Often enough for people, and never felt.
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
    fn shares_of_shares_become_parts_of_the_job() {
        let progress = SharedProgress::new();
        let job = ProgressLogger::of_job(Some(&progress));
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
    fn it_never_goes_back_but_for_the_next_job() {
        let progress = SharedProgress::new();
        let job = ProgressLogger::of_job(Some(&progress));
        job.set_local_progress(percent(60), ProgressLocation::Names);
        job.set_local_progress(percent(30), ProgressLocation::Samples);
        assert_at(&progress, 0.6, "naming addresses");
        job.set_local_progress(ProportionValue::INVALID, ProgressLocation::Done);
        assert_at(&progress, 0.6, "naming addresses");
        drop(job);
        let _next = ProgressLogger::of_job(Some(&progress));
        assert_at(&progress, 0.0, "not begun");
    }

    #[test]
    fn a_loop_gives_equal_shares_and_one_over_nothing_is_done() {
        let progress = SharedProgress::new();
        let job = ProgressLogger::of_job(Some(&progress));
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
    fn nobody_has_to_watch() {
        let job = ProgressLogger::unwatched();
        job.sub_logger(percent(1), percent(2), ProgressLocation::Meta)
            .set_local_progress(ProportionValue::ONE, ProgressLocation::Meta);
    }
}
