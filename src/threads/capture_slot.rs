//! Where stop 5 puts things: the slot into which a thread's handler copies registers, stack, labels and time.
//!
//! Runs in the signal handler: [`CaptureSlot::begin_in_handler`] and everything of [`SlotWriter`].
//!
//! Who may write and read it when: `slot_state.rs`.
//!
//! **Contract** (cited below):
//! - *phase owns* and *release, acquire*: as `slot_state.rs` says, for the capture areas and the header;
//! - *placed*: header and areas lie in one mapping that is never given back, in the order of the constants below.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::base::StackAddress;
use crate::platform::{
    ArrivalInHandler, LazyRegion, MemoryPiece, Registers, SignalSource, StackBounds,
    copy_words_in_handler, read_guarded_in_handler, thread_pointer,
};
use crate::threads::capture::{CaptureHeader, CaptureParts, CapturedLabel};
use crate::threads::event_delay::EventDelay;
use crate::threads::profiling_stack::ProfilingStack;
use crate::threads::profiling_stack_frame::ProfilingStackFrame;
use crate::threads::slot_state::{SlotPhase, SlotState};
use crate::threads::thread_labels::open_profiling_stack;

pub(super) const LABELS_OFFSET: usize = 4 << 10;
pub(super) const MAX_LABELS: usize = 1024;
pub(super) const TEXT_OFFSET: usize = LABELS_OFFSET + MAX_LABELS * size_of::<CapturedLabel>();
pub(super) const TEXT_BYTES: usize = 64 << 10;
/// Dynamic texts leave so much of these for the static ones: what a label is matters more than what of.
const STATIC_TEXT_BYTES: usize = 16 << 10;
pub(super) const STACK_OFFSET: usize = TEXT_OFFSET + TEXT_BYTES;
/// Below its stack pointer a leaf function may use so many bytes, where the machine's ABI allows it.
const RED_ZONE_BYTES: u64 = if cfg!(target_arch = "x86_64") { 128 } else { 0 };
/// Of a stack that is not the thread's own, whose end nobody knows, so much is copied at most.
const OTHER_STACK_BYTES: usize = 64 << 10;
/// What a deep stack took beyond this is given back to the kernel when so many captures in a row did not need it.
pub(super) const KEPT_STACK_BYTES: usize = 256 << 10;
pub(super) const CAPTURES_WITHOUT: u32 = 8;

const _: () =
    assert!(size_of::<CaptureSlot>() <= LABELS_OFFSET && STACK_OFFSET.is_multiple_of(4096));

/// The head of a slot; the areas follow it in the same mapping.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct CaptureSlot {
    pub(super) state: SlotState,
    /// Written by the owner before the first request, read by its handler.
    thread_pointer: AtomicU64,
    timer: AtomicI32,
    /// Written by the sampler: the number of a request that was sent by a signal and taken back, and not answered since; that
    /// signal may be pending still, and the kernel drops others meanwhile. 0 when there is none.
    taken_back: AtomicU32,
    stack_low: AtomicU64,
    stack_top: AtomicU64,
    pub(super) profiling_stack: AtomicPtr<ProfilingStack>,
    /// Of the thread that the slot is tied to.
    event_delay: EventDelay,
    pub(super) region: &'static LazyRegion,
    /// Captures since the last deep one; written by the reader. 0 when none was deep.
    pub(super) since_deep: AtomicU32,
    pub(super) header: UnsafeCell<CaptureHeader>,
}

// SAFETY: *phase owns* and *release, acquire*; everything else is atomic.
unsafe impl Sync for CaptureSlot {}

