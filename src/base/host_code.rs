//! Calling code of the host's.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls it; a panic of its ends here. The message is on standard error, by the host's panic hook.
pub(crate) fn call_host(body: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(body)) {
        // To drop it is to run code of the host's again, which may panic again.
        std::mem::forget(payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct PanicsAgain;

    impl Drop for PanicsAgain {
        fn drop(&mut self) {
            panic!("on purpose, when it is dropped");
        }
    }

    #[test]
    fn a_panic_ends_in_the_hosts_code_and_so_does_that_of_its_payload() {
        call_host(|| std::panic::panic_any(PanicsAgain));
        let mut is_called = false;
        call_host(|| is_called = true);
        assert!(is_called);
    }
}
