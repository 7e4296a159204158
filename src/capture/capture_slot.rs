//! The slot into which a thread's signal handler copies registers, stack, labels and time (step 5).
//!
//! Runs in the signal handler: [`CaptureSlot::begin_in_handler`] and all of [`SlotWriter`].
//!
//! `slot_state.rs` states which thread may write and read a slot, and when.
//!
//! **Contract** (cited below):
//! - *phase owns* and *release, acquire*: as in `slot_state.rs`, for the capture areas and the
//!   header;
//! - *placed*: the header, the labels and the texts lie in one mapping that is never unmapped, in
//!   the order of the constants below. The stack area is a mapping of its own, of `stack_bytes`
//!   bytes at `stack_start`. It is replaced by a larger one, under *phase owns*.

use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::capture::capture_parts::{CaptureHeader, CaptureParts, CapturedLabel};
use crate::capture::event_delay::EventDelay;
use crate::capture::slot_state::{SlotPhase, SlotState};
use crate::labels::ProfilingStack;
use crate::labels::ProfilingStackFrame;
use crate::labels::open_profiling_stack;
use crate::platform::{
    ArrivalInHandler, LazyRegion, MemoryPiece, Registers, SignalSource, StackBounds,
    copy_words_in_handler, read_guarded_in_handler, registers_in_handler, thread_pointer,
};
use crate::types::{StackAddress, TimeStamp};

pub(crate) const LABELS_OFFSET: usize = 4 << 10;
pub(crate) const MAX_LABELS: usize = 1024;
pub(crate) const TEXT_OFFSET: usize = LABELS_OFFSET + MAX_LABELS * size_of::<CapturedLabel>();
pub(crate) const TEXT_BYTES: usize = 64 << 10;
/// Part of the text area that dynamic texts leave to static ones, in bytes: the static text, which
/// names the operation, matters more.
const STATIC_TEXT_BYTES: usize = 16 << 10;
/// Size of the mapping with the header, the labels and the texts.
const HEAD_BYTES: usize = TEXT_OFFSET + TEXT_BYTES;
/// Size of the red zone, in bytes: the memory below the stack pointer that the ABI allows a leaf
/// function to use.
const RED_ZONE_BYTES: u64 = if cfg!(target_arch = "x86_64") { 128 } else { 0 };
/// Maximum size of the copy of a stack, in bytes. Of a deeper stack the youngest part is copied,
/// and the stack is marked as truncated. The thread waits for the copy, so without a limit its stop
/// would grow with the depth of its stack. The older part cannot come from an earlier copy: the
/// thread may have returned from it and called again, with equal addresses at the border.
pub(crate) const MAX_STACK_BYTES: usize = 1 << 20;
/// Size of a new slot's stack area, in bytes. Most stacks fit. For a deeper one the reader of the
/// capture enlarges the area, up to [`MAX_STACK_BYTES`]: an area of that size for each thread would
/// count towards the process's limits of address space and of committed memory.
pub(crate) const FIRST_STACK_BYTES: usize = 64 << 10;
/// Maximum size of the copy of a stack that is not the thread's own, in bytes: the end of such a
/// stack is unknown.
pub(crate) const OTHER_STACK_BYTES: usize = 64 << 10;
/// Size of the stack area that a slot retains, in bytes. Memory that a deep stack took beyond it is
/// returned to the kernel after [`CAPTURES_BEFORE_RELEASE`] captures in a row that did not need it.
pub(crate) const RETAINED_STACK_BYTES: usize = 256 << 10;
pub(crate) const CAPTURES_BEFORE_RELEASE: u32 = 8;

/// What [`CaptureSlot::thread_pointer`] is for a thread that has not bound the slot itself, before
/// its first capture. No thread has this pointer.
const ANY_THREAD: u64 = 1;

const _: () = assert!(size_of::<CaptureSlot>() <= LABELS_OFFSET);