impl CaptureSlot {
    /// Makes a slot at the beginning of a mapping that is its own.
    pub(super) fn place_in(region: &'static LazyRegion) -> &'static Self {
        let slot = Self {
            state: SlotState::new(),
            thread_pointer: AtomicU64::new(0),
            timer: AtomicI32::new(-1),
            taken_back: AtomicU32::new(0),
            stack_low: AtomicU64::new(0),
            stack_top: AtomicU64::new(0),
            profiling_stack: AtomicPtr::new(std::ptr::null_mut()),
            event_delay: EventDelay::new(),
            region,
            since_deep: AtomicU32::new(0),
            header: UnsafeCell::new(CaptureHeader::default()),
        };
        let place = region.start().as_ptr().cast::<Self>();
        // SAFETY: *placed*: page aligned, large enough, and nobody else's.
        unsafe {
            place.write(slot);
            &*place
        }
    }

    pub(super) fn stack_capacity(&self) -> usize {
        self.region.bytes() - STACK_OFFSET
    }

    pub(super) fn area(&self, offset: usize) -> *mut u8 {
        self.region.start().as_ptr().wrapping_add(offset)
    }

    /// Ties the slot to the calling thread, whose stack this is.
    pub(super) fn bind_to_current_thread(&self, bounds: StackBounds) {
        self.event_delay.reset();
        self.taken_back.store(0, Ordering::Relaxed);
        // SAFETY: the calling thread's own; bounds are had from the system alone.
        unsafe { self.bind(thread_pointer(), bounds, open_profiling_stack()) };
    }

    /// # Safety
    /// - All three are of one thread: its thread pointer, the bounds of its stack, and its profiling stack or null; and
    ///   they stay so until `unbind`.
    unsafe fn bind(&self, thread_pointer: u64, bounds: StackBounds, stack: *const ProfilingStack) {
        self.stack_low.store(bounds.low, Ordering::Relaxed);
        self.stack_top.store(bounds.top, Ordering::Relaxed);
        self.profiling_stack
            .store(stack.cast_mut(), Ordering::Relaxed);
        self.thread_pointer.store(thread_pointer, Ordering::Release);
    }

    /// Ties the slot to the thread that `other` is tied to, for a capture of these parts of it; false when that one is
    /// tied to none any more.
    pub(super) fn bind_like(&self, other: &Self, parts: CaptureParts) -> bool {
        let profiling_stack = other.profiling_stack.load(Ordering::Acquire);
        let thread_pointer = other.thread_pointer.load(Ordering::Acquire);
        if thread_pointer == 0 || profiling_stack.is_null() {
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
        // SAFETY: of one thread, since a slot is bound once until it is unbound, and is not bound anew while its handle
        // is shared; they stay so for as long as the thread lives, and its handler runs no longer.
        unsafe { self.bind(thread_pointer, bounds, profiling_stack) };
        true
    }

    /// Notes a request that was sent by a signal and is taken back.
    pub(crate) fn set_taken_back(&self, sequence: u32) {
        self.taken_back.store(sequence, Ordering::Relaxed);
    }

    /// Its signal has come.
    pub(crate) fn clear_taken_back(&self) {
        self.taken_back.store(0, Ordering::Relaxed);
    }

    /// Makes the request again that was taken back, if there is one: its number. Its signal may be pending still.
    pub(crate) fn request_taken_back(&self) -> Option<u32> {
        let sequence = self.taken_back.load(Ordering::Relaxed);
        (sequence != 0 && self.state.request_again(sequence)).then_some(sequence)
    }

    /// The number that the signals of the thread's own timer carry; -1 while it has none.
    pub(crate) fn set_timer(&self, number: i32) {
        self.timer.store(number, Ordering::Release);
    }

    /// Whether the thread's own timer answers the requests, so that no signal is sent for them.
    pub(crate) fn has_timer(&self) -> bool {
        self.timer.load(Ordering::Acquire) >= 0
    }

    pub(crate) fn has_timer_in_handler(&self, number: i32) -> bool {
        self.timer.load(Ordering::Acquire) == number
    }

    /// Unties it. On the thread's own, since its handler reads what is untied.
    pub(super) fn unbind(&self) {
        self.thread_pointer.store(0, Ordering::Relaxed);
        self.profiling_stack
            .store(std::ptr::null_mut(), Ordering::Release);
    }

    /// What the thread's event loop does.
    pub(crate) fn event_delay(&self) -> &EventDelay {
        &self.event_delay
    }

    pub(crate) fn phase(&self) -> SlotPhase {
        self.state.phase()
    }

    /// Idle to requested: the number that the signal is to carry.
    pub(crate) fn request(&self) -> Option<u32> {
        self.state.request()
    }

    /// Requested to idle: nobody waits any more.
    pub(crate) fn cancel(&self) {
        self.state.cancel();
    }

    /// The sequence number of the request that is out.
    pub(crate) fn pending_request(&self) -> Option<u32> {
        self.state.pending_request()
    }

    /// To idle from wherever it is; false while somebody writes or reads.
    pub(crate) fn retire(&self) -> bool {
        self.state.retire()
    }

    /// In the child of a fork, on the only thread: to idle from wherever it is.
    pub(super) fn reset_after_fork(&self) {
        self.state.reset_after_fork();
    }

    /// Requested to writing, if this is the request that is waited for and the calling thread the slot's.
    pub(crate) fn begin_in_handler(
        &self,
        arrival: &ArrivalInHandler<'_>,
    ) -> Option<SlotWriter<'_>> {
        let registers = Registers::of_arrival_in_handler(arrival);
        match arrival.source {
            SignalSource::Request(ticket) => {
                // SAFETY: the calling thread's pointer, and the registers that the signal stopped it with.
                unsafe { self.begin_for_in_handler(ticket.sequence, thread_pointer(), registers) }
            }
            SignalSource::Timer(_) => {
                let sequence = self.state.begin_any_in_handler()?;
                let header = CaptureHeader {
                    registers,
                    ..CaptureHeader::default()
                };
                Some(SlotWriter {
                    slot: self,
                    sequence,
                    header,
                })
            }
        }
    }

    /// # Safety
    /// - The thread pointer is the calling thread's, and the registers are those that it was stopped with.
    unsafe fn begin_for_in_handler(
        &self,
        sequence: u32,
        thread_pointer: u64,
        registers: Registers,
    ) -> Option<SlotWriter<'_>> {
        if self.thread_pointer.load(Ordering::Acquire) != thread_pointer
            || !self.state.begin_in_handler(sequence)
        {
            return None;
        }
        let header = CaptureHeader {
            registers,
            ..CaptureHeader::default()
        };
        Some(SlotWriter {
            slot: self,
            sequence,
            header,
        })
    }
}

