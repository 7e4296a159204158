//! Where a thread sleeps.

use crate::model::UniqueStacks;
use crate::stream::decode::chunk_stacks::FrameKey;

/// Maximum size of the instruction that calls the kernel, in bytes.
const MAX_CALL_BYTES: u64 = 4;

/// The place where a thread sleeps: its callers' stack and its innermost frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct SleepingPlace {
    callers: Option<u32>,
    frame: u32,
}

impl SleepingPlace {
    /// Returns the place that all of a thread's stacks show, if it is one.
    ///
    /// A signal that interrupts a system call finds the thread before the instruction, because the
    /// kernel is to run it again. Read from outside, the thread is behind it. These are one place,
    /// and the result is the latter.
    pub(crate) fn of_all(
        mut of_thread: impl Iterator<Item = u32>,
        stacks: &UniqueStacks<FrameKey>,
    ) -> Option<Self> {
        let place = |stack: u32| {
            let &(callers, frame) = stacks.stacks().get(stack as usize)?;
            Some(Self { callers, frame })
        };
        let first = place(of_thread.next()?)?;
        of_thread.try_fold(first, |known, stack| {
            let other = place(stack)?;
            match known.frame == other.frame {
                true => (known == other).then_some(known),
                false if known.callers == other.callers => {
                    let frame = after_same_call(known.frame, other.frame, stacks.frames())?;
                    Some(Self { frame, ..known })
                }
                false => None,
            }
        })
    }
}

/// Returns which one of two frames is behind the instruction that calls the kernel, if the other one
/// is before it.
fn after_same_call(one: u32, other: u32, frames: &[FrameKey]) -> Option<u32> {
    let address = |frame: u32| match frames.get(frame as usize)? {
        FrameKey::Native(address) | FrameKey::Waiting(address, _) => Some(address.address.get()),
        _ => None,
    };
    let (of_one, of_other) = (address(one)?, address(other)?);
    let is_same = of_one.abs_diff(of_other) <= MAX_CALL_BYTES;
    is_same.then_some(if of_one > of_other { one } else { other })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbols::SampledAddress;
    use crate::types::CodeAddress;

    #[test]
    fn interrupted_system_call_is_the_same_place() {
        let frame = |address| {
            FrameKey::Native(SampledAddress {
                address: CodeAddress::new(address),
                is_return_address: false,
            })
        };
        let mut stacks = UniqueStacks::default();
        let mut stack = |addresses: &[u64]| {
            addresses.iter().fold(None, |below: Option<u32>, &address| {
                let frame = stacks.intern_frame(&frame(address));
                Some(stacks.append_frame(below, frame))
            })
        };
        let all = [[100, 0x7827], [100, 0x7829], [100, 0x7839], [200, 0x7829]];
        let [before, behind, elsewhere, by_others] =
            all.map(|addresses| stack(&addresses).expect("not empty"));
        let of_all = |all: &[u32]| SleepingPlace::of_all(all.iter().copied(), &stacks);
        let place = of_all(&[behind]).expect("a place");
        assert_eq!(of_all(&[before, behind, behind]), Some(place));
        assert_eq!(of_all(&[behind, before]), Some(place));
        assert_ne!(of_all(&[before]), Some(place));
        for other in [elsewhere, by_others] {
            assert!(of_all(&[other]).is_some());
            assert_eq!(of_all(&[behind, other]), None);
        }
        assert_eq!(of_all(&[]), None);
    }
}
