//! Caches the frame pointers of sleeping threads.
//!
//! For a blocked thread the kernel reports the stack pointer and the program counter, but not the
//! frame pointer. If a caller's frame depends on the frame pointer, the thread is interrupted once,
//! and the frame pointer that its handler found is cached. The next time the thread sleeps at the
//! same place with the same frames up to that caller, the frame pointer is the same, provided that
//! the caller's frame has a fixed size. If the frame size varies, or if another register is needed,
//! the stack ends there and is marked as truncated.

use crate::platform::{BlockedAt, Registers};
use crate::unwind::{Captured, NativeFrame, NativeStack, Unwinder};
use crate::util::try_vec;

/// Maximum number of entries: most threads sleep in few places.
const MAX_ENTRIES: usize = 8;
/// Value of a register that the kernel does not report. No frame lies at this address, so a stack
/// that depends on the register is marked as truncated.
const UNKNOWN: u64 = 16;

/// Whether calls leave the return address in a register. Where they do, hardly any sleeping stack
/// can be unwound far without that register.
const KEEPS_RETURN_ADDRESS: bool = cfg!(target_arch = "aarch64");

#[derive(Debug)]
struct CachedFramePointer {
    at: BlockedAt,
    fp: u64,
    stack: NativeStack,
}

/// The frame pointers of a thread at the places where it was found asleep.
#[derive(Debug, Default)]
pub(crate) struct FramePointerCache {
    entries: Vec<CachedFramePointer>,
    /// Index of the entry that is replaced next.
    oldest: usize,
}

/// Returns the registers of a blocked thread, as far as the kernel reports them.
pub(crate) fn registers_at(at: BlockedAt) -> Registers {
    Registers {
        pc: at.pc,
        sp: at.sp,
        fp: UNKNOWN,
        lr: UNKNOWN,
        general: None,
    }
}

/// Length of the instruction that makes a system call.
const SYSTEM_CALL_BYTES: u64 = if cfg!(target_arch = "x86_64") { 2 } else { 4 };

/// Returns whether a thread that is blocked at `at` has the same frame as at this program counter
/// and stack pointer.
///
/// A system call has two program counters. While the call waits, the program counter is after the
/// system-call instruction. Before a restart, it is at the instruction: a signal has just woken the
/// thread, which waits for a processor. A thread that waits for a page has no such second place:
/// the next instruction may have changed the frame pointer.
fn is_same_place(at: BlockedAt, pc: u64, sp: u64) -> bool {
    let is_same_call = at.in_system_call && at.pc.abs_diff(pc) == SYSTEM_CALL_BYTES;
    at.sp == sp && (at.pc == pc || is_same_call)
}

impl FramePointerCache {
    /// Unwinds the stack of a thread that is blocked at `at`, as far as the registers from the
    /// kernel and the cache allow. Returns whether the thread's own handler can supply the frame
    /// pointer, which is then cached. Otherwise the stack is as complete as it can be.
    pub(crate) fn unwind(
        &self,
        at: BlockedAt,
        captured: &Captured<'_>,
        unwinder: &mut Unwinder,
        out: &mut NativeStack,
    ) -> bool {
        unwinder.unwind(captured, out);
        if !out.truncated || out.doubtful {
            return false;
        }
        let Some(unresolved) = out.frames.last().copied() else {
            return false;
        };
        let known = out.frames.len();
        let entry = self.find(at, &out.frames);
        if !unwinder.has_fixed_frame(&unresolved, known == 1) {
            return KEEPS_RETURN_ADDRESS;
        }
        let Some(entry) = entry else {
            return true;
        };
        let mut captured = *captured;
        captured.registers.fp = entry.fp;
        unwinder.unwind(&captured, out);
        false
    }

    /// Returns the entry for a thread blocked at `at` with these frames, and possibly older ones.
    fn find(&self, at: BlockedAt, frames: &[NativeFrame]) -> Option<&CachedFramePointer> {
        let callers = frames.get(1..)?;
        let is_same = |entry: &&CachedFramePointer| {
            entry.at.in_system_call == at.in_system_call
                && is_same_place(entry.at, at.pc, at.sp)
                && entry.stack.frames.get(1..frames.len()) == Some(callers)
        };
        self.entries.iter().find(is_same)
    }

