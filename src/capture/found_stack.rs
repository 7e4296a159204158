//! The bounds of the stack of a thread that has not registered, as far as the sampler can prove them.
//!
//! The system does not report the bounds of another thread's stack. But glibc and musl place a
//! thread's control block, to which the thread pointer points, above the stack in the same memory.
//! So if all memory from the stack pointer to the thread pointer is readable, without the guard
//! page that nearly every stack has at its end, it is this thread's stack. The main thread's
//! control block lies elsewhere; but a main thread that has not registered has no handler that
//! would copy its stack.
//!
//! **Contract** (cited below):
//! - *own stack*: memory between a thread's stack pointer and its control block, all of which is
//!   readable, belongs to its stack, and stays readable until the thread ends. That is not so for a
//!   thread whose stack has no guard page, and which runs coroutines in memory directly below it. So
//!   the kernel copies the stack, and only in a sandbox, where the handler must not ask the kernel,
//!   is the contract needed.

use crate::capture::capture_slot::{CaptureSlot, OTHER_STACK_BYTES};
use crate::platform::{MemoryPiece, StackBounds, read_guarded};

/// Size of the copy of a stack whose bounds are not known yet, in bytes. The stack of a waiting
/// thread is smaller in most cases.
pub(crate) const FIRST_FOUND_BYTES: usize = 8 << 10;
/// Maximum size of a stack whose bounds are searched for, in bytes.
const MAX_SEARCHED_BYTES: u64 = 64 << 20;
/// Minimum and maximum size of the memory below the stack pointer that is checked as well, in bytes,
/// so that not every deeper call leads to another check.
const MARGIN_BYTES: std::ops::RangeInclusive<u64> = (64 << 10)..=(1 << 20);
/// Space below the stack pointer that the check includes, in bytes: more than the red zone.
const BELOW_BYTES: u64 = 256;
/// Smallest size of a page, in bytes.
const PAGE_BYTES: u64 = 4096;
/// Number of pages that are checked at once.
const PAGES_AT_ONCE: usize = 64;

/// The stack of a thread that has not registered, as far as the sampler knows it.
#[derive(Debug)]
pub(crate) struct FoundStack {
    bounds: StackBounds,
    /// The stack does not extend below this address, because the page below is not readable.
    end: u64,
    /// Whether a search for the bounds has failed.
    has_failed: bool,
    /// What was done last because a copy of unknown length ended before the stack's root.
    cut_copy: CutCopy,
}

/// What to do with the copy of a blocked thread's stack, if its bounds are not known and its root is
/// not in the copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CutCopy {
    /// Nothing: a longer copy would not help, or is not possible.
    IsComplete,
    /// Copy more.
    RepeatLonger,
    /// Interrupt the thread: its handler tells the thread pointer.
    AskThread,
}

impl FoundStack {
    pub(crate) fn new() -> Self {
        Self {
            bounds: StackBounds::NONE,
            end: 0,
            has_failed: false,
            cut_copy: CutCopy::IsComplete,
        }
    }

    /// Returns whether this address is known to lie in the thread's stack.
    pub(crate) fn contains(&self, address: u64) -> bool {
        self.bounds.contain(address)
    }

    /// Returns whether the bounds are known, and so the thread pointer.
    pub(crate) fn has_bounds(&self) -> bool {
        self.bounds != StackBounds::NONE
    }

    /// Returns whether a search for the bounds has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Returns what to do after a copy of this length did not contain the root of a stack whose
    /// bounds are not known.
    pub(crate) fn after_cut_copy(&mut self, slot: &CaptureSlot, copied: usize) -> CutCopy {
        let next = match self.cut_copy {
            _ if copied < FIRST_FOUND_BYTES => return CutCopy::IsComplete,
            CutCopy::IsComplete if !self.has_failed && copied < OTHER_STACK_BYTES => {
                slot.set_other_stack_bytes(OTHER_STACK_BYTES);
                CutCopy::RepeatLonger
            }
            CutCopy::IsComplete | CutCopy::RepeatLonger if copied >= OTHER_STACK_BYTES => {
                CutCopy::AskThread
            }
            _ => return CutCopy::IsComplete,
        };
        self.cut_copy = next;
        next
    }

