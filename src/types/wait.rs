//! What a blocked thread waits for.

/// What a thread waits for that is blocked in the kernel. The place of the innermost function tells
/// it: the system call, or the functions that made that call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub(crate) enum Wait {
    /// Something that the place does not tell.
    Other,
    Lock,
    /// A file descriptor: a connection, a pipe, a poll.
    Io,
    /// The passing of time.
    Timer,
    /// Work from other threads or processes: a condition variable, a parked thread, a child.
    Work,
    /// A futex: the functions that called it tell whether it is a lock or work.
    Futex,
}

/// Index of “Idle” among the categories.
pub(crate) const IDLE_INDEX: u8 = 0;

impl Wait {
    pub(crate) const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::Other,
            1 => Self::Lock,
            2 => Self::Io,
            3 => Self::Timer,
            4 => Self::Work,
            5 => Self::Futex,
            _ => return None,
        })
    }

    pub(crate) const fn to_byte(self) -> u8 {
        self as u8
    }

    /// Returns the index of the wait's subcategory of “Idle” in a profile.
    pub(crate) const fn subcategory(self) -> u8 {
        match self {
            Self::Futex => Self::Other as u8,
            other => other as u8,
        }
    }

    /// Returns what a thread waits for in these functions, innermost first. Only a futex needs them.
    pub(crate) fn in_functions<'n>(self, names: impl IntoIterator<Item = &'n str>) -> Self {
        /// Maximum number of functions between a lock's and the system call.
        const MAX_FUNCTIONS: usize = 12;
        const LOCKS: [&str; 8] = [
            "lock_contended",
            "read_contended",
            "write_contended",
            "lock_slow",
            "lll_lock_wait",
            "mutex_lock",
            "mutex_timedlock",
            "_rwlock_",
        ];
        const TIMERS: [&str; 2] = ["thread::sleep", "nanosleep"];
        const WORK: [&str; 12] = [
            "condvar",
            "cond_wait",
            "cond_timedwait",
            "cond_clockwait",
            "park",
            "join",
            "sem_wait",
            "sem_clockwait",
            "barrier",
            "recv",
            "once",
            "wait_group",
        ];
        if self != Self::Futex {
            return self;
        }
        for name in names.into_iter().take(MAX_FUNCTIONS) {
            let name = name.to_ascii_lowercase();
            let has_any = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
            if has_any(&LOCKS) {
                return Self::Lock;
            } else if has_any(&TIMERS) {
                return Self::Timer;
            } else if has_any(&WORK) {
                return Self::Work;
            }
        }
        Self::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_round_trips_and_has_a_subcategory() {
        for byte in 0..=6 {
            let wait = Wait::from_byte(byte);
            assert_eq!(wait.map(Wait::to_byte), Some(byte).filter(|byte| *byte < 6));
            assert!(wait.is_none_or(|wait| wait.subcategory() < 5));
        }
    }

    #[test]
    fn functions_around_a_futex_tell_the_wait() {
        let wait = |names: &[&str]| Wait::Futex.in_functions(names.iter().copied());
        let mutex = "std::sys::sync::mutex::futex::Mutex::lock_contended";
        assert_eq!(wait(&["syscall", mutex, "park"]), Wait::Lock);
        let condvar = "std::sys::sync::condvar::futex::Condvar::wait_optional_timeout";
        assert_eq!(wait(&["syscall", "futex_wait", condvar]), Wait::Work);
        assert_eq!(
            wait(&[
                "__futex_abstimed_wait_common64",
                "pthread_cond_wait@@GLIBC_2.3.2"
            ]),
            Wait::Work
        );
        assert_eq!(
            wait(&["__futex_abstimed_wait_common64", "__pthread_clockjoin_ex"]),
            Wait::Work
        );
        assert_eq!(wait(&["__lll_lock_wait", "pthread_mutex_lock"]), Wait::Lock);
        assert_eq!(wait(&["syscall", "main"]), Wait::Other);
        assert_eq!(Wait::Timer.in_functions([mutex]), Wait::Timer);
    }
}
