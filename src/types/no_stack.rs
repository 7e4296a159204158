//! Why a sample of a running thread has no stack.

use crate::types::signal_name;

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
