//! The copies of sockets that the child of a fork gets.
//!
//! A thread of the profiler usually has a descriptor table of its own, and then a fork copies none of
//! its sockets. In a sandbox it shares the application's table. The child would keep the parent's
//! connections open, so it closes its copies.
//!
//! A fork copies the table first and the memory later, so a socket that is closed in between is open
//! in the child. Therefore its note stays for a while. A socket that is opened just before a fork may
//! have no note yet. Its copy stays open until the child ends or executes a program.
//!
//! **Contract of the calls** (cited below):
//! - *copy of ours*: the descriptor is closed only if it still refers to the socket that the parent
//!   opened, and no other code of the child uses its number.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Maximum number of sockets in the application's table. The copies of further ones stay open in a
/// child.
const MAX_SOCKETS: usize = 512;
/// No socket.
const NONE: u64 = 0;
/// The parent has closed the socket.
const CLOSED: u64 = 1 << 63;

/// The sockets in the application's table: number plus one, and the low half of the inode.
static SOCKETS: [AtomicU64; MAX_SOCKETS] = [const { AtomicU64::new(NONE) }; MAX_SOCKETS];

fn word_of(number: i32, inode: u64) -> u64 {
    (number as u32 as u64 + 1) << 32 | inode & u64::from(u32::MAX)
}

/// The note of a socket in the application's table.
#[derive(Debug)]
pub(super) struct CopiedInChild {
    /// `None` if there are too many.
    place: Option<&'static AtomicU64>,
}

impl CopiedInChild {
    /// Notes a socket that has just been opened. Uses the places in turn, so that the note of a closed
    /// socket stays as long as possible.
    pub(super) fn new(number: i32, inode: u64) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let word = word_of(number, inode);
        let first = NEXT.load(Ordering::Relaxed);
        let mut places = (first..first + MAX_SOCKETS).map(|index| index % MAX_SOCKETS);
        let taken = places.find(|&index| {
            let place = &SOCKETS[index];
            let free = place.load(Ordering::Relaxed);
            let is_free = free == NONE || free & CLOSED != 0;
            let take = || place.compare_exchange(free, word, Ordering::AcqRel, Ordering::Relaxed);
            is_free && take().is_ok()
        });
        if let Some(index) = taken {
            NEXT.store((index + 1) % MAX_SOCKETS, Ordering::Relaxed);
        }
        Self {
            place: taken.map(|index| &SOCKETS[index]),
        }
    }
}

impl Drop for CopiedInChild {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            place.fetch_or(CLOSED, Ordering::AcqRel);
        }
    }
}

/// Closes the copies of the parent's sockets in the child of a fork, which has one thread.
pub(crate) fn close_sockets_in_child() {
    for place in &SOCKETS {
        let word = place.swap(NONE, Ordering::AcqRel) & !CLOSED;
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