/// The head of a slot. The labels and the texts follow it in the same mapping.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct CaptureSlot {
    pub(crate) state: SlotState,
    /// Thread pointer of the bound thread; 0 while the slot is not bound. Written by that thread
    /// before the first request; read by its handler. For a thread that has not registered, written
    /// by the sampler: [`ANY_THREAD`] until the bounds of its stack are known.
    thread_pointer: AtomicU64,
    /// Whether an event of its CPU clock has interrupted the thread that the slot is bound to. Written by the
    /// sampler; read by the handler.
    had_event: AtomicBool,
    /// Number of times that an event has interrupted the thread and found no slot for its capture. Written
    /// by the handler; taken by the sampler.
    pub(crate) uncaptured: AtomicU32,
    /// When the pending request was sent, in ns. Written by the sampler; read by the handler.
    requested_at: AtomicU64,
    /// The next slot of a batch, as `slot_batch.rs` says; in the slot that a thread owns, the first one
    /// of its batch. Written by the sampler; read by the handler.
    pub(crate) next_in_batch: AtomicU32,
    /// Number of a canceled request whose signal may still be pending, or 0. While it is pending,
    /// the kernel drops further signals. Written by the sampler.
    canceled: AtomicU32,
    /// Bounds of the stack; [`StackBounds::NONE`] if they are not known.
    stack_low: AtomicU64,
    stack_top: AtomicU64,
    /// Whether the bounds are those of a thread that has not registered, as far as they could be
    /// found. Written by the sampler.
    has_found_bounds: AtomicBool,
    /// Maximum size of the copy of a stack whose bounds do not contain the stack pointer, in bytes.
    other_stack_bytes: AtomicUsize,
    pub(crate) profiling_stack: AtomicPtr<ProfilingStack>,
    /// Event-loop state of the thread that the slot is bound to.
    event_delay: EventDelay,
    /// Start of the slot's mapping.
    start: NonNull<u8>,
    /// The stack area. In the child of a fork the length may be that of a shorter area.
    stack_start: AtomicPtr<u8>,
    stack_bytes: AtomicUsize,
    /// Number of captures since the last deep one, plus 1; 0 when no memory of a deep capture is
    /// retained. Written by the reader.
    pub(crate) captures_since_deep: AtomicU32,
    /// Whether a thread had the slot since its memory was released.
    pub(crate) was_bound: AtomicBool,
    pub(crate) header: UnsafeCell<CaptureHeader>,
}

// SAFETY: *phase owns* and *release, acquire*; all other fields are atomic or never change.
unsafe impl Sync for CaptureSlot {}

