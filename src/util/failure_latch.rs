//! Keeps the first failure of a job, so that the work after it is skipped.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

/// Carries the first failure of a long job to its caller. Later failures are consequences and are
/// dropped.
///
/// Clones share one latch, so that all parts of the job can check whether it has failed.
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
    NotFailed,
    Failed(io::Error),
    /// The failure was returned to the caller; this is its kind.
    Returned(io::ErrorKind),
}

impl FailureLatch {
    /// Creates a latch for a job that may fail.
    #[doc(alias = "FailureLatchSource")]
    pub(crate) fn fallible() -> Self {
        Self::new(true)
    }

    /// Creates a latch for a job that cannot fail.
    ///
    /// If it fails anyway, a debug build panics. A release build keeps the failure, because a panic
    /// could end the application.
    #[doc(alias = "FailureLatchInfallibleSource")]
    pub(crate) fn infallible() -> Self {
        Self::new(false)
    }

    fn new(is_fallible: bool) -> Self {
        Self(Rc::new(Source {
            is_fallible,
            state: RefCell::new(State::NotFailed),
        }))
    }

    /// Returns whether the job has failed, so that further work on it is useless.
    pub(crate) fn failed(&self) -> bool {
        !matches!(*self.0.state.borrow(), State::NotFailed)
    }

    pub(crate) fn set_failure(&self, failure: io::Error) {
        debug_assert!(self.0.is_fallible, "infallible job failed: {failure}");
        let mut state = self.0.state.borrow_mut();
        if matches!(*state, State::NotFailed) {
            *state = State::Failed(failure);
        }
    }

    /// Returns the job's result. The first call after a failure returns the failure itself, later
    /// calls only its kind.
    ///
    /// # Errors
    /// The first failure.
    pub(crate) fn result(&self) -> io::Result<()> {
        let mut state = self.0.state.borrow_mut();
        match std::mem::replace(&mut *state, State::NotFailed) {
            State::NotFailed => Ok(()),
            State::Failed(failure) => {
                *state = State::Returned(failure.kind());
                Err(failure)
            }
            State::Returned(kind) => {
                *state = State::Returned(kind);
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
    fn result_returns_first_failure() {
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
    fn clones_share_failure() {
        let latch = FailureLatch::fallible();
        let (writer, maker) = (latch.clone(), latch.clone());
        writer.set_failure(disk_full());
        assert!(maker.failed() && latch.failed());
        drop(writer);
        maker.set_failure(io::Error::other("consequence"));
        assert_eq!(latch.result().unwrap_err().to_string(), "disk full");
        assert!(
            !FailureLatch::fallible().failed(),
            "a new latch is independent"
        );
    }

    #[test]
    fn infallible_latch_without_failure_is_ok() {
        let latch = FailureLatch::infallible();
        assert!(!latch.failed() && latch.clone().result().is_ok());
    }

    #[test]
    #[cfg_attr(
        debug_assertions,
        should_panic(expected = "infallible job failed: disk full")
    )]
    fn infallible_latch_keeps_failure_or_panics_in_debug_builds() {
        let latch = FailureLatch::infallible();
        latch.set_failure(disk_full());
        assert_eq!(latch.result().unwrap_err().to_string(), "disk full");
    }
}
