//! Finds out whether the handler of another copy of the crate passes signals on to this copy, from
//! what it looks like in memory.
//!
//! Each handler function begins with a *head*: a jump over a mark of the crate and over the place of
//! the handler's previous actions. So a copy can follow the handlers from one copy to the next
//! without sending a signal, which would also reach a handler that is not of a copy. All memory is
//! read with guarded reads, because any address may be a handler.
//!
//! All versions of the crate that have this mark have this head:
//!
//! | offset | bytes | content |
//! |---|---|---|
//! | 0 | 4 | the instruction that jumps over the rest |
//! | 4 | 12 | [`SAMPLING`] or [`CONTROL`] |
//! | 16 | 4 | address of the first entry of the table of previous actions, relative to offset 16 |
//! | 20 | 4 | distance from the entry of one signal number to that of the next, in bytes |
//!
//! An entry, which starts at signal 0, is null or points to the previous action of that signal.

use std::mem::offset_of;

use crate::platform::memory::guarded_memory::read_own_memory;

/// The mark of a handler, with the version of the head.
pub(crate) type Mark = [u8; 12];
/// Mark of the handlers of sampling signals.
pub(crate) const SAMPLING: Mark = *b"gekkota/smp1";
/// Mark of the handler of control signals. A request for a sample must not pass through it: each
/// would start or stop the other copy.
pub(crate) const CONTROL: Mark = *b"gekkota/ctl1";
const MARK_OFFSET: usize = 4;
const TABLE_OFFSET: usize = 16;
const DISTANCE_OFFSET: usize = 20;
const HEAD_BYTES: usize = 24;

/// Maximum number of handlers to follow. More do not get a signal either: it is the maximum number
/// of times that all copies together pass a signal on.
pub(crate) const MAX_PASSES: usize = 16;

/// Returns whether a copy's handler at `handler` passes a signal on to a handler that `is_ours`
/// accepts, directly or through those of further copies, all of them with one of these marks. Cost:
/// one read of memory if the handler is not of a copy, and three reads for each handler of a copy.
/// For the cost of a read, see [`read_own_memory`].
pub(crate) fn passes_on_to(
    handler: usize,
    signal: i32,
    marks: &[Mark],
    is_ours: impl Fn(usize) -> bool,
) -> bool {
    std::iter::successors(Some(handler), |&handler| {
        previous_of(handler, signal, marks)
    })
    .take(MAX_PASSES)
    .skip(1)
    .any(is_ours)
}

/// Returns the handler that a copy's handler at `handler` passes a signal on to; `None` if it has none
/// of these marks, or no previous action.
fn previous_of(handler: usize, signal: i32, marks: &[Mark]) -> Option<usize> {
    let head: [u8; HEAD_BYTES] = read(handler)?;
    let mark = &head[MARK_OFFSET..TABLE_OFFSET];
    if !marks.iter().any(|known| known == mark) {
        return None;
    }
    let number = |offset: usize| {
        let bytes = head[offset..].first_chunk();
        i32::from_ne_bytes(bytes.copied().unwrap_or_default()) as isize
    };
    let place = number(DISTANCE_OFFSET).wrapping_mul(signal as isize);
    let entry = (handler + TABLE_OFFSET)
        .wrapping_add_signed(number(TABLE_OFFSET))
        .wrapping_add_signed(place);
    // The null pointer of an unused level leads to an unreadable address.
    let action = usize::from_ne_bytes(read(entry)?);
    let field = action.wrapping_add(offset_of!(libc::sigaction, sa_sigaction));
    read(field).map(usize::from_ne_bytes)
}

fn read<const BYTES: usize>(address: usize) -> Option<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    read_own_memory(address as u64, &mut bytes).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet};

    use super::*;

    /// The handler of another copy, and its table with one previous action for each signal.
    #[repr(C)]
    struct Copy {
        head: [u8; HEAD_BYTES],
        table: [*const libc::sigaction; 2],
    }

    impl Copy {
        /// Returns a copy whose sampling handler passes signal 1 on to this handler.
        fn before(previous: usize) -> Box<Self> {
            let mut head = [0; HEAD_BYTES];
            head[MARK_OFFSET..TABLE_OFFSET].copy_from_slice(&SAMPLING);
            head[TABLE_OFFSET] = (offset_of!(Self, table) - TABLE_OFFSET) as u8;
            head[DISTANCE_OFFSET] = 8;
            let table = [std::ptr::null(), Self::action(previous)];
            Box::new(Self { head, table })
        }

        fn action(handler: usize) -> *const libc::sigaction {
            let mut action: libc::sigaction =
                SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty()).into();
            action.sa_sigaction = handler;
            Box::leak(Box::new(action))
        }

        fn handler(&self) -> usize {
            (&raw const *self).addr()
        }
    }

    #[test]
    fn handlers_of_copies_are_followed_to_that_of_this_copy() {
        let ours = 0x1234;
        let leads_through = |marks: &[Mark], handler, signal| {
            passes_on_to(handler, signal, marks, |handler| handler == ours)
        };
        let leads = |handler, signal| leads_through(&[SAMPLING], handler, signal);
        let below = Copy::before(ours);
        let above = Copy::before(below.handler());
        assert!(leads(below.handler(), 1) && leads(above.handler(), 1));
        assert!(!leads(above.handler(), 0), "no previous action");
        let mut control = Copy::before(below.handler());
        control.head[MARK_OFFSET..TABLE_OFFSET].copy_from_slice(&CONTROL);
        assert!(
            !leads(control.handler(), 1),
            "each request would control it"
        );
        assert!(leads_through(&[SAMPLING, CONTROL], control.handler(), 1));
        let elsewhere = Copy::before(libc::SIG_IGN);
        assert!(!leads(elsewhere.handler(), 1));
        let mut unmarked = Copy::before(ours);
        unmarked.head[MARK_OFFSET] += 1;
        assert!(!leads(unmarked.handler(), 1));
        for unreadable in [libc::SIG_DFL, libc::SIG_IGN, usize::MAX - 8, 1 << 63] {
            assert!(!leads(unreadable, 1), "{unreadable:#x}");
        }
        let mut endless = Copy::before(ours);
        endless.table[1] = Copy::action(endless.handler());
        assert!(!leads(endless.handler(), 1), "it passes on to itself");
    }
}
