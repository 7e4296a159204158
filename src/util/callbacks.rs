//! Calls into the application's code.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a callback of the application and catches its panic. The application's panic hook reports
/// the panic, by default on standard error.
pub(crate) fn run_callback(body: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(body)) {
        // Dropping the payload runs the application's code again, which may panic again.
        std::mem::forget(payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct PanicsAgain;

    impl Drop for PanicsAgain {
        fn drop(&mut self) {
            panic!("on purpose, in drop");
        }
    }

    #[test]
    fn run_callback_catches_panics_of_callback_and_payload() {
        run_callback(|| std::panic::panic_any(PanicsAgain));
        let mut is_called = false;
        run_callback(|| is_called = true);
        assert!(is_called);
    }
}
