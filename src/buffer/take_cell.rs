//! A place for a chunk, from which one at a time takes it and has it for himself.
//!
//! **Contract** (cited below):
//! - *owned*: a pointer in the cell came from [`Arc::into_raw`], and the cell holds that reference; who swaps it out
//!   holds it from then on;
//! - *one putter*: one at a time puts into a cell, and only into an empty one; others only take. So nothing is overwritten:
//!   a chunk that was would be in use for ever.

use std::ptr;
use std::sync::Arc;
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicPtr, Ordering};

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicPtr, Ordering};

use crate::buffer::chunk::{Chunk, WriteRight};

/// The right to write to a chunk, or nothing. Nobody waits: what another one has taken is not there.
#[derive(Debug)]
pub(super) struct TakeCell(AtomicPtr<Chunk>);

impl TakeCell {
    pub(super) fn empty() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// What is there; the cell is empty from then on.
    #[inline]
    pub(super) fn take(&self) -> Option<WriteRight> {
        let chunk = self.0.swap(ptr::null_mut(), Ordering::Acquire);
        // SAFETY: *owned*: this swap alone has seen the pointer, so the reference is ours now.
        (!chunk.is_null()).then(|| WriteRight::of_taken(unsafe { Arc::from_raw(chunk) }))
    }

    #[inline]
    pub(super) fn put(&self, right: WriteRight) {
        let chunk = Arc::into_raw(right.into_taken());
        self.0.store(chunk.cast_mut(), Ordering::Release);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed).is_null()
    }
}

impl Drop for TakeCell {
    fn drop(&mut self) {
        drop(self.take());
    }
}