/// The right to fill a slot, in the handler.
pub(crate) struct SlotWriter<'a> {
    pub(super) slot: &'a CaptureSlot,
    pub(super) sequence: u32,
    pub(crate) header: CaptureHeader,
}

impl SlotWriter<'_> {
    /// Which part of the thread's stack is to be copied: from the red zone below the stack pointer to the thread's oldest
    /// frame, or as much of its younger end as the slot holds. `None` when the stack pointer lies elsewhere.
    pub(super) fn used_stack_in_handler(&self) -> Option<MemoryPiece> {
        let low = self.slot.stack_low.load(Ordering::Relaxed);
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
        Some(MemoryPiece {
            address: start,
            bytes: ((top - start) as usize).min(self.slot.stack_capacity()),
        })
    }

    /// Copies the stack. One that is not the thread's own is copied as far as it is readable.
    pub(crate) fn copy_stack_in_handler(&mut self) {
        let Some(piece) = self.used_stack_in_handler() else {
            self.copy_other_stack_in_handler();
            return;
        };
        // SAFETY: the range lies between the stack pointer less its red zone and the top of this thread's own stack,
        // all of which is mapped while the thread runs; the area is *placed* and has room; both are word aligned.
        unsafe { copy_words_in_handler(piece.address, self.slot.area(STACK_OFFSET), piece.bytes) };
        (self.header.stack_start, self.header.stack_bytes) = (piece.address, piece.bytes);
    }

    pub(super) fn copy_other_stack_in_handler(&mut self) {
        self.header.on_other_stack = true;
        let sp = self.header.registers.sp;
        let bytes = OTHER_STACK_BYTES.min(self.slot.stack_capacity());
        // The page below may be a guard.
        for address in [sp.wrapping_sub(RED_ZONE_BYTES) & !7, sp & !7] {
            // SAFETY: *phase owns*; the area is *placed* and has room.
            let copied = unsafe {
                read_guarded_in_handler(
                    MemoryPiece { address, bytes },
                    self.slot.area(STACK_OFFSET),
                )
            };
            if copied > 0 {
                (self.header.stack_start, self.header.stack_bytes) = (address, copied & !7);
                return;
            }
        }
    }

    /// Copies the labels with their texts, oldest first, as many as there is room for, and notes if those are not all.
    pub(crate) fn copy_labels_in_handler(&mut self) {
        // SAFETY: the owner's thread-local, tied to the slot while its thread is registered. This is its thread: a request's
        // handler has compared the thread pointers, and a timer's has found the slot by its own (`sampler/handler.rs`).
        let Some(stack) = (unsafe { self.slot.profiling_stack.load(Ordering::Acquire).as_ref() })
        else {
            return;
        };
        // SAFETY: in the handler, on the stack's own thread.
        let (frames, texts) = unsafe { stack.contents_in_handler() };
        for frame in frames {
            let dynamic = frame.text_of_in_handler(texts);
            // SAFETY: its label is pushed, so what it names is loaded.
            let label = unsafe { frame.label_in_handler() };
            let fitting =
                fitting_texts_in_handler(self.header.text_bytes, label.len(), dynamic.len());
            // SAFETY: neither is longer than before.
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

    /// Copies a label with as much of its texts as fits; false, and noted, when there is no room for another label.
    pub(super) fn copy_label_in_handler(
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
            place: frame.place_in_handler(),
        };
        // SAFETY: *phase owns*, and both areas have room, as checked above.
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

    /// Writing to ready.
    pub(crate) fn publish_in_handler(self) {
        // SAFETY: *phase owns*.
        unsafe { *self.slot.header.get() = self.header };
        self.slot.state.publish_in_handler(self.sequence);
    }
}

/// How much of a label's static and dynamic text to copy behind so many bytes of others: all or nothing of either. A label
/// whose text does not fit is copied without.
pub(super) fn fitting_texts_in_handler(
    before: usize,
    label: usize,
    dynamic: usize,
) -> (usize, usize) {
    let label = if label <= TEXT_BYTES - before {
        label
    } else {
        0
    };
    let room = (TEXT_BYTES - STATIC_TEXT_BYTES).saturating_sub(before + label);
    (label, if dynamic <= room { dynamic } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::TimeStamp;
    use crate::threads::SlotHandle;

    /// A handler on a made-up thread, stopped with this stack pointer.
    fn begin(slot: &CaptureSlot, sequence: u32, thread: u64, sp: u64) -> Option<SlotWriter<'_>> {
        // SAFETY: what these tests bind is memory that lives as long as the test.
        unsafe {
            slot.begin_for_in_handler(
                sequence,
                thread,
                Registers {
                    sp,
                    ..Registers::default()
                },
            )
        }
    }

    fn bind(slot: &CaptureSlot, thread: u64, bounds: StackBounds) {
        // SAFETY: as above; there is no profiling stack.
        unsafe { slot.bind(thread, bounds, std::ptr::null()) };
    }

    #[test]
    fn every_move_is_made_by_whom_the_table_says() {
        let slot = SlotHandle::acquire(64 << 10).expect("a slot");
        bind(&slot, 77, StackBounds { low: 8, top: 16 });
        assert!(begin(&slot, 0, 77, 0).is_none(), "nobody asked");
        let first = slot.request().expect("idle");
        assert!(slot.request().is_none(), "asked already");
        assert!(
            begin(&slot, first.wrapping_sub(1), 77, 0).is_none(),
            "an old signal"
        );
        assert!(begin(&slot, first, 78, 0).is_none(), "another thread");
        slot.cancel();
        assert!(begin(&slot, first, 77, 0).is_none(), "a late signal");
        let second = slot.request().expect("idle again");
        let mut writer = begin(&slot, second, 77, 0).expect("asked");
        assert!(begin(&slot, second, 77, 0).is_none(), "answered already");
        assert!(!slot.retire(), "a handler is writing");
        writer.header.time = TimeStamp(5);
        writer.publish_in_handler();
        let view = slot.captured().expect("ready");
        assert!(
            slot.captured().is_none() && !slot.retire(),
            "somebody reads"
        );
        assert_eq!(
            (view.header().time, view.stack(), view.labels().len()),
            (TimeStamp(5), &[][..], 0)
        );
        drop(view);
        assert_eq!(slot.phase(), SlotPhase::Idle);
        assert!(slot.retire());
    }

    #[test]
    fn a_slot_given_back_while_a_handler_writes_is_used_again_only_after() {
        let acquire = || SlotHandle::acquire(32 << 20).expect("a slot");
        let slot = acquire();
        let number = slot.number();
        let place = crate::threads::find_slot_in_handler(number).expect("in the table");
        bind(&slot, 5, StackBounds { low: 8, top: 16 });
        let sequence = slot.request().expect("idle");
        let writer = begin(place, sequence, 5, 0).expect("asked");
        drop(slot);
        assert_ne!(acquire().number(), number, "a handler is writing");
        writer.publish_in_handler();
        assert!(
            [acquire(), acquire()]
                .iter()
                .any(|slot| slot.number() == number)
        );
    }

    #[test]
    fn a_slot_beside_another_takes_the_parts_that_are_asked_for() {
        let own = SlotHandle::acquire(64 << 10).expect("a slot");
        let beside = |parts| SlotHandle::acquire_beside(&own, parts);
        let parts = CaptureParts {
            stack: true,
            labels: false,
        };
        assert_eq!(
            beside(parts).err(),
            Some(crate::threads::NoSlot::Unregistered),
            "tied to none"
        );
        own.bind_to_current_thread(StackBounds { low: 8, top: 16 });
        let slot = beside(parts).expect("a slot");
        let bounds = [&slot.stack_low, &slot.stack_top].map(|bound| bound.load(Ordering::Relaxed));
        assert_eq!(
            (slot.thread_pointer.load(Ordering::Relaxed), bounds),
            (thread_pointer(), [8, 16])
        );
        assert!(slot.profiling_stack.load(Ordering::Relaxed).is_null());
        own.unbind();
        assert!(beside(parts).is_err());
        crate::threads::thread_labels::close_profiling_stack();
    }

    #[test]
    fn a_text_that_does_not_fit_is_left_out_and_a_dynamic_one_sooner() {
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
    fn the_copy_ends_at_the_top_and_begins_below_the_stack_pointer() {
        let memory: Vec<u64> = (0..1000).collect();
        let base = memory.as_ptr() as u64;
        let slot = SlotHandle::acquire(64 << 10).expect("a slot");
        bind(
            &slot,
            1,
            StackBounds {
                low: base,
                top: base + 8000,
            },
        );
        let captured_from = |sp: u64| {
            let sequence = slot.request().expect("idle");
            let mut writer = begin(&slot, sequence, 1, sp).expect("asked");
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
        assert_eq!(captured_from(64), (0, vec![]), "nothing is there");
    }
}
