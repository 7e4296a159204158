//! The first failure is kept, and everything after it is skipped.

use std::io;

/// Carries the first failure of a long job to its caller; later ones are consequences and are dropped.
#[doc(alias = "FailureLatchSource")]
#[derive(Default, Debug)]
pub(crate) struct FailureLatch {
    failure: Option<io::Error>,
}

impl FailureLatch {
    pub(crate) fn failed(&self) -> bool {
        self.failure.is_some()
    }

    pub(crate) fn set_failure(&mut self, failure: io::Error) {
        self.failure.get_or_insert(failure);
    }

    pub(crate) fn into_result(self) -> io::Result<()> {
        self.failure.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_is_the_one_that_is_told() {
        let mut latch = FailureLatch::default();
        assert!(!latch.failed());
        latch.set_failure(io::Error::other("disk full"));
        latch.set_failure(io::Error::other("consequence"));
        assert!(latch.failed());
        assert_eq!(latch.into_result().unwrap_err().to_string(), "disk full");
    }
}
