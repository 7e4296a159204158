//! Reads the last profiles of children, which may be long, on threads of their own. The hub's
//! thread is never slow, so it does not charge one child's slowness to another.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::platform::{
    FileMapping, Receiver, channel, spawn_profiler_thread, with_signals_blocked,
};
use crate::session::child_profile;
use crate::state::{ChildProfile, ChildText};

/// Maximum number of profiles that are read at the same time.
const MAX_READERS: u32 = 2;

/// A last profile that has arrived.
#[derive(Debug)]
pub(super) enum Reading {
    None,
    /// It waits for its turn.
    Waiting(FileMapping),
    /// A thread reads it.
    Running(Receiver<Option<ChildProfile>>),
    /// It was read, or cannot be read.
    Done(Option<ChildProfile>),
}

impl Reading {
    pub(super) fn is_pending(&self) -> bool {
        !matches!(self, Self::None)
    }
}

/// The number of threads that read.
#[derive(Clone, Debug, Default)]
pub(super) struct Readers(Arc<AtomicU32>);

impl Readers {
    /// Returns what has become of the profile since the last look.
    pub(super) fn look(&self, reading: Reading) -> Reading {
        match reading {
            Reading::Waiting(text) if self.0.load(Ordering::Acquire) < MAX_READERS => {
                self.begin(text)
            }
            Reading::Running(result) => match result.receive_within(std::time::Duration::ZERO) {
                Some(profile) => Reading::Done(profile),
                None => Reading::Running(result),
            },
            other => other,
        }
    }

    fn begin(&self, text: FileMapping) -> Reading {
        let (send, result) = channel();
        let readers = self.clone();
        readers.0.fetch_add(1, Ordering::AcqRel);
        let read = move || {
            let profile = catch_unwind(AssertUnwindSafe(|| read_profile(text)));
            readers.0.fetch_sub(1, Ordering::AcqRel);
            send.send(profile.unwrap_or(None));
        };
        match with_signals_blocked(|| spawn_profiler_thread(c"ProfilerReader", read)) {
            Ok(_) => Reading::Running(result),
            Err(_) => {
                self.0.fetch_sub(1, Ordering::AcqRel);
                Reading::Done(None)
            }
        }
    }
}

/// Reads a last profile. Returns `None` for another text.
pub(super) fn read_profile(text: FileMapping) -> Option<ChildProfile> {
    child_profile(ChildText::File(text)).ok()
}
