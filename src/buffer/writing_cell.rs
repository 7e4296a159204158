//! The place of the chunk that a writer writes to. The writer has it without an exchange; others may take it out all the same.
//!
//! The writer says that it writes, reads the cell, writes to the chunk, and says that it is done: loads and stores of its own, with
//! nothing that the processor has to wait for. Whoever takes the chunk out pays for that: he empties the cell, has every other
//! processor finish what it has begun to store ([`HeavyBarrier`]), and then looks whether the writer writes. Where it does, it may
//! have read the cell before that was emptied; so the chunk goes back, and if the writer has put another one there meanwhile,
//! the writer has no use for this one any more.
//!
//! **Contract** (cited below):
//! - *owned*: a pointer in the cell came from [`Arc::into_raw`], and the cell holds that reference; who takes the pointer out by
//!   an exchange holds it from then on;
//! - *one writer*: one thread at a time calls what says so, and there is no [`Writing`] while it begins one;
//! - *one taker*: one thread at a time takes; under the buffer's lock;
//! - *seen by one of both*: a writer that read a pointer here has said before that it writes; after the heavy barrier the taker
//!   sees that, or the writer sees the cell empty.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::Arc;
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering, compiler_fence};

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};

use crate::buffer::chunk::{Chunk, WriteRight};

/// Has all other threads of the process do what a full fence does, between two of their instructions; false where the system
/// does not do that.
pub(crate) type HeavyBarrier = fn() -> bool;

/// The right to write to a chunk, or nothing.
#[derive(Debug)]
pub(super) struct WritingCell {
    chunk: AtomicPtr<Chunk>,
    /// Odd while the writer writes. Changed by its thread alone.
    section: AtomicU64,
}

/// The fence that the heavy barrier makes a full one.
#[inline(always)]
fn light_barrier() {
    #[cfg(not(all(test, loom)))]
    compiler_fence(Ordering::SeqCst);
    // Loom knows no barriers in other threads; two full fences do the same.
    #[cfg(all(test, loom))]
    fence(Ordering::SeqCst);
}

/// From when the writer says that it writes until it says that it is done.
pub(super) struct Writing<'a> {
    cell: &'a WritingCell,
    /// What the cell's count is while this writes.
    section: u64,
    /// The chunk that was there, or null. It is the cell's still.
    chunk: *mut Chunk,
    own_thread: PhantomData<*const ()>,
}

impl WritingCell {
    pub(super) fn empty() -> Self {
        Self {
            chunk: AtomicPtr::new(ptr::null_mut()),
            section: AtomicU64::new(0),
        }
    }

    /// Whether this thread, which is the writer's, is in the midst of a write: so a handler asks that has interrupted it.
    #[inline(always)]
    pub(super) fn is_writing(&self) -> bool {
        self.section.load(Ordering::Relaxed) & 1 != 0
    }

    /// Begins to write.
    ///
    /// By the writer, while it does not write: *one writer*.
    #[inline(always)]
    pub(super) fn write(&self) -> Writing<'_> {
        let section = self.section.load(Ordering::Relaxed);
        debug_assert_eq!(section & 1, 0, "a write within a write");
        let section = section + 1;
        self.section.store(section, Ordering::Release);
        light_barrier();
        Writing {
            cell: self,
            section,
            chunk: self.chunk.load(Ordering::Acquire),
            own_thread: PhantomData,
        }
    }

    /// Takes the chunk out, unless the writer may be writing to it.
    ///
    /// By *one taker*.
    pub(super) fn take(&self, heavy_barrier: HeavyBarrier) -> Option<WriteRight> {
        let chunk = self.chunk.swap(ptr::null_mut(), Ordering::AcqRel);
        if chunk.is_null() {
            return None;
        }
        #[cfg(all(test, loom))]
        fence(Ordering::SeqCst);
        // Without the barrier nobody but the writer knows whether it writes.
        let may_write = !heavy_barrier() || self.section.load(Ordering::Acquire) & 1 != 0;
        let put_back = || {
            self.chunk
                .compare_exchange(ptr::null_mut(), chunk, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
        };
        if may_write && put_back() {
            return None;
        }
        // SAFETY: *owned*, and *seen by one of both*: the writer does not write, or has put another chunk there since, after
        // its last use of this one.
        Some(WriteRight::of_taken(unsafe { Arc::from_raw(chunk) }))
    }

    /// The same where no other thread is: in the child of a fork, and when the cell is dropped.
    pub(super) fn take_alone(&self) -> Option<WriteRight> {
        let chunk = self.chunk.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: *owned*.
        (!chunk.is_null()).then(|| WriteRight::of_taken(unsafe { Arc::from_raw(chunk) }))
    }

    /// In the child of a fork: the writer is gone, perhaps from the midst of a write.
    pub(super) fn lose_writer(&self) {
        let section = self.section.load(Ordering::Relaxed);
        self.section
            .store(section + (section & 1), Ordering::Relaxed);
    }
}

impl Writing<'_> {
    /// The chunk that was there, if any was.
    #[inline(always)]
    pub(super) fn chunk(&mut self) -> Option<BorrowedRight<'_>> {
        if self.chunk.is_null() {
            return None;
        }
        // SAFETY: *owned* and *seen by one of both*: nobody else uses or frees it before the end of this write, or before this
        // puts another one there, for which whoever asked has to be done. It is not dropped, as the reference is the cell's.
        let right = ManuallyDrop::new(WriteRight::of_taken(unsafe { Arc::from_raw(self.chunk) }));
        Some(BorrowedRight {
            right,
            writing: PhantomData,
        })
    }

    /// Puts another chunk there, or none; gives the one that was there, if it was not taken meanwhile.
    pub(super) fn replace(&mut self, right: Option<WriteRight>) -> Option<WriteRight> {
        let new = right
            .map_or(ptr::null(), |right| Arc::into_raw(right.into_taken()))
            .cast_mut();
        let old = self.cell.chunk.swap(new, Ordering::AcqRel);
        // Whoever has it now may use it as soon as that is seen.
        self.chunk = new;
        // SAFETY: *owned*. It may be another than the one that was read: one that was taken out and came back.
        (!old.is_null()).then(|| WriteRight::of_taken(unsafe { Arc::from_raw(old) }))
    }
}

/// The right to write to the cell's chunk, for the time of a write.
pub(super) struct BorrowedRight<'a> {
    right: ManuallyDrop<WriteRight>,
    writing: PhantomData<&'a mut ()>,
}

impl Deref for BorrowedRight<'_> {
    type Target = WriteRight;

    #[inline(always)]
    fn deref(&self) -> &WriteRight {
        &self.right
    }
}

impl DerefMut for BorrowedRight<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut WriteRight {
        &mut self.right
    }
}

impl Drop for Writing<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        light_barrier();
        // In the child of a fork the count may say already that nobody writes.
        self.cell.section.store(self.section + 1, Ordering::Release);
    }
}

impl Drop for WritingCell {
    fn drop(&mut self) {
        drop(self.take_alone());
    }
}