impl CaptureSlot {
    /// Creates a slot in memory of its own; `None` if the system has no memory.
    pub(crate) fn create() -> Option<&'static Self> {
        let stack = LazyRegion::reserve(FIRST_STACK_BYTES)?;
        let (start, _) = LazyRegion::reserve(HEAD_BYTES)?.into_parts();
        let (stack_start, stack_bytes) = stack.into_parts();
        let slot = Self {
            state: SlotState::new(),
            thread_pointer: AtomicU64::new(0),
            had_event: AtomicBool::new(false),
            uncaptured: AtomicU32::new(0),
            requested_at: AtomicU64::new(0),
            next_in_batch: AtomicU32::new(0),
            canceled: AtomicU32::new(0),
            stack_low: AtomicU64::new(0),
            stack_top: AtomicU64::new(0),
            has_found_bounds: AtomicBool::new(false),
            other_stack_bytes: AtomicUsize::new(OTHER_STACK_BYTES),
            profiling_stack: AtomicPtr::new(std::ptr::null_mut()),
            event_delay: EventDelay::new(),
            start,
            stack_start: AtomicPtr::new(stack_start.as_ptr()),
            stack_bytes: AtomicUsize::new(stack_bytes),
            captures_since_deep: AtomicU32::new(0),
            was_bound: AtomicBool::new(false),
            header: UnsafeCell::new(CaptureHeader::default()),
        };
        let address = start.as_ptr().cast::<Self>();
        // SAFETY: *placed*: the address is page aligned, the mapping is large enough and never
        // unmapped, and nothing else uses it.
        unsafe {
            address.write(slot);
            Some(&*address)
        }
    }

    pub(crate) fn stack_capacity(&self) -> usize {
        self.stack_bytes.load(Ordering::Acquire)
    }

    /// Returns the start of the stack area.
    pub(crate) fn stack_area(&self) -> *mut u8 {
        self.stack_start.load(Ordering::Relaxed)
    }

    /// Returns the start of an area of the slot's own mapping.
    pub(crate) fn area(&self, offset: usize) -> *mut u8 {
        self.start.as_ptr().wrapping_add(offset)
    }

    /// Enlarges the stack area for a stack of `bytes` bytes, or of [`MAX_STACK_BYTES`] if that is
    /// less. The content is lost. Returns false if the system has no memory.
    ///
    /// # Safety
    /// - *phase owns*: the caller has the right to write the slot's data, and no reference into the
    ///   stack area is alive.
    pub(crate) unsafe fn enlarge_stack_area(&self, bytes: usize) -> bool {
        let wanted = bytes.min(MAX_STACK_BYTES);
        // SAFETY: by this function's contract.
        wanted <= self.stack_capacity()
            || unsafe { self.replace_stack_area(wanted.next_power_of_two()) }
    }

    /// Gives back the address space of a large stack area, for a slot without a request. Does nothing
    /// while a capture is written or read.
    pub(crate) fn shrink_stack_area(&self) {
        if self.stack_capacity() > FIRST_STACK_BYTES
            && let Some(sequence) = self.state.begin_remote()
        {
            // SAFETY: *phase owns*: the slot is in writing, by the transition above.
            unsafe { self.replace_stack_area(FIRST_STACK_BYTES) };
            self.state.abandon(sequence);
        }
    }

    /// Replaces the stack area by an empty one. Returns false if the system has no memory.
    ///
    /// # Safety
    /// As for [`Self::enlarge_stack_area`].
    unsafe fn replace_stack_area(&self, bytes: usize) -> bool {
        let before = self.stack_capacity();
        let Some(other) = LazyRegion::reserve(bytes) else {
            return false;
        };
        let (start, bytes) = other.into_parts();
        // The child of a fork may see the step between: never a length beyond the area.
        if bytes < before {
            self.stack_bytes.store(bytes, Ordering::Release);
        }
        let old = self.stack_start.swap(start.as_ptr(), Ordering::Release);
        self.stack_bytes.store(bytes, Ordering::Release);
        if let Some(old) = NonNull::new(old) {
            // SAFETY: *placed*: these were the parts of the stack area, and by this function's
            // contract nothing uses it any more.
            drop(unsafe { LazyRegion::from_parts(old, before) });
        }
        true
    }

    /// Enlarges the stack area for the whole stack of the bound thread, as far as the system has
    /// memory: see [`Self::prepare_for_stack_of`].
    pub(crate) fn prepare_for_whole_stack(&self) {
        let [low, top] =
            [&self.stack_low, &self.stack_top].map(|bound| bound.load(Ordering::Relaxed));
        self.prepare_for_stack_of(top.saturating_sub(low) as usize);
    }

    /// Enlarges the stack area of a slot without a request, like [`Self::enlarge_stack_area`].
    /// Does nothing while a capture is written or read.
    pub(crate) fn prepare_for_stack_of(&self, bytes: usize) {
        if let Some(sequence) = self.state.begin_remote() {
            // SAFETY: *phase owns*: the slot is in writing, by the transition above.
            unsafe { self.enlarge_stack_area(bytes) };
            self.state.abandon(sequence);
        }
    }

    /// Returns the memory of the stack area beyond this size to the kernel.
    ///
    /// # Safety
    /// - *phase owns*: the caller has the right to write or read the slot's data, and no reference
    ///   into that memory is alive.
    pub(crate) unsafe fn discard_stack_beyond(&self, retained_bytes: usize) {
        let Some(start) = NonNull::new(self.stack_area()) else {
            return;
        };
        // SAFETY: *placed*: these are the parts of the stack area, which stays mapped: the parts
        // are taken back below.
        let area = unsafe { LazyRegion::from_parts(start, self.stack_capacity()) };
        // SAFETY: by this function's contract.
        unsafe { area.discard_from(retained_bytes) };
        area.into_parts();
    }

    /// Returns the memory of the labels and the texts to the kernel.
    ///
    /// # Safety
    /// As for [`Self::discard_stack_beyond`].
    pub(crate) unsafe fn discard_labels(&self) {
        // SAFETY: *placed*: these are the parts of the slot's mapping, which stays mapped: the
        // parts are taken back below.
        let head = unsafe { LazyRegion::from_parts(self.start, HEAD_BYTES) };
        // SAFETY: by this function's contract. The slot itself ends before the labels.
        unsafe { head.discard_from(LABELS_OFFSET) };
        head.into_parts();
    }

    /// Binds the slot to the calling thread, whose stack has these bounds.
    pub(crate) fn bind_to_current_thread(&self, bounds: StackBounds) {
        self.event_delay.reset();
        self.canceled.store(0, Ordering::Relaxed);
        self.had_event.store(false, Ordering::Relaxed);
        // SAFETY: all three belong to the calling thread; bounds come only from the system.
        unsafe { self.bind(thread_pointer(), bounds, open_profiling_stack()) };
    }

    /// Binds the slot to a thread that has not registered. Its thread pointer and the bounds of its
    /// stack are unknown. The slot accepts only an answer to a signal that the sampler has
    /// sent for its own request, which only that thread receives. Called by the sampler.
    pub(crate) fn bind_to_found_thread(&self, other_stack_bytes: usize) {
        self.event_delay.reset();
        self.canceled.store(0, Ordering::Relaxed);
        self.had_event.store(false, Ordering::Relaxed);
        // SAFETY: no thread has this pointer, no address lies within the bounds, and there is no
        // profiling stack.
        unsafe { self.bind(ANY_THREAD, StackBounds::NONE, std::ptr::null()) };
        self.set_other_stack_bytes(other_stack_bytes);
    }

    /// Sets how much is copied, at most, of a stack whose bounds are not known, in bytes.
    pub(crate) fn set_other_stack_bytes(&self, bytes: usize) {
        let bytes = bytes.min(OTHER_STACK_BYTES);
        self.other_stack_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Sets the thread pointer of a thread that has not registered, and the bounds of its stack.
    /// From now on its handler copies all that lies between these bounds: the kernel copies it,
    /// unless the process is in a sandbox.
    ///
    /// # Safety
    /// - All memory between the bounds is the stack of the thread with this thread pointer, and
    ///   readable until the thread ends.
    pub(crate) unsafe fn set_found_bounds(&self, thread_pointer: u64, bounds: StackBounds) {
        self.has_found_bounds.store(true, Ordering::Relaxed);
        self.thread_pointer.store(thread_pointer, Ordering::Relaxed);
        // A handler that reads one old bound and one new one finds no address between them, or
        // those between the new ones: the range only grows, and at first it is empty.
        self.stack_top.store(bounds.top, Ordering::Release);
        self.stack_low.store(bounds.low, Ordering::Release);
    }

    /// Binds the slot to a thread.
    ///
    /// # Safety
    /// - All three arguments belong to one thread: its thread pointer, the bounds of its stack, and
    ///   its profiling stack or null. They stay valid until `unbind`.
    unsafe fn bind(&self, thread_pointer: u64, bounds: StackBounds, stack: *const ProfilingStack) {
        self.was_bound.store(true, Ordering::Relaxed);
        self.has_found_bounds.store(false, Ordering::Relaxed);
        self.stack_low.store(bounds.low, Ordering::Relaxed);
        self.stack_top.store(bounds.top, Ordering::Relaxed);
        self.set_other_stack_bytes(OTHER_STACK_BYTES);
        self.profiling_stack
            .store(stack.cast_mut(), Ordering::Relaxed);
        self.thread_pointer.store(thread_pointer, Ordering::Release);
    }

    /// Binds the slot to the thread that `other` is bound to, for a capture of these parts. Returns
    /// false when `other` is no longer bound.
    pub(crate) fn bind_like(&self, other: &Self, parts: CaptureParts) -> bool {
        let profiling_stack = other.profiling_stack.load(Ordering::Acquire);
        let thread_pointer = other.thread_pointer.load(Ordering::Acquire);
        let is_found = other.has_found_bounds.load(Ordering::Relaxed);
        if thread_pointer == 0 || profiling_stack.is_null() && !is_found {
            return false;
        }
        let mut bounds = StackBounds { low: 0, top: 0 };
        if parts.stack {
            bounds.low = other.stack_low.load(Ordering::Relaxed);
            bounds.top = other.stack_top.load(Ordering::Relaxed);
        }
        let profiling_stack = if parts.labels {
            profiling_stack
        } else {
            std::ptr::null_mut()
        };
        // SAFETY: all three belong to one thread, since a slot is not bound again before `unbind`,
        // nor while its handle is shared. They stay valid while the thread lives, and its handler
        // does not run longer.
        unsafe { self.bind(thread_pointer, bounds, profiling_stack) };
        self.has_found_bounds.store(is_found, Ordering::Relaxed);
        true
    }

    /// Records that the request with this number, for which a signal was sent, is being canceled.
    pub(crate) fn set_canceled_request(&self, sequence: u32) {
        self.canceled.store(sequence, Ordering::Relaxed);
    }

    /// Clears the canceled request, because its signal has arrived.
    pub(crate) fn clear_canceled_request(&self) {
        self.canceled.store(0, Ordering::Relaxed);
    }

    /// Repeats the canceled request and returns its number; `None` without a canceled request.
    /// The signal of that request may still be pending.
    pub(crate) fn repeat_canceled_request(&self) -> Option<u32> {
        let sequence = self.canceled.load(Ordering::Relaxed);
        (sequence != 0 && self.state.repeat_request(sequence)).then_some(sequence)
    }

    /// Notes that an event of its CPU clock interrupts the thread.
    pub(crate) fn note_event(&self) {
        self.had_event.store(true, Ordering::Relaxed);
    }

    /// Returns whether a request is pending that the last signal of an event may answer, whose number
    /// another event has by now.
    pub(crate) fn takes_old_event_in_handler(&self) -> bool {
        self.had_event.load(Ordering::Relaxed) && self.state.phase() == SlotPhase::Requested
    }

    /// Notes when the request is sent that is about to be pending.
    pub(crate) fn set_requested_at(&self, time: TimeStamp) {
        self.requested_at.store(time.0, Ordering::Relaxed);
    }

    /// Returns how long the pending request has waited for its answer, in ns.
    pub(crate) fn waited_ns_in_handler(&self, now: TimeStamp) -> u64 {
        now.since_ns(TimeStamp(self.requested_at.load(Ordering::Relaxed)))
    }

    /// Unbinds the slot. Must be called on the bound thread, because its handler reads these
    /// fields.
    pub(crate) fn unbind(&self) {
        self.thread_pointer.store(0, Ordering::Relaxed);
        self.profiling_stack
            .store(std::ptr::null_mut(), Ordering::Release);
    }

    /// Returns the thread pointer of the thread that the slot is bound to.
    pub(crate) fn owner(&self) -> u64 {
        self.thread_pointer.load(Ordering::Acquire)
    }

    /// Returns whether the slot is bound to the calling thread.
    pub(crate) fn is_own_in_handler(&self) -> bool {
        self.thread_pointer.load(Ordering::Relaxed) == thread_pointer()
    }

    /// Returns the state of the thread's event loop.
    pub(crate) fn event_delay(&self) -> &EventDelay {
        &self.event_delay
    }

    /// Moves from requested to writing if the slot is bound to the calling thread and the signal
    /// belongs to the pending request. An event's signal, or one without data, belongs to any
    /// request.
    pub(crate) fn begin_in_handler(
        &self,
        arrival: &ArrivalInHandler<'_>,
    ) -> Option<SlotWriter<'_>> {
        let registers = registers_in_handler(arrival.context);
        let sequence = match arrival.source {
            SignalSource::Request(ticket) => Some(ticket.sequence),
            SignalSource::Event(_) | SignalSource::Unknown => None,
        };
        // SAFETY: the pointer is the calling thread's, and the signal interrupted it with these
        // registers.
        unsafe { self.begin_for_in_handler(sequence, thread_pointer(), registers) }
    }

    /// Moves from requested to writing if the slot is bound to this thread and this request is
    /// pending; with `None`, if any request is pending.
    ///
    /// The number of the request is read before the binding. The sampler may give a slot of a batch to
    /// another thread in between. Then the request has another number, and this thread does not begin.
    ///
    /// # Safety
    /// - The thread pointer is the calling thread's, and the registers are those with which it was
    ///   interrupted.
    unsafe fn begin_for_in_handler(
        &self,
        sequence: Option<u32>,
        thread_pointer: u64,
        registers: Registers,
    ) -> Option<SlotWriter<'_>> {
        let is_by_request = sequence.is_some();
        let sequence = sequence.or_else(|| self.state.pending_request())?;
        // The tables by which an event's signal finds the slot may have an old entry, of an
        // earlier thread with the same pointer.
        let bound = self.thread_pointer.load(Ordering::Acquire);
        let is_found_by_request = bound == ANY_THREAD && is_by_request;
        if bound != thread_pointer && !is_found_by_request {
            return None;
        }
        if !self.state.begin_in_handler(sequence) {
            return None;
        }
        let header = CaptureHeader {
            registers,
            thread_pointer,
            ..CaptureHeader::default()
        };
        Some(SlotWriter {
            slot: self,
            sequence,
            header,
        })
    }
}