    /// Searches for the bounds of the stack of a thread that its handler has found at this stack
    /// pointer, with this thread pointer, and sets them in the slot. Returns whether they are new.
    /// Called by the sampler. Cost: about 0.4 µs for each 4 KiB, once.
    pub(crate) fn search(&mut self, slot: &CaptureSlot, sp: u64, thread_pointer: u64) -> bool {
        if self.contains(sp) || sp < self.end {
            return false;
        }
        let top = match self.bounds {
            StackBounds::NONE => thread_pointer,
            known => known.top,
        };
        let Some(low) = self.find_low(sp, top) else {
            self.has_failed = true;
            slot.set_other_stack_bytes(OTHER_STACK_BYTES);
            return false;
        };
        self.bounds = StackBounds { low, top };
        // SAFETY: *own stack*.
        unsafe { slot.set_found_bounds(thread_pointer, self.bounds) };
        slot.set_other_stack_bytes(OTHER_STACK_BYTES);
        true
    }

    /// Returns the lowest address down to which all memory below `top` is readable, if that includes
    /// the stack pointer.
    fn find_low(&mut self, sp: u64, top: u64) -> Option<u64> {
        let depth = top
            .checked_sub(sp)
            .filter(|depth| (1..=MAX_SEARCHED_BYTES).contains(depth))?;
        let from = match self.bounds {
            StackBounds::NONE => top.next_multiple_of(PAGE_BYTES),
            known => known.low,
        };
        let needed = sp.saturating_sub(BELOW_BYTES) & !(PAGE_BYTES - 1);
        let margin = depth.clamp(*MARGIN_BYTES.start(), *MARGIN_BYTES.end());
        let wanted = needed.saturating_sub(margin).max(PAGE_BYTES) & !(PAGE_BYTES - 1);
        let low = lowest_readable(from, wanted);
        if low > wanted {
            self.end = low;
        }
        (low <= needed).then_some(low)
    }
}

/// Returns the lowest address, not below `wanted`, down to which all memory below `from` is readable.
/// Both are multiples of the page size.
fn lowest_readable(from: u64, wanted: u64) -> u64 {
    let mut low = from;
    let mut target = [0; PAGES_AT_ONCE];
    while low > wanted {
        let pages = (((low - wanted) / PAGE_BYTES) as usize).min(PAGES_AT_ONCE);
        let mut pieces = [MemoryPiece {
            address: 0,
            bytes: 1,
        }; PAGES_AT_ONCE];
        for (piece, page) in pieces.iter_mut().zip(1..) {
            piece.address = low.wrapping_sub(page * PAGE_BYTES);
        }
        let readable = read_guarded(&pieces[..pages], &mut target[..pages]);
        low -= readable as u64 * PAGE_BYTES;
        if readable < pages {
            break;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::{current_stack_bounds, current_stack_pointer, thread_pointer};

    fn new_slot() -> &'static CaptureSlot {
        let slot = CaptureSlot::create().expect("memory");
        slot.bind_to_found_thread(FIRST_FOUND_BYTES);
        slot
    }

    fn on_a_thread(body: fn()) {
        let builder = std::thread::Builder::new().stack_size(1 << 20);
        let thread = builder.spawn(body).expect("a thread");
        thread.join().expect("no panic");
    }

    #[test]
    fn search_finds_the_bounds_of_a_threads_stack() {
        let searched = || {
            let bounds = current_stack_bounds().expect("bounds");
            let (sp, slot) = (current_stack_pointer(), new_slot());
            let mut stack = FoundStack::new();
            assert!(stack.search(slot, sp, thread_pointer()));
            assert!(!stack.search(slot, sp, thread_pointer()), "known");
            assert!(stack.contains(sp) && bounds.contain(stack.bounds.low));
            assert_eq!(slot.binding().1, [stack.bounds.low, thread_pointer()]);
            // At the end of the stack, the search ends at the guard page.
            let deepest = bounds.low + 2 * PAGE_BYTES;
            assert!(!stack.contains(deepest) && stack.search(slot, deepest, thread_pointer()));
            assert!(stack.contains(deepest) && !stack.contains(bounds.low - 2 * PAGE_BYTES));
            assert!(!stack.search(slot, stack.end - 1, thread_pointer()));
        };
        on_a_thread(searched);
    }

    #[test]
    fn search_finds_no_bounds_across_unreadable_memory() {
        let searched = || {
            let bounds = current_stack_bounds().expect("bounds");
            let (slot, mut stack) = (new_slot(), FoundStack::new());
            let beyond_guard = bounds.low - 8 * PAGE_BYTES;
            assert!(!stack.search(slot, beyond_guard, thread_pointer()));
            assert!(stack.has_failed());
            let above = thread_pointer() + 1;
            assert!(!stack.search(slot, above, thread_pointer()));
            assert_eq!(slot.binding().1, [u64::MAX, 0]);
        };
        on_a_thread(searched);
    }
}
