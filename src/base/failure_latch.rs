//! The first failure is kept, and everything after it is skipped.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

/// Carries the first failure of a long job to its caller; later ones are consequences and are dropped.
///
/// A clone is the same latch, so that all who work at the job ask the same one whether it is worth going on.
#[doc(alias = "FailureLatchProxy")]
#[derive(Clone, Debug)]
pub(crate) struct FailureLatch(Rc<Source>);

#[derive(Debug)]
struct Source {
    is_fallible: bool,
    state: RefCell<State>,
}

#[derive(Debug)]
enum State {
    Well,
    Failed(io::Error),
    /// The failure was handed to the caller; this is its kind.
    Told(io::ErrorKind),
}

impl FailureLatch {
    /// For a job that may fail.
    #[doc(alias = "FailureLatchSource")]
    pub(crate) fn fallible() -> Self {
        Self::new(true)
    }

    /// For a job of which nothing can fail. Should it fail all the same, a debug build panics, and any other keeps the
    /// failure: a host is not ended.
    #[doc(alias = "FailureLatchInfallibleSource")]
    pub(crate) fn infallible() -> Self {
        Self::new(false)
    }

    fn new(is_fallible: bool) -> Self {
        Self(Rc::new(Source {
            is_fallible,
            state: RefCell::new(State::Well),
        }))
    }

    /// Whether anything has failed, so that what is still done is for nothing.
    pub(crate) fn failed(&self) -> bool {
        !matches!(*self.0.state.borrow(), State::Well)
    }

    pub(crate) fn set_failure(&self, failure: io::Error) {
        debug_assert!(self.0.is_fallible, "what cannot fail has failed: {failure}");
        let mut state = self.0.state.borrow_mut();
        if matches!(*state, State::Well) {
            *state = State::Failed(failure);
        }
    }

    /// How the job went. The failure itself is handed over once; who asks again gets its kind.
    ///
    /// # Errors
    /// The first failure.
    pub(crate) fn result(&self) -> io::Result<()> {
        let mut state = self.0.state.borrow_mut();
        match std::mem::replace(&mut *state, State::Well) {
            State::Well => Ok(()),
            State::Failed(failure) => {
                *state = State::Told(failure.kind());
                Err(failure)
            }
            State::Told(kind) => {
                *state = State::Told(kind);
                Err(kind.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk_full() -> io::Error {
        io::Error::new(io::ErrorKind::StorageFull, "disk full")
    }

    #[test]
    fn the_first_failure_is_the_one_that_is_told() {
        let latch = FailureLatch::fallible();
        assert!(!latch.failed() && latch.result().is_ok());
        latch.set_failure(disk_full());
        latch.set_failure(io::Error::other("consequence"));
        assert!(latch.failed());
        assert_eq!(latch.result().unwrap_err().to_string(), "disk full");
        latch.set_failure(io::Error::other("late consequence"));
        assert!(latch.failed());
        assert_eq!(
            latch.result().unwrap_err().kind(),
            io::ErrorKind::StorageFull
        );
    }

    #[test]
    fn a_clone_is_the_same_latch() {
        let latch = FailureLatch::fallible();
        let (writer, maker) = (latch.clone(), latch.clone());
        writer.set_failure(disk_full());
        assert!(maker.failed() && latch.failed());
        drop(writer);
        maker.set_failure(io::Error::other("consequence"));
        assert_eq!(latch.result().unwrap_err().to_string(), "disk full");
        assert!(
            !FailureLatch::fallible().failed(),
            "another job's is another"
        );
    }

    #[test]
    fn an_infallible_one_is_well() {
        let latch = FailureLatch::infallible();
        assert!(!latch.failed() && latch.clone().result().is_ok());
    }

    #[test]
    #[cfg_attr(
        debug_assertions,
        should_panic(expected = "what cannot fail has failed: disk full")
    )]
    fn a_failure_of_an_infallible_one_is_a_mistake_of_ours_and_kept() {
        let latch = FailureLatch::infallible();
        latch.set_failure(disk_full());
        assert_eq!(latch.result().unwrap_err().to_string(), "disk full");
    }
}
