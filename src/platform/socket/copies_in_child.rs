//! The copies of sockets that the child of a fork gets.
//!
//! A thread of the profiler usually has a descriptor table of its own, and then a fork copies none of
//! its sockets. In a sandbox it shares the application's table. The child would keep the parent's
//! connections open, so it closes its copies.
//!
//! **Contract of the calls** (cited below):
//! - *copy of ours*: the descriptor is closed only if it still refers to the socket that the parent
//!   opened, and no other code of the child uses its number.

use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of sockets in the application's table. The copies of further ones stay open in a
/// child.
const MAX_SOCKETS: usize = 512;
/// No socket.
const NONE: u64 = 0;

/// The open sockets in the application's table: number plus one, and the low half of the inode.
static OPEN: [AtomicU64; MAX_SOCKETS] = [const { AtomicU64::new(NONE) }; MAX_SOCKETS];

fn word_of(number: i32, inode: u64) -> u64 {
    (number as u32 as u64 + 1) << 32 | inode & u64::from(u32::MAX)
}

/// Notes an open socket in the application's table.
pub(super) fn note_open(number: i32, inode: u64) {
    let word = word_of(number, inode);
    for place in &OPEN {
        let exchange = place.compare_exchange(NONE, word, Ordering::AcqRel, Ordering::Relaxed);
        if exchange.is_ok() {
            return;
        }
    }
}

/// Forgets a socket that is about to be closed.
pub(super) fn note_closed(number: i32, inode: u64) {
    let word = word_of(number, inode);
    for place in &OPEN {
        let exchange = place.compare_exchange(word, NONE, Ordering::AcqRel, Ordering::Relaxed);
        if exchange.is_ok() {
            return;
        }
    }
}

/// Closes the copies of the parent's sockets in the child of a fork, which has one thread.
pub(crate) fn close_sockets_in_child() {
    for place in &OPEN {
        let word = place.swap(NONE, Ordering::AcqRel);
        if word == NONE {
            continue;
        }
        let number = (word >> 32) as u32 as i32 - 1;
        // SAFETY: the kernel fills in a local, for which zeros are valid.
        let status = unsafe {
            let mut status: libc::stat = std::mem::zeroed();
            (libc::fstat(number, &mut status) == 0).then_some(status)
        };
        let is_ours = status.is_some_and(|status| {
            status.st_mode & libc::S_IFMT == libc::S_IFSOCK
                && word_of(number, status.st_ino) == word
        });
        if is_ours {
            // SAFETY: *copy of ours*.
            unsafe { libc::close(number) };
        }
    }
}
