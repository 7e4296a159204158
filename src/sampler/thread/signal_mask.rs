//! Decides whether a thread counts as masking the sampling signal.
//!
//! While a thread waits for signals, as `sigwait` does, the kernel takes those signals out of its
//! mask. The signals are already out of the mask in the moment in which the thread begins to wait.
//! They stay out after a signal wakes the thread, until it gets a processor, which may take long.
//! In both cases the kernel reports that the thread runs. A sampling signal that is sent then is
//! the result of this `sigwait` or of the next one. So a thread that has masked the signal is taken
//! to mask it until it has run for a while without the signal in its mask.

use crate::types::TimeStamp;

/// Maximum CPU time that a thread needs to begin and end its waits for signals while the sampler
/// sees no wait, in ns. One wait takes some 10 µs. But a thread that waits in step with the ticks
/// may be seen awake on many ticks in a row.
const MAX_CHANGE_NS: u64 = 5_000_000;
/// This maximum for a thread that the sampler has not seen before, in ns. It is shorter, because
/// most threads never wait for signals, and are not sampled until then.
const MAX_FIRST_CHANGE_NS: u64 = 200_000;

/// CPU time that the handler takes at most, in ns.
const HANDLER_NS: u64 = 500_000;

/// What the kernel reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SeenMask {
    /// The thread masks the signal, or waits for it.
    Masked,
    /// The thread does not mask the signal, unless it begins or ends to wait for signals.
    PerhapsOpen,
    /// The thread does not mask the signal.
    Open,
}

/// What earlier questions have shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum SignalMask {
    /// The thread began before the sampling, and was not seen yet.
    Unknown,
    /// The thread was never seen to mask the signal since its last answer.
    #[default]
    Open,
    /// The thread masks the signal, or waits for it. The sampler first saw this when the thread's
    /// CPU time was `since_ns`. A single report proves nothing: the kernel also reports the signal
    /// as masked while the handler runs.
    Masked { since_ns: u64 },
    /// The thread perhaps masked the signal earlier, and did not at this time. It is taken to mask it
    /// until its CPU time is larger than this.
    Opening { since: TimeStamp, until_ns: u64 },
}

impl SignalMask {
    /// Notes what the kernel reports. `now` is the time of the tick; `cpu_ns` is the thread's CPU
    /// time, or `None` if the kernel does not tell it. Returns whether the thread is to be taken to
    /// mask the signal.
    pub(super) fn note(&mut self, seen: SeenMask, now: TimeStamp, cpu_ns: Option<u64>) -> bool {
        let opening = |change_ns| Self::Opening {
            since: now,
            until_ns: cpu_ns.unwrap_or(0).saturating_add(change_ns),
        };
        *self = match (seen, *self) {
            (SeenMask::Masked, Self::Masked { .. }) => *self,
            (SeenMask::Masked, _) => Self::Masked {
                since_ns: cpu_ns.unwrap_or(0),
            },
            (SeenMask::Open, _) | (SeenMask::PerhapsOpen, Self::Open) => Self::Open,
            (SeenMask::PerhapsOpen, Self::Unknown) => opening(MAX_FIRST_CHANGE_NS),
            (SeenMask::PerhapsOpen, Self::Masked { .. }) => opening(MAX_CHANGE_NS),
            (SeenMask::PerhapsOpen, Self::Opening { since, until_ns }) => {
                let has_run = cpu_ns.map_or(now > since, |cpu_ns| cpu_ns > until_ns);
                if has_run { Self::Open } else { *self }
            }
        };
        *self != Self::Open
    }

    /// Returns whether the thread certainly masks the signal, and not only while the handler runs.
    pub(super) fn is_masked(self, cpu_ns: Option<u64>) -> bool {
        let longer_than_handler =
            |since_ns| cpu_ns.is_none_or(|cpu_ns| cpu_ns > since_ns + HANDLER_NS);
        matches!(self, Self::Masked { since_ns } if longer_than_handler(since_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::SeenMask::{Masked, Open, PerhapsOpen};
    use super::*;

    /// Returns the answers to questions: what the kernel reports, the tick and the CPU time in µs.
    fn answers(questions: &[(SeenMask, u64, Option<u64>)]) -> Vec<bool> {
        answers_from(SignalMask::default(), questions)
    }

    fn answers_from(mut mask: SignalMask, questions: &[(SeenMask, u64, Option<u64>)]) -> Vec<bool> {
        let mut ask = |&(seen, tick, cpu_us): &(SeenMask, u64, Option<u64>)| {
            mask.note(seen, TimeStamp(tick), cpu_us.map(|us| us * 1_000))
        };
        questions.iter().map(&mut ask).collect()
    }

    #[test]
    fn thread_that_never_masked_the_signal_gets_it_at_once() {
        assert_eq!(
            answers(&[(PerhapsOpen, 1, Some(0)), (PerhapsOpen, 1, None)]),
            [false, false]
        );
    }

    #[test]
    fn thread_that_began_earlier_gets_it_when_it_has_run() {
        let begins_to_wait = [
            (PerhapsOpen, 1, Some(100)),
            // It waits for a processor.
            (PerhapsOpen, 2, Some(100)),
            (Masked, 3, Some(110)),
            (PerhapsOpen, 4, Some(400)),
        ];
        assert_eq!(
            answers_from(SignalMask::Unknown, &begins_to_wait),
            [true; 4]
        );
        let works = [(PerhapsOpen, 1, Some(100)), (PerhapsOpen, 2, Some(1_100))];
        assert_eq!(answers_from(SignalMask::Unknown, &works), [true, false]);
    }

    #[test]
    fn woken_thread_masks_the_signal_until_it_has_run() {
        let woken = [
            (Masked, 1, Some(100)),
            // It waits for a processor.
            (PerhapsOpen, 2, Some(100)),
            (PerhapsOpen, 3, Some(100)),
            // It gets one, and masks the signal again.
            (Masked, 4, Some(120)),
            (PerhapsOpen, 5, Some(130)),
            // It works without the signal in its mask.
            (PerhapsOpen, 6, Some(5_131)),
            (PerhapsOpen, 7, Some(5_131)),
        ];
        let expected = [true, true, true, true, true, false, false];
        assert_eq!(answers(&woken), expected);
    }

    #[test]
    fn thread_that_waits_in_step_with_the_ticks_masks_the_signal() {
        // It is never seen in one of its waits, each of which takes 10 µs.
        let awake = (2..=500).map(|tick| (PerhapsOpen, tick, Some(tick * 10)));
        let seen: Vec<_> = [(Masked, 1, Some(10))].into_iter().chain(awake).collect();
        assert!(answers(&seen).into_iter().all(|masks| masks));
    }

    #[test]
    fn thread_without_a_clock_is_asked_on_two_ticks() {
        let asked = [
            (Masked, 1, None),
            (PerhapsOpen, 2, None),
            (PerhapsOpen, 2, None),
            (PerhapsOpen, 3, None),
        ];
        assert_eq!(answers(&asked), [true, true, true, false]);
    }

    #[test]
    fn thread_that_surely_does_not_mask_the_signal_gets_it_at_once() {
        let asked = [
            (Masked, 1, Some(100)),
            (Open, 2, Some(100)),
            (PerhapsOpen, 3, Some(100)),
        ];
        assert_eq!(answers(&asked), [true, false, false]);
    }
}
