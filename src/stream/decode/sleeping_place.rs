//! Where a thread sleeps.

use crate::model::{MAX_SYSTEM_CALL_BYTES, UniqueStacks};
use crate::stream::decode::chunk_stacks::FrameKey;

/// The place where a thread sleeps: its callers' stack and its innermost frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct SleepingPlace {
    callers: Option<u32>,
    frame: u32,
}

impl SleepingPlace {
    /// Returns the place that all of a thread's stacks show, if it is one.
    ///
    /// A signal that interrupts a system call may find the thread at the instruction that calls the
    /// kernel, which is to run again. Read from outside, the thread is behind it. These are one
    /// place, and the result is the latter. It does not depend on the order of the stacks.
    pub(crate) fn of_all(
        of_thread: impl Iterator<Item = u32>,
        stacks: &UniqueStacks<FrameKey>,
    ) -> Option<Self> {
        let place = |stack: u32| {
            let &(callers, frame) = stacks.stacks().get(stack as usize)?;
            Some(Self { callers, frame })
        };
        let (mut lowest, mut highest): (Option<Self>, Option<Self>) = (None, None);
        for stack in of_thread {
            let other = place(stack)?;
            let (low, high) = (lowest.unwrap_or(other), highest.unwrap_or(other));
            if other == low || other == high {
                (lowest, highest) = (Some(low), Some(high));
                continue;
            }
            if other.callers != low.callers {
                return None;
            }
            let order = |place: Self| Order::of(stacks.frames().get(place.frame as usize)?);
            let (at, at_low, at_high) = (order(other)?, order(low)?, order(high)?);
            // Of equal ones, the reasons to wait differ, so they are two calls.
            let is_another = at == at_low || at == at_high;
            if is_another || !at.min(at_low).is_same_call(&at.max(at_high)) {
                return None;
            }
            lowest = Some(if at < at_low { other } else { low });
            highest = Some(if at > at_high { other } else { high });
        }
        highest
    }
}

/// What tells the frames of one system call apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Order {
    address: u64,
    /// Whether the reason of the wait is known.
    is_waiting: bool,
}

impl Order {
    fn of(frame: &FrameKey) -> Option<Self> {
        let (address, is_waiting) = match frame {
            FrameKey::Native(address) => (address, false),
            FrameKey::Waiting(address, _) => (address, true),
            _ => return None,
        };
        Some(Self {
            address: address.address.get(),
            is_waiting,
        })
    }

    /// Returns whether both are at or behind the instruction of one system call. `later` is not less.
    fn is_same_call(&self, later: &Self) -> bool {
        later.address - self.address <= MAX_SYSTEM_CALL_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbols::SampledAddress;
    use crate::types::{CodeAddress, Wait};

    #[test]
    fn interrupted_system_call_is_the_same_place() {
        let at = |address| SampledAddress {
            address: CodeAddress::new(address),
            is_return_address: false,
        };
        let mut stacks = UniqueStacks::default();
        let mut stack = |caller, innermost| {
            let caller = stacks.intern_frame(&FrameKey::Native(at(caller)));
            let callers = stacks.append_frame(None, caller);
            let innermost = stacks.intern_frame(&innermost);
            stacks.append_frame(Some(callers), innermost)
        };
        let before = stack(100, FrameKey::Native(at(0x7827)));
        let behind = stack(100, FrameKey::Native(at(0x7829)));
        let elsewhere = stack(100, FrameKey::Native(at(0x7839)));
        let by_others = stack(200, FrameKey::Native(at(0x7829)));
        let [in_io, in_poll] =
            [Wait::Io, Wait::Timer].map(|wait| stack(100, FrameKey::Waiting(at(0x7829), wait)));
        let of_all = |all: &[u32]| SleepingPlace::of_all(all.iter().copied(), &stacks);
        let place = of_all(&[behind]).expect("a place");
        assert_eq!(of_all(&[before, behind, behind]), Some(place));
        assert_eq!(of_all(&[behind, before]), Some(place));
        assert_ne!(of_all(&[before]), Some(place));
        for other in [elsewhere, by_others] {
            assert!(of_all(&[other]).is_some());
            assert_eq!(of_all(&[behind, other]), None);
            assert_eq!(of_all(&[other, before]), None);
        }
        let place = of_all(&[in_io]).expect("a place");
        for all in [[before, behind, in_io], [in_io, behind, before]] {
            assert_eq!(of_all(&all), Some(place));
        }
        assert_eq!(of_all(&[in_io, in_poll]), None);
        assert_eq!(of_all(&[before, in_poll, in_io]), None);
        assert_eq!(of_all(&[]), None);
    }
}
