//! The C library's `errno`, kept for code that runs inside a function of the application.
//!
//! Runs in the signal handler.

use nix::errno::Errno;

/// Restores `errno` when dropped.
#[derive(Debug)]
pub(crate) struct KeptErrno(i32);

impl KeptErrno {
    pub(crate) fn new() -> Self {
        Self(Errno::last_raw())
    }
}

impl Drop for KeptErrno {
    fn drop(&mut self) {
        Errno::set_raw(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errno_is_restored() {
        Errno::ENOENT.set();
        {
            let _kept = KeptErrno::new();
            Errno::EINTR.set();
        }
        assert_eq!(Errno::last(), Errno::ENOENT);
    }
}