    /// Caches the frame pointer that the thread's handler found, if the thread was still blocked at
    /// `at` when it was interrupted.
    pub(crate) fn remember(&mut self, at: BlockedAt, registers: &Registers, stack: &NativeStack) {
        if !is_same_place(at, registers.pc, registers.sp) {
            return;
        }
        // Without memory the thread is asked again.
        let Some(mut frames) = try_vec(stack.frames.len()) else {
            return;
        };
        frames.extend_from_slice(&stack.frames);
        let entry = CachedFramePointer {
            at,
            fp: registers.fp,
            stack: NativeStack { frames, ..*stack },
        };
        let is_same = |known: &CachedFramePointer| known.at == at && known.stack == entry.stack;
        match self.entries.iter().position(is_same) {
            Some(index) => self.entries[index] = entry,
            None if self.entries.len() < MAX_ENTRIES => self.entries.push(entry),
            None => {
                self.entries[self.oldest] = entry;
                self.oldest = (self.oldest + 1) % MAX_ENTRIES;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{CodeAddress, StackAddress};

    fn stack(addresses: &[u64]) -> NativeStack {
        let frame = |&address: &u64| NativeFrame {
            address: CodeAddress::new(address),
            stack_address: StackAddress(address),
        };
        NativeStack {
            frames: addresses.iter().map(frame).collect(),
            truncated: false,
            doubtful: false,
        }
    }

    fn blocked(pc: u64) -> BlockedAt {
        BlockedAt {
            awaits_handler: false,
            pc,
            sp: 50,
            in_system_call: true,
            awaits_signals: false,
            wait: None,
        }
    }

    #[test]
    fn place_outside_of_a_system_call_is_found_at_the_same_instruction_only() {
        let waits_for_page = |pc| BlockedAt {
            in_system_call: false,
            ..blocked(pc)
        };
        let registers = |pc| Registers {
            pc,
            sp: 50,
            fp: 70,
            lr: 0,
            general: None,
        };
        let mut cache = FramePointerCache::default();
        cache.remember(waits_for_page(1000), &registers(998), &stack(&[998, 2]));
        cache.remember(waits_for_page(1000), &registers(1002), &stack(&[1002, 2]));
        assert!(cache.entries.is_empty(), "the thread ran on");
        cache.remember(waits_for_page(1000), &registers(1000), &stack(&[1000, 2]));
        let is_found = |at: BlockedAt| cache.find(at, &stack(&[at.pc, 2]).frames).is_some();
        assert!(is_found(waits_for_page(1000)));
        for at in [waits_for_page(998), waits_for_page(1002), blocked(1000)] {
            assert!(!is_found(at), "{at:?}");
        }
    }

    #[test]
    fn remember_keeps_only_matching_places_and_replaces_the_oldest() {
        let mut cache = FramePointerCache::default();
        let at = blocked(1000);
        let found = |pc, sp| Registers {
            pc,
            sp,
            fp: 70,
            lr: 0,
            general: None,
        };
        cache.remember(at, &found(1001, 50), &stack(&[1]));
        cache.remember(at, &found(1000, 58), &stack(&[1]));
        assert!(cache.entries.is_empty(), "the thread ran on");
        cache.remember(at, &found(998, 50), &stack(&[1]));
        cache.remember(at, &found(1000, 50), &stack(&[1]));
        assert_eq!(cache.entries.len(), 1);
        for number in 2..=MAX_ENTRIES as u64 + 1 {
            cache.remember(at, &found(1000, 50), &stack(&[number]));
        }
        assert!(cache.find(at, &stack(&[9]).frames).is_some());
        let firsts = cache
            .entries
            .iter()
            .map(|entry| entry.stack.frames[0].address.get());
        assert_eq!(firsts.collect::<Vec<_>>(), [9, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn place_is_found_again_before_and_after_its_system_call() {
        let asleep = blocked(1000);
        // The thread is on its way to the handler.
        let woken = blocked(998);
        let registers = |pc| Registers {
            pc,
            sp: 50,
            fp: 70,
            lr: 0,
            general: None,
        };
        for (asked_at, found_at) in [(woken, 998), (woken, 1000), (asleep, 998), (asleep, 1000)] {
            let mut cache = FramePointerCache::default();
            cache.remember(asked_at, &registers(found_at), &stack(&[found_at, 2, 3]));
            let fp = |at, addresses| {
                cache
                    .find(at, &stack(addresses).frames)
                    .map(|entry| entry.fp)
            };
            assert_eq!(
                (fp(asleep, &[1000, 2]), fp(woken, &[998, 2, 3])),
                (Some(70), Some(70))
            );
            assert_eq!(
                (fp(asleep, &[1000, 9]), fp(asleep, &[1000, 2, 3, 4])),
                (None, None)
            );
            assert_eq!(
                fp(BlockedAt { sp: 58, ..asleep }, &[1000, 2]),
                None,
                "another call of the same function"
            );
            assert_eq!(
                fp(BlockedAt { pc: 1020, ..asleep }, &[1020, 2]),
                None,
                "another call"
            );
        }
    }
}