/// The exclusive right to fill a slot.
pub(crate) struct SlotWriter<'a> {
    pub(crate) slot: &'a CaptureSlot,
    pub(crate) sequence: u32,
    pub(crate) header: CaptureHeader,
}

impl SlotWriter<'_> {
    /// Returns the part of the thread's stack to copy: from the red zone below the stack pointer to
    /// the oldest frame, or as much of the youngest part as fits into the slot. Records the size of
    /// the whole. `None` when the stack pointer lies outside the thread's stack.
    pub(crate) fn used_stack_in_handler(&mut self) -> Option<MemoryPiece> {
        let low = self.slot.stack_low.load(Ordering::Acquire);
        let top = self.slot.stack_top.load(Ordering::Relaxed) & !7;
        let sp = self.header.registers.sp;
        if sp < low || sp >= top {
            return None;
        }
        let start = if sp - low > RED_ZONE_BYTES {
            sp - RED_ZONE_BYTES
        } else {
            sp
        } & !7;
        let used = (top - start) as usize;
        let bytes = used.min(self.slot.stack_capacity());
        self.header.used_stack_bytes = used;
        Some(MemoryPiece {
            address: start,
            bytes,
        })
    }

    /// Copies the stack. A stack that is not the thread's own is copied as far as it is readable.
    pub(crate) fn copy_stack_in_handler(&mut self) {
        let Some(piece) = self.used_stack_in_handler() else {
            self.copy_other_stack_in_handler();
            return;
        };
        if self.slot.has_found_bounds.load(Ordering::Relaxed)
            && self.copy_found_stack_in_handler(piece)
        {
            return;
        }
        // SAFETY: the range lies between the red zone below the stack pointer and the top of this
        // thread's own stack, and all of that is mapped while the thread runs. The area is *placed*
        // and large enough; both are word aligned.
        unsafe { copy_words_in_handler(piece.address, self.slot.stack_area(), piece.bytes) };
        (self.header.stack_start, self.header.stack_bytes) = (piece.address, piece.bytes);
    }

    /// Lets the kernel copy a stack whose bounds were found: the thread may run a coroutine, and
    /// the memory between its stack and the thread's own may have been unmapped since. Returns
    /// false if the kernel cannot be asked.
    fn copy_found_stack_in_handler(&mut self, piece: MemoryPiece) -> bool {
        let sp = self.header.registers.sp & !7;
        let without_red_zone = MemoryPiece {
            address: sp,
            bytes: piece.bytes - (sp - piece.address) as usize,
        };
        for readable in [piece, without_red_zone] {
            // SAFETY: *phase owns*; the area is *placed* and large enough for the piece.
            let copied = unsafe { read_guarded_in_handler(readable, self.slot.stack_area()) };
            let Some(copied) = copied else {
                return false;
            };
            let copied = copied & !7;
            if copied < readable.bytes {
                self.header.used_stack_bytes = copied;
            }
            (self.header.stack_start, self.header.stack_bytes) = (readable.address, copied);
            if copied > 0 {
                break;
            }
        }
        true
    }

    /// Copies the readable memory from the red zone on, or else from the stack pointer on, up to
    /// [`OTHER_STACK_BYTES`] or less.
    fn copy_other_stack_in_handler(&mut self) {
        self.copy_other_stack_by_in_handler(|piece, target| {
            // SAFETY: *phase owns*; the area is *placed* and large enough for the piece.
            unsafe { read_guarded_in_handler(piece, target) }.unwrap_or(0)
        });
    }

    /// Copies another stack by `read`, which copies the readable bytes at the start of a piece to
    /// an area that has space for the whole piece, and returns their number.
    pub(crate) fn copy_other_stack_by_in_handler(
        &mut self,
        read: impl Fn(MemoryPiece, *mut u8) -> usize,
    ) {
        let has_bounds = self.slot.stack_top.load(Ordering::Relaxed) > 0;
        self.header.on_other_stack = has_bounds;
        let sp = self.header.registers.sp;
        let bytes = self.slot.other_stack_bytes.load(Ordering::Relaxed);
        let bytes = bytes.min(self.slot.stack_capacity());
        // The red zone may lie on an unreadable guard page.
        for address in [sp.wrapping_sub(RED_ZONE_BYTES) & !7, sp & !7] {
            let copied = read(MemoryPiece { address, bytes }, self.slot.stack_area());
            if copied > 0 {
                (self.header.stack_start, self.header.stack_bytes) = (address, copied & !7);
                return;
            }
        }
    }

    /// Copies the context and the labels with their texts, oldest first, until the slot is full,
    /// and records whether labels were left out.
    pub(crate) fn copy_labels_in_handler(&mut self) {
        // SAFETY: the pointer is to the owner's thread-local, which is bound to the slot while the
        // thread is registered. The calling thread is the owner: `begin_for_in_handler` has
        // compared the thread pointers.
        let Some(stack) = (unsafe { self.slot.profiling_stack.load(Ordering::Acquire).as_ref() })
        else {
            return;
        };
        self.header.context = stack.context_in_handler();
        // SAFETY: in the handler, on the stack's own thread.
        let (frames, texts) = unsafe { stack.contents_in_handler() };
        for frame in frames {
            let dynamic = frame.text_of_in_handler(texts);
            // SAFETY: the label is still pushed, so the code that holds its text is loaded.
            let label = unsafe { frame.label_in_handler() };
            let fitting =
                fitting_texts_in_handler(self.header.text_bytes, label.len(), dynamic.len());
            // SAFETY: `fitting` does not exceed the lengths of the texts.
            let texts = unsafe {
                (
                    label.get_unchecked(..fitting.0),
                    dynamic.get_unchecked(..fitting.1),
                )
            };
            if !self.copy_label_in_handler(frame, texts) {
                return;
            }
        }
    }

    /// Copies a label with these texts. Returns false, and records that labels were left out, when
    /// the slot is full.
    pub(crate) fn copy_label_in_handler(
        &mut self,
        frame: &ProfilingStackFrame,
        (label, dynamic): (&[u8], &[u8]),
    ) -> bool {
        let text_start = self.header.text_bytes;
        let text_end = text_start + label.len() + dynamic.len();
        if self.header.labels >= MAX_LABELS || text_end > TEXT_BYTES {
            self.header.labels_left_out = true;
            return false;
        }
        let captured = CapturedLabel {
            stack_address: StackAddress(frame.stack_address),
            text_start: text_start as u32,
            label_bytes: label.len() as u32,
            dynamic_bytes: dynamic.len() as u32,
            category: frame.category,
            subcategory: frame.subcategory,
            flags: frame.flags,
            location: frame.raw_script_location_in_handler(),
        };
        // SAFETY: *phase owns*, and both areas are large enough, as checked above.
        unsafe {
            self.slot
                .area(LABELS_OFFSET)
                .cast::<CapturedLabel>()
                .add(self.header.labels)
                .write(captured);
            let text = self.slot.area(TEXT_OFFSET).add(text_start);
            std::ptr::copy_nonoverlapping(label.as_ptr(), text, label.len());
            std::ptr::copy_nonoverlapping(dynamic.as_ptr(), text.add(label.len()), dynamic.len());
        }
        self.header.labels += 1;
        self.header.text_bytes = text_end;
        true
    }

    /// Moves from writing to ready.
    pub(crate) fn publish_in_handler(self) {
        // SAFETY: *phase owns*.
        unsafe { *self.slot.header.get() = self.header };
        self.slot.state.publish_in_handler(self.sequence);
    }
}

