//! The chunks of this process and its descendants, as one report for its own parent.
//!
//! The hub knows all of these chunks, and leaves its newest report here. The thread that talks to
//! the parent takes the report.

use crate::family::reports::ChunkReport;
use crate::util::{PsCell, PsLock};

#[derive(Debug, Default)]
struct Folded {
    /// Whether the parent asks for the chunks.
    is_wanted: bool,
    /// Whether the hub reports for this process, because it has had children in this session.
    is_by_hub: bool,
    newest: Option<ChunkReport>,
}

static FOLDED: PsCell<Folded> = PsCell::new(Folded {
    is_wanted: false,
    is_by_hub: false,
    newest: None,
});

/// Says whether the parent asks for the chunks.
pub(super) fn want_folded_chunks(is_wanted: bool) {
    FOLDED.get_mut(&mut PsLock::acquire()).is_wanted = is_wanted;
}

pub(super) fn are_folded_chunks_wanted() -> bool {
    FOLDED.get(&PsLock::acquire()).is_wanted
}

/// Leaves a report for the parent. It replaces an older one, because it says everything.
pub(super) fn leave_folded_chunks(report: ChunkReport) {
    let _older = {
        let mut lock = PsLock::acquire();
        let folded = FOLDED.get_mut(&mut lock);
        folded.is_by_hub = true;
        folded.newest.replace(report)
    };
}

/// Lets this process report its own chunks alone, from a new session on.
pub(super) fn end_folded_chunks() {
    let _older = {
        let mut lock = PsLock::acquire();
        let folded = FOLDED.get_mut(&mut lock);
        folded.is_by_hub = false;
        folded.newest.take()
    };
}

/// The chunks that the next report to the parent is about.
#[derive(Debug)]
pub(super) enum ToTell {
    /// The chunks of this process, without its descendants.
    Own,
    /// The chunks of this process and its descendants; `None` if they have not changed.
    Folded(Option<ChunkReport>),
}

pub(super) fn take_folded_chunks() -> ToTell {
    let mut lock = PsLock::acquire();
    let folded = FOLDED.get_mut(&mut lock);
    match folded.is_by_hub {
        false => ToTell::Own,
        true => ToTell::Folded(folded.newest.take()),
    }
}

/// Forgets the parent's report in the child of a fork.
pub(super) fn forget_folded_chunks_in_child(lock: &mut PsLock) {
    std::mem::forget(std::mem::take(FOLDED.get_mut(lock)));
}
