//! Where a thread sleeps.

use std::collections::BTreeSet;

use crate::model::UniqueStacks;
use crate::stream::decode::chunk_stacks::FrameKey;

/// Maximum size of the instruction that calls the kernel, in bytes.
const MAX_SYSTEM_CALL_BYTES: u64 = if cfg!(target_arch = "x86_64") { 2 } else { 4 };

/// Returns the stack of the place where a thread sleeps, if all its stacks show one place.
///
/// A signal that interrupts a system call may find the thread at the instruction that calls the
/// kernel, which is to run again. Read from outside, the thread is behind it. These are one place,
/// and the result is the latter. It does not depend on the order of the stacks.
pub(super) fn sleeping_place(
    of_thread: impl Iterator<Item = u32>,
    stacks: &UniqueStacks<FrameKey>,
) -> Option<u32> {
    let all: BTreeSet<u32> = of_thread.collect();
    if all.len() < 2 {
        return all.first().copied();
    }
    let mut calls = Vec::new();
    for stack in all {
        let &(callers, frame) = stacks.stacks().get(stack as usize)?;
        let call = match stacks.frames().get(frame as usize)? {
            FrameKey::Native(address) => (address.address.get(), false),
            FrameKey::Waiting(address, _) => (address.address.get(), true),
            _ => return None,
        };
        calls.push((callers, call, stack));
    }
    calls.sort_unstable();
    let (&(callers, first, _), &(of_last, last, place)) = (calls.first()?, calls.last()?);
    let is_one = callers == of_last
        && last.0 - first.0 <= MAX_SYSTEM_CALL_BYTES
        // Same address, different wait reason: two different calls.
        && calls.windows(2).all(|pair| pair[0].1 != pair[1].1);
    is_one.then_some(place)
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
        let of_all = |all: &[u32]| sleeping_place(all.iter().copied(), &stacks);
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
