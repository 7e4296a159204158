//! The cell of the chunk that a writer is writing to. The writer uses the chunk without an atomic
//! exchange, and another thread, the taker, can still take it out.
//!
//! The writer marks the start of a write, reads the cell, writes to the chunk and marks the end.
//! These are plain loads and stores, without a fence that the processor has to wait for. The taker
//! pays the cost instead: it empties the cell, issues a full fence on all other threads
//! ([`HeavyBarrier`]), and then checks whether a write is in progress. If so, the writer may have
//! read the cell before it was emptied, and the taker puts the chunk back. If the writer has put
//! another chunk into the cell by then, it no longer uses the old one, and the taker keeps the old
//! one.
//!
//! **Contract** (cited below):
//! - *owned*: a pointer in the cell comes from [`Arc::into_raw`], and the cell owns that reference.
//!   The thread that swaps the pointer out then owns it.
//! - *one writer*: one thread at a time calls the methods marked so, and no [`WriteGuard`] exists
//!   when it begins a write.
//! - *one taker*: one thread at a time takes, under the buffer's lock.
//! - *one side sees the other*: a writer marks its write before it reads the pointer. After the
//!   heavy barrier, the taker sees that mark or the writer sees the empty cell.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::Arc;
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering, compiler_fence};

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};

use crate::buffer::chunks::chunk::{Chunk, ChunkWriter};

/// Issues a full fence on all other threads of the process. Returns false if the system does not
/// support this.
pub(crate) type HeavyBarrier = fn() -> bool;

/// A chunk's writer, or nothing.
#[derive(Debug)]
pub(crate) struct WritingCell {
    chunk: AtomicPtr<Chunk>,
    /// Odd during a write. Changed by the writer's thread only.
    sequence: AtomicU64,
}

/// Issues the writer's compiler fence. The taker's heavy barrier turns it into a full fence.
#[inline(always)]
fn light_barrier() {
    #[cfg(not(all(test, loom)))]
    compiler_fence(Ordering::SeqCst);
    // Loom cannot model a fence on other threads; a full fence on each side is equivalent.
    #[cfg(all(test, loom))]
    fence(Ordering::SeqCst);
}

/// A write in progress; dropping the guard ends it.
pub(crate) struct WriteGuard<'a> {
    cell: &'a WritingCell,
    /// The cell's sequence number during this write.
    sequence: u64,
    /// The chunk found in the cell, or null. The cell still owns it.
    chunk: *mut Chunk,
    own_thread: PhantomData<*const ()>,
}

impl WritingCell {
    pub(crate) fn empty() -> Self {
        Self {
            chunk: AtomicPtr::new(ptr::null_mut()),
            sequence: AtomicU64::new(0),
        }
    }

    /// Returns whether a write is in progress. Called on the writer's thread, where it is true only
    /// in a signal handler that interrupted the write.
    #[inline(always)]
    pub(crate) fn is_writing(&self) -> bool {
        self.sequence.load(Ordering::Relaxed) & 1 != 0
    }

