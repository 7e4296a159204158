//! What a thread waits for, and why a sample of a running thread has no stack.

use crate::types::signal_name;

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

/// Why a sample of a running thread has no stack.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum NoStack {
    /// The thread used the CPU time after its last sample.
    RanBetween,
    /// The thread must not be interrupted: it is not one of the C library's, for example.
    NotInterruptible,
    /// The thread blocks this signal.
    Blocked(i32),
    /// Another handler has taken the place of the profiler's for this signal.
    Replaced(i32),
}

/// CPU time of a thread that no sample found running.
pub(crate) const RAN_BETWEEN_SAMPLES: &str = "(ran between samples)";

/// The beginning of every other text.
const NO_STACK: &str = "(no stack: ";

impl NoStack {
    /// The number of the first reason with a signal. Signals have numbers below 100.
    const BLOCKED: i32 = 100;
    const REPLACED: i32 = 200;

    pub(crate) fn to_number(self) -> i32 {
        match self {
            Self::RanBetween => 0,
            Self::NotInterruptible => 1,
            Self::Blocked(signal) => Self::BLOCKED + signal,
            Self::Replaced(signal) => Self::REPLACED + signal,
        }
    }

    pub(crate) fn from_number(number: u64) -> Option<Self> {
        Some(match i32::try_from(number).ok()? {
            0 => Self::RanBetween,
            1 => Self::NotInterruptible,
            number @ Self::BLOCKED..Self::REPLACED => Self::Blocked(number - Self::BLOCKED),
            number @ Self::REPLACED..300 => Self::Replaced(number - Self::REPLACED),
            _ => return None,
        })
    }

    /// Returns the text that the profile shows instead of the stack.
    pub(crate) fn text(self) -> String {
        match self {
            Self::RanBetween => RAN_BETWEEN_SAMPLES.to_owned(),
            Self::NotInterruptible => format!("{NO_STACK}the thread cannot be interrupted)"),
            Self::Blocked(signal) => {
                format!("{NO_STACK}the thread blocks {})", signal_name(signal))
            }
            Self::Replaced(signal) => {
                let signal = signal_name(signal);
                format!("{NO_STACK}the handler of {signal} was replaced)")
            }
        }
    }

    /// Returns whether this is one of the texts.
    pub(crate) fn is_text(text: &str) -> bool {
        text == RAN_BETWEEN_SAMPLES || text.starts_with(NO_STACK)
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

    #[test]
    fn reasons_round_trip_and_have_texts() {
        let reasons: Vec<_> = (0..300).filter_map(NoStack::from_number).collect();
        assert_eq!(reasons.len(), 202);
        for reason in reasons {
            let number = reason.to_number().unsigned_abs();
            assert_eq!(NoStack::from_number(number.into()), Some(reason));
            assert!(NoStack::is_text(&reason.text()));
        }
        let text = NoStack::Blocked(23).text();
        assert_eq!(text, "(no stack: the thread blocks SIGURG)");
        assert!(!NoStack::is_text("(root)") && NoStack::from_number(300).is_none());
    }
}
