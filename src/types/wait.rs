//! What a thread waits for.

/// What a thread waits for. If it is blocked in the kernel, the place of the innermost function
/// tells it: the system call, or the functions that made that call.
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
    /// A processor: the thread could run.
    Processor,
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
            6 => Self::Processor,
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
            Self::Processor => Self::Futex as u8,
            other => other as u8,
        }
    }

    /// Returns what a thread waits for in these functions, innermost first. Only a futex needs them.
    pub(crate) fn in_functions<'n>(self, names: impl IntoIterator<Item = &'n str>) -> Self {
        /// Maximum number of functions between the one that waits and the system call.
        const MAX_FUNCTIONS: usize = 12;
        // Looked for first: a lock may park its thread.
        const LOCKS: [&str; 10] = [
            "lock_contended",
            "read_contended",
            "write_contended",
            "lock_slow",
            "lock_shared_slow",
            "lock_exclusive_slow",
            "lll_lock_wait",
            "pthread_mutex_lock",
            "pthread_mutex_timedlock",
            "pthread_rwlock_",
        ];
        const TIMERS: [&str; 2] = ["thread::sleep", "nanosleep"];
        const WORK: [&str; 10] = [
            "condvar",
            "pthread_cond_",
            "thread::park",
            "parker::park",
            "parking_lot::park",
            "clockjoin",
            "pthread_join",
            "sem_wait",
            "sem_clockwait",
            "pthread_barrier_wait",
        ];
        const KINDS: [(&[&str], Wait); 3] = [
            (&LOCKS, Wait::Lock),
            (&TIMERS, Wait::Timer),
            (&WORK, Wait::Work),
        ];
        if self != Self::Futex {
            return self;
        }
        let names = names.into_iter().take(MAX_FUNCTIONS);
        let names: Vec<_> = names.map(str::to_ascii_lowercase).collect();
        let is_in = |parts: &[&str]| {
            let has_any = |name: &String| parts.iter().any(|part| name.contains(part));
            names.iter().any(has_any)
        };
        let kind = KINDS.iter().find(|(parts, _)| is_in(parts));
        kind.map_or(Self::Other, |(_, wait)| *wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_round_trips_and_has_a_subcategory() {
        for byte in 0..=7 {
            let wait = Wait::from_byte(byte);
            assert_eq!(wait.map(Wait::to_byte), Some(byte).filter(|byte| *byte < 7));
            assert!(wait.is_none_or(|wait| wait.subcategory() < 6));
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
        let parked = [
            "parking_lot_core::parking_lot::park",
            "parking_lot::raw_mutex::RawMutex::lock_slow",
        ];
        assert_eq!(wait(&parked), Wait::Lock);
        assert_eq!(wait(&parked[..1]), Wait::Work);
        assert_eq!(wait(&["syscall", "spark::nonce::rejoin"]), Wait::Other);
        assert_eq!(wait(&["syscall", "main"]), Wait::Other);
        assert_eq!(Wait::Timer.in_functions([mutex]), Wait::Timer);
    }
}
