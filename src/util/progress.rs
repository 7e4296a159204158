//! Progress of a long job, which other threads read.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::{AtomicU64, Ordering};

/// The part of a profile that a job works on, in the order of the profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ProgressLocation {
    NotBegun,
    Entries,
    Meta,
    Names,
    Frames,
    Samples,
    Markers,
    ChildProfiles,
    Done,
}

const LOCATIONS: [(ProgressLocation, &str); 9] = [
    (ProgressLocation::NotBegun, "not begun"),
    (ProgressLocation::Entries, "reading the buffer"),
    (ProgressLocation::Meta, "meta"),
    (ProgressLocation::Names, "naming addresses"),
    (ProgressLocation::Frames, "a thread's frames"),
    (ProgressLocation::Samples, "a thread's samples"),
    (ProgressLocation::Markers, "a thread's markers"),
    (ProgressLocation::ChildProfiles, "processes"),
    (ProgressLocation::Done, "done"),
];

/// Progress of writing a profile: one thread writes, others poll it.
///
/// Clones share one progress. Pass it to the writer by
/// [`SnapshotOptions::progress`](crate::profile::SnapshotOptions::progress). Each writer resets it
/// to 0, so concurrent writers need one each.
///
/// ```no_run
/// use gekkota::profile::{SharedProgress, SnapshotOptions};
///
/// let progress = SharedProgress::new();
/// let options = SnapshotOptions::default().progress(progress.clone());
/// let writer = std::thread::spawn(move || {
///     let mut text = Vec::new();
///     gekkota::profiler_stream_json(&mut text, &options).map(|()| text)
/// });
/// while progress.proportion() < 1.0 {
///     println!("{:3.0} %: {}", progress.proportion() * 100.0, progress.last_location());
///     std::thread::sleep(std::time::Duration::from_millis(100));
/// }
/// # drop(writer);
/// ```
#[derive(Clone, Debug, Default)]
#[doc(alias = "ProgressLogger::SharedProgress")]
#[doc(alias = "ProgressLogger")]
#[doc(alias = "ProportionValue")]
pub struct SharedProgress {
    /// The bits of the proportion, an `f32`, above those of the location. Floats that are not
    /// negative compare like their bits, so later progress is a greater word.
    word: Arc<AtomicU64>,
}

impl SharedProgress {
    /// Creates a progress of 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the proportion that is done, from 0.0 to 1.0.
    ///
    /// The proportion never decreases while a profile is written, and is 1.0 once the writer has
    /// returned, even with an error. May be called on any thread. Cost: one atomic load.
    pub fn proportion(&self) -> f64 {
        f32::from_bits((self.word.load(Ordering::Acquire) >> 32) as u32).into()
    }

    /// Returns the name of the part of the profile that was begun last.
    ///
    /// May be called on any thread. Cost: one atomic load.
    pub fn last_location(&self) -> &'static str {
        let number = self.word.load(Ordering::Acquire) as u32;
        LOCATIONS.get(number as usize).map_or("", |(_, name)| name)
    }

    /// Resets the progress at the beginning of a job.
    pub(crate) fn begin(&self) {
        self.word.store(0, Ordering::Release);
    }

    /// Raises the progress to this proportion, unless it is already greater.
    pub(crate) fn reach(&self, proportion: f32, location: ProgressLocation) {
        let word = u64::from(proportion.to_bits()) << 32 | location as u64;
        self.word.fetch_max(word, Ordering::AcqRel);
    }
}

/// Compares by identity: clones are equal.
impl PartialEq for SharedProgress {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.word, &other.word)
    }
}

impl Eq for SharedProgress {}

/// Reports the progress of one share of a job.
///
/// The code that works on the share reports its own progress, from 0 to 1. The logger maps that to
/// the share's part of the whole job. Dropping the logger marks the share as done.
#[derive(Debug)]
pub(crate) struct ProgressLogger {
    /// `None` if the progress is not watched.
    shared: Option<SharedProgress>,
    begin: f32,
    end: f32,
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
            begin: 0.0,
            end: 1.0,
            end_location: ProgressLocation::Done,
        }
    }

    /// Returns a logger whose reports are discarded.
    pub(crate) fn unwatched() -> Self {
        Self::for_job(None)
    }

    /// Converts the progress of this share to that of the job. A share ends exactly where the next
    /// one begins.
    fn to_job_progress(&self, local: f32) -> f32 {
        self.begin + (self.end - self.begin) * local
    }

    /// Reports the progress of this share. `progress` is from 0.0 to 1.0.
    #[doc(alias = "SetLocalProgress")]
    pub(crate) fn set_local_progress(&self, progress: f32, location: ProgressLocation) {
        if let Some(shared) = &self.shared {
            shared.reach(self.to_job_progress(progress), location);
        }
    }

    /// Begins the part of this share between `from` and `to`, and returns its logger.
    #[doc(alias = "CreateSubLoggerFromTo")]
    pub(crate) fn sub_logger(&self, from: f32, to: f32, location: ProgressLocation) -> Self {
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
            let done = |index| index as f32 / count as f32;
            (
                self.sub_logger(done(index), done(index + 1), location),
                item,
            )
        })
    }

    /// Returns a counter of items that several threads work on.
    pub(crate) fn counter(self, count: usize, location: ProgressLocation) -> ProgressCounter {
        ProgressCounter {
            logger: self,
            location,
            count,
            done: AtomicUsize::new(0),
        }
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
        let count = count.max(1);
        let (mut until_next, mut seen) = (0, 0);
        items.inspect(move |_| {
            if until_next == 0 {
                self.set_local_progress(seen as f32 / count as f32, location);
                until_next = step;
                seen += step;
            }
            until_next -= 1;
        })
    }
}

