//! The profile of a child process, as text that is written without a copy.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::platform::FileMapping;

/// The text of a child's profile.
pub(crate) enum ChildText {
    Memory(String),
    /// A file that only this process can reach.
    File(FileMapping),
}

impl Deref for ChildText {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Memory(text) => text.as_bytes(),
            Self::File(mapping) => mapping,
        }
    }
}

/// Shows the length only: the text may be long.
impl fmt::Debug for ChildText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

/// The place of one process's profile in the text, without those of its own child processes.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct ProcessPlace {
    /// The whole object.
    pub(crate) object: Range<usize>,
    /// The lists of child processes in it. An empty list takes the place of each.
    pub(crate) lists: Vec<Range<usize>>,
}

/// A valid profile of a child process. Clones share the text.
#[derive(Clone, Debug)]
pub(crate) struct ChildProfile {
    shared: Arc<(ChildText, Vec<ProcessPlace>)>,
    epoch_ms: Option<Range<f64>>,
}

impl ChildProfile {
    /// Creates a profile with these processes, whose places lie within the text. `epoch_ms` is the time
    /// that it covers.
    pub(crate) fn new(
        text: ChildText,
        processes: Vec<ProcessPlace>,
        epoch_ms: Option<Range<f64>>,
    ) -> Self {
        Self {
            shared: Arc::new((text, processes)),
            epoch_ms,
        }
    }

    /// Returns the whole text, which contains the profiles of the child's own child processes.
    pub(crate) fn text(&self) -> &[u8] {
        &self.shared.0
    }

    /// Returns the size of the text, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.text().len() as u64
    }

    /// Returns the start and the end of the time that the profile covers, in milliseconds since 1970,
    /// if it says so.
    pub(crate) fn epoch_ms(&self) -> Option<Range<f64>> {
        self.epoch_ms.clone()
    }

    /// Calls `write` with the profile of each process, in pieces, and whether a piece is the first of
    /// a process. The list of child processes in each is empty, because the viewer shows only one
    /// level of child processes.
    pub(crate) fn for_each_piece(&self, mut write: impl FnMut(bool, &[u8])) {
        let (text, processes) = &*self.shared;
        for process in processes {
            let mut begin = process.object.start;
            for list in &process.lists {
                write(begin == process.object.start, &text[begin..list.start]);
                write(false, b"[]");
                begin = list.end;
            }
            write(
                begin == process.object.start,
                &text[begin..process.object.end],
            );
        }
    }
}