/// Returns how many bytes of a label's static and dynamic text to copy after `before` bytes of
/// other texts. Each text is copied whole or not at all; a label is copied even if its texts do not
/// fit.
pub(crate) fn fitting_texts_in_handler(
    before: usize,
    label: usize,
    dynamic: usize,
) -> (usize, usize) {
    let label = if label <= TEXT_BYTES - before {
        label
    } else {
        0
    };
    let available = (TEXT_BYTES - STATIC_TEXT_BYTES).saturating_sub(before + label);
    (label, if dynamic <= available { dynamic } else { 0 })
}

#[cfg(test)]
impl CaptureSlot {
    /// Binds the slot to a simulated thread with this stack. Its memory must live as long as the
    /// test.
    pub(crate) fn bind_simulated(&self, thread: u64, bounds: StackBounds) {
        // SAFETY: the memory lives as long as the test; the profiling stack is null.
        unsafe { self.bind(thread, bounds, std::ptr::null()) };
    }

    /// Runs the handler of a simulated thread that was interrupted with this stack pointer.
    pub(crate) fn begin_simulated(
        &self,
        sequence: impl Into<Option<u32>>,
        thread: u64,
        sp: u64,
    ) -> Option<SlotWriter<'_>> {
        let registers = Registers {
            sp,
            ..Registers::default()
        };
        // SAFETY: as for `bind_simulated`.
        unsafe { self.begin_for_in_handler(sequence.into(), thread, registers) }
    }

    /// Returns the thread pointer and the stack bounds that the slot is bound to, and whether it
    /// has a profiling stack.
    pub(crate) fn binding(&self) -> (u64, [u64; 2], bool) {
        (
            self.thread_pointer.load(Ordering::Relaxed),
            [&self.stack_low, &self.stack_top].map(|bound| bound.load(Ordering::Relaxed)),
            !self.profiling_stack.load(Ordering::Relaxed).is_null(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::TimeStamp;

    fn new_slot() -> &'static CaptureSlot {
        CaptureSlot::create().expect("memory")
    }

    #[test]
    fn transitions_follow_state_table() {
        let slot = new_slot();
        slot.bind_simulated(77, StackBounds { low: 8, top: 16 });
        assert!(slot.begin_simulated(0, 77, 0).is_none(), "no request");
        let first = slot.state.request().expect("idle");
        assert!(slot.state.request().is_none(), "already requested");
        assert!(
            slot.begin_simulated(first.wrapping_sub(1), 77, 0).is_none(),
            "an older signal"
        );
        assert!(
            slot.begin_simulated(first, 78, 0).is_none(),
            "another thread"
        );
        slot.state.cancel();
        assert!(
            slot.begin_simulated(first, 77, 0).is_none(),
            "a late signal"
        );
        let second = slot.state.request().expect("idle again");
        let mut writer = slot.begin_simulated(second, 77, 0).expect("requested");
        assert!(
            slot.begin_simulated(second, 77, 0).is_none(),
            "already answered"
        );
        assert!(!slot.state.retire(), "a handler is writing");
        writer.header.time = TimeStamp(5);
        writer.publish_in_handler();
        let view = slot.captured().expect("ready");
        assert!(
            slot.captured().is_none() && !slot.state.retire(),
            "the view is being read"
        );
        assert_eq!(
            (view.header().time, view.stack(), view.labels().len()),
            (TimeStamp(5), &[][..], 0)
        );
        drop(view);
        assert_eq!(slot.state.phase(), SlotPhase::Idle);
        assert!(slot.state.retire());
    }

    #[test]
    fn timer_signal_begins_only_on_the_thread_of_the_slot() {
        let slot = new_slot();
        slot.bind_simulated(77, StackBounds { low: 8, top: 16 });
        assert!(slot.begin_simulated(None, 77, 0).is_none(), "no request");
        let request = slot.state.request().expect("idle");
        assert!(
            slot.begin_simulated(None, 78, 0).is_none(),
            "an old entry of the hash table led another thread here"
        );
        let writer = slot.begin_simulated(None, 77, 0).expect("requested");
        assert_eq!(writer.sequence, request);
    }

    #[test]
    fn fitting_texts_leaves_dynamic_text_out_first() {
        const DYNAMIC: usize = TEXT_BYTES - STATIC_TEXT_BYTES;
        for (before, texts, fitting) in [
            (0, (5, 512), (5, 512)),
            (DYNAMIC - 517, (5, 512), (5, 512)),
            (DYNAMIC - 516, (5, 512), (5, 0)),
            (DYNAMIC + 1, (5, 1), (5, 0)),
            (DYNAMIC - 3, (5, 0), (5, 0)),
            (TEXT_BYTES - 5, (5, 1), (5, 0)),
            (TEXT_BYTES - 4, (5, 1), (0, 0)),
            (TEXT_BYTES, (0, 0), (0, 0)),
            (0, (u32::MAX as usize, 512), (0, 512)),
        ] {
            assert_eq!(
                fitting_texts_in_handler(before, texts.0, texts.1),
                fitting,
                "{before} {texts:?}"
            );
        }
    }

    #[test]
    fn copy_stack_spans_red_zone_to_top() {
        let memory: Vec<u64> = (0..1000).collect();
        let base = memory.as_ptr() as u64;
        let slot = new_slot();
        slot.bind_simulated(
            1,
            StackBounds {
                low: base,
                top: base + 8000,
            },
        );
        let captured_from = |sp: u64| {
            let sequence = slot.state.request().expect("idle");
            let mut writer = slot.begin_simulated(sequence, 1, sp).expect("requested");
            writer.copy_stack_in_handler();
            writer.publish_in_handler();
            let view = slot.captured().expect("ready");
            (view.header().stack_start, view.stack().to_vec())
        };
        let (start, bytes) = captured_from(base + 4000);
        assert_eq!((start, bytes.len()), (base + 3872, 8000 - 3872));
        assert_eq!(bytes[..8], 484u64.to_ne_bytes());
        assert_eq!(
            captured_from(base + 8).0,
            base + 8,
            "nothing below the stack is read"
        );
        assert_eq!(captured_from(64), (0, vec![]), "nothing is readable there");
    }
}