/// Counts the items that are done, on any thread. Dropping the counter marks the share as done.
#[derive(Debug)]
pub(crate) struct ProgressCounter {
    logger: ProgressLogger,
    location: ProgressLocation,
    count: usize,
    done: AtomicUsize,
}

impl ProgressCounter {
    /// Reports the items that are done, and counts the next ones.
    pub(crate) fn count(&self, items: usize) {
        let done = self.done.fetch_add(items, Ordering::Relaxed);
        let proportion = done as f32 / self.count.max(1) as f32;
        self.logger
            .set_local_progress(proportion.min(1.0), self.location);
    }
}

impl Drop for ProgressLogger {
    fn drop(&mut self) {
        self.set_local_progress(1.0, self.end_location);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_location_names_each_location() {
        for (number, (location, name)) in LOCATIONS.into_iter().enumerate() {
            let progress = SharedProgress::new();
            progress.reach(0.0, location);
            assert_eq!(
                (location as usize, progress.last_location()),
                (number, name)
            );
        }
    }

    #[test]
    fn clones_share_progress_that_never_decreases() {
        let progress = SharedProgress::new();
        assert_eq!(
            (progress.proportion(), progress.last_location()),
            (0.0, "not begun")
        );
        let (clone, half) = (progress.clone(), 0.5);
        clone.reach(half, ProgressLocation::Names);
        assert_eq!(
            (progress.proportion(), progress.last_location()),
            (0.5, "naming addresses")
        );
        clone.reach(0.0, ProgressLocation::Done);
        assert_eq!(
            (progress.proportion(), progress.last_location()),
            (0.5, "naming addresses")
        );
        clone.reach(1.0, ProgressLocation::Done);
        assert_eq!(progress.proportion(), 1.0);
        assert!(progress == clone && progress != SharedProgress::new());
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
        job.set_local_progress(0.1, ProgressLocation::Meta);
        assert_at(&progress, 0.1, "meta");
        let threads = job.sub_logger(0.2, 0.8, ProgressLocation::Frames);
        assert_at(&progress, 0.2, "a thread's frames");
        threads.set_local_progress(0.5, ProgressLocation::Samples);
        assert_at(&progress, 0.5, "a thread's samples");
        let inner = threads.sub_logger(0.5, 1.0, ProgressLocation::Markers);
        inner.set_local_progress(0.5, ProgressLocation::Markers);
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
        job.set_local_progress(0.6, ProgressLocation::Names);
        job.set_local_progress(0.3, ProgressLocation::Samples);
        assert_at(&progress, 0.6, "naming addresses");
        drop(job);
        let _next = ProgressLogger::for_job(Some(&progress));
        assert_at(&progress, 0.0, "not begun");
    }

    #[test]
    fn counter_reports_the_items_of_all_threads() {
        let progress = SharedProgress::new();
        let job = ProgressLogger::for_job(Some(&progress));
        let counter = job.sub_logger(0.0, 0.5, ProgressLocation::Names);
        let counter = counter.counter(4, ProgressLocation::Names);
        for seen in [0.0, 0.125, 0.25, 0.375] {
            std::thread::scope(|scope| {
                scope.spawn(|| counter.count(1));
            });
            assert_at(&progress, seen, "naming addresses");
        }
        counter.count(1);
        assert_at(&progress, 0.5, "naming addresses");
    }

    #[test]
    fn loop_sub_loggers_split_share_equally() {
        let progress = SharedProgress::new();
        let job = ProgressLogger::for_job(Some(&progress));
        let list = job.sub_logger(0.0, 0.8, ProgressLocation::Frames);
        let mut seen = Vec::new();
        for (share, item) in list.loop_sub_loggers(["a", "b", "c", "d"], ProgressLocation::Samples)
        {
            share.set_local_progress(0.5, ProgressLocation::Markers);
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
        let rows = job.sub_logger(0.8, 1.0, ProgressLocation::Markers);
        let mut last = progress.proportion();
        for row in rows.watch(0..1024, 1024, ProgressLocation::Markers) {
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
        job.sub_logger(0.01, 0.02, ProgressLocation::Meta)
            .set_local_progress(1.0, ProgressLocation::Meta);
    }
}
