//! Progress of a long job, for other threads to read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::util::progress::proportion_value::ProportionValue;

/// The part of a profile that a job works on, in the order of the profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ProgressLocation {
    NotBegun,
    Entries,
    Libraries,
    Meta,
    Pages,
    Overheads,
    Counters,
    Names,
    Frames,
    Samples,
    Markers,
    Tables,
    Log,
    ChildProfiles,
    Done,
}

const LOCATIONS: [(ProgressLocation, &str); 15] = [
    (ProgressLocation::NotBegun, "not begun"),
    (ProgressLocation::Entries, "reading the buffer"),
    (ProgressLocation::Libraries, "libs"),
    (ProgressLocation::Meta, "meta"),
    (ProgressLocation::Pages, "pages"),
    (ProgressLocation::Overheads, "profilerOverhead"),
    (ProgressLocation::Counters, "counters"),
    (ProgressLocation::Names, "naming addresses"),
    (ProgressLocation::Frames, "a thread's frames"),
    (ProgressLocation::Samples, "a thread's samples"),
    (ProgressLocation::Markers, "a thread's markers"),
    (ProgressLocation::Tables, "a thread's tables"),
    (ProgressLocation::Log, "profilingLog"),
    (ProgressLocation::ChildProfiles, "processes"),
    (ProgressLocation::Done, "done"),
];

/// Progress of writing a profile: one thread writes, others poll it.
///
/// Clones share one progress. Pass it to the writer by
/// [`SnapshotOptions::progress`](crate::profile::SnapshotOptions::progress). Each writer resets it to 0, so
/// concurrent writers need one each.
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
pub struct SharedProgress {
    /// The proportion in the high 32 bits, the location in the low ones, so that later progress is
    /// a greater number.
    word: Arc<AtomicU64>,
}

impl SharedProgress {
    /// Creates a progress of 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the proportion that is done, from 0.0 to 1.0.
    ///
    /// It never decreases while a profile is written, and is 1.0 once the writer has returned, even
    /// with an error. May be called on any thread. Cost: one atomic load.
    pub fn proportion(&self) -> f64 {
        ProportionValue::from_bits((self.word.load(Ordering::Acquire) >> 32) as u32).to_f64()
    }

    /// Returns the name of the part of the profile that was begun last.
    ///
    /// May be called on any thread. Cost: one atomic load.
    pub fn last_location(&self) -> &'static str {
        let number = self.word.load(Ordering::Acquire) as u32;
        LOCATIONS.get(number as usize).map_or("", |(_, name)| name)
    }

    /// Resets the progress at the beginning of a job.
    #[cfg(has_profiler)]
    pub(crate) fn begin(&self) {
        self.word.store(0, Ordering::Release);
    }

    /// Raises the progress to this value, unless it is already greater. Ignores invalid values.
    pub(crate) fn reach(&self, progress: ProportionValue, location: ProgressLocation) {
        if progress.is_valid() {
            let word = u64::from(progress.to_bits()) << 32 | location as u64;
            self.word.fetch_max(word, Ordering::AcqRel);
        }
    }
}

/// Compares by identity: clones are equal.
impl PartialEq for SharedProgress {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.word, &other.word)
    }
}

impl Eq for SharedProgress {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_location_names_each_location() {
        for (number, (location, name)) in LOCATIONS.into_iter().enumerate() {
            let progress = SharedProgress::new();
            progress.reach(ProportionValue::from_bits(0), location);
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
        let (clone, half) = (progress.clone(), ProportionValue::from_bits(1 << 30));
        clone.reach(half, ProgressLocation::Names);
        assert_eq!(
            (progress.proportion(), progress.last_location()),
            (0.5, "naming addresses")
        );
        clone.reach(ProportionValue::from_bits(0), ProgressLocation::Done);
        clone.reach(ProportionValue::INVALID, ProgressLocation::Done);
        assert_eq!(
            (progress.proportion(), progress.last_location()),
            (0.5, "naming addresses")
        );
        clone.reach(ProportionValue::ONE, ProgressLocation::Done);
        assert_eq!(progress.proportion(), 1.0);
        assert!(progress == clone && progress != SharedProgress::new());
    }
}