    /// Begins a write.
    ///
    /// Called by the writer when no write is in progress: *one writer*.
    #[inline(always)]
    pub(crate) fn begin_write(&self) -> WriteGuard<'_> {
        let sequence = self.sequence.load(Ordering::Relaxed);
        debug_assert_eq!(sequence & 1, 0, "cannot begin a write: one is in progress");
        let sequence = sequence + 1;
        self.sequence.store(sequence, Ordering::Release);
        light_barrier();
        WriteGuard {
            cell: self,
            sequence,
            chunk: self.chunk.load(Ordering::Acquire),
            own_thread: PhantomData,
        }
    }

    /// Takes the chunk out, unless the writer may be writing to it.
    ///
    /// Called by *one taker*.
    pub(crate) fn take(&self, heavy_barrier: HeavyBarrier) -> Option<ChunkWriter> {
        let chunk = self.chunk.swap(ptr::null_mut(), Ordering::AcqRel);
        if chunk.is_null() {
            return None;
        }
        #[cfg(all(test, loom))]
        fence(Ordering::SeqCst);
        // Without the barrier, only the writer knows whether a write is in progress.
        let may_write = !heavy_barrier() || self.sequence.load(Ordering::Acquire) & 1 != 0;
        let put_back = || {
            self.chunk
                .compare_exchange(ptr::null_mut(), chunk, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
        };
        if may_write && put_back() {
            return None;
        }
        // SAFETY: *owned*, and *one side sees the other*: either no write is in progress, or the
        // writer has put another chunk there after its last use of this one.
        Some(ChunkWriter::from_chunk(unsafe { Arc::from_raw(chunk) }))
    }

    /// Takes the chunk out even during a write. The calling thread must be the only one that uses
    /// the cell: in the child of a fork, and when the cell is dropped.
    pub(crate) fn take_single_threaded(&self) -> Option<ChunkWriter> {
        let chunk = self.chunk.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: *owned*.
        (!chunk.is_null()).then(|| ChunkWriter::from_chunk(unsafe { Arc::from_raw(chunk) }))
    }

    /// Clears the mark of a write in progress, in the child of a fork, where the writer no longer
    /// exists.
    pub(crate) fn reset_writer(&self) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence
            .store(sequence + (sequence & 1), Ordering::Relaxed);
    }
}

impl WriteGuard<'_> {
    /// Returns the writer of the cell's chunk, if the cell has one.
    #[inline(always)]
    pub(crate) fn chunk(&mut self) -> Option<BorrowedWriter<'_>> {
        if self.chunk.is_null() {
            return None;
        }
        // SAFETY: *owned* and *one side sees the other*: no other thread writes to or frees the
        // chunk before this write ends or `replace` puts another chunk there. `replace` needs
        // `&mut self`, so the returned borrow has ended by then. `ManuallyDrop` keeps the cell's
        // reference.
        let writer = ManuallyDrop::new(ChunkWriter::from_chunk(unsafe {
            Arc::from_raw(self.chunk)
        }));
        Some(BorrowedWriter {
            writer,
            writing: PhantomData,
        })
    }

    /// Replaces the cell's chunk, or empties the cell. Returns the previous chunk unless another
    /// thread has taken it out.
    pub(crate) fn replace(&mut self, writer: Option<ChunkWriter>) -> Option<ChunkWriter> {
        let new = writer
            .map_or(ptr::null(), |writer| Arc::into_raw(writer.into_chunk()))
            .cast_mut();
        let old = self.cell.chunk.swap(new, Ordering::AcqRel);
        // A taker that holds the old chunk may use it as soon as it sees the new pointer, so this
        // write must not use it again.
        self.chunk = new;
        // SAFETY: *owned*. If the chunk was taken out and put back, this may differ from the
        // pointer that `begin_write` read.
        (!old.is_null()).then(|| ChunkWriter::from_chunk(unsafe { Arc::from_raw(old) }))
    }
}

/// The writer of the cell's chunk, borrowed during a write.
pub(crate) struct BorrowedWriter<'a> {
    writer: ManuallyDrop<ChunkWriter>,
    writing: PhantomData<&'a mut ()>,
}

impl Deref for BorrowedWriter<'_> {
    type Target = ChunkWriter;

    #[inline(always)]
    fn deref(&self) -> &ChunkWriter {
        &self.writer
    }
}

impl DerefMut for BorrowedWriter<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut ChunkWriter {
        &mut self.writer
    }
}

impl Drop for WriteGuard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        light_barrier();
        // Stored from the guard's own copy: in the child of a fork, `reset_writer` may already have
        // made the cell's number even.
        self.cell
            .sequence
            .store(self.sequence + 1, Ordering::Release);
    }
}

impl Drop for WritingCell {
    fn drop(&mut self) {
        drop(self.take_single_threaded());
    }
}
