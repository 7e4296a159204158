//! How far a long job is, for whoever waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::proportion_value::ProportionValue;

/// Where a job is, in the order of a profile.
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

/// How far the writing of a profile is, for a host to poll while another thread writes.
///
/// A clone is the same one. It goes to the writing in [`SnapshotOptions::progress`](crate::profile::SnapshotOptions::progress);
/// each writing that it is given to begins at 0 again, so several at once want one each.
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
    /// The proportion's bits, then the number of the location, so that a greater number is later.
    word: Arc<AtomicU64>,
}

impl SharedProgress {
    /// Of nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// From 0.0 to 1.0. It never goes back while a profile is written, and is 1.0 when that has ended, well or not. From
    /// any thread; one atomic load.
    pub fn proportion(&self) -> f64 {
        ProportionValue::from_bits((self.word.load(Ordering::Acquire) >> 32) as u32).to_f64()
    }

    /// Which part of the profile was last begun, for people to read. From any thread; one atomic load.
    pub fn last_location(&self) -> &'static str {
        let number = self.word.load(Ordering::Acquire) as u32;
        LOCATIONS.get(number as usize).map_or("", |(_, name)| name)
    }

    /// A job begins.
    #[cfg(has_profiler)]
    pub(super) fn begin(&self) {
        self.word.store(0, Ordering::Release);
    }

    /// A job is there, or further already.
    pub(crate) fn reach(&self, progress: ProportionValue, location: ProgressLocation) {
        if progress.is_valid() {
            let word = u64::from(progress.to_bits()) << 32 | location as u64;
            self.word.fetch_max(word, Ordering::AcqRel);
        }
    }
}

/// Whether they are the same one.
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
    fn each_location_has_its_name() {
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
    fn a_clone_is_the_same_one_and_goes_up_alone() {
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
