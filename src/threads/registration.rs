//! A thread's registration, and the calling thread's own.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use crate::base::{ThreadId, TimeStamp};
use crate::platform::{
    current_stack_bounds, current_thread_id, current_thread_os_name, is_main_thread, monotonic_now,
    thread_pointer,
};
use crate::threads::registry::ThreadRegistry;
use crate::threads::slot_pool::SlotHandle;
use crate::threads::thread_labels::close_profiling_stack;

/// The name by which the Firefox Profiler knows a process's main thread.
pub(crate) const MAIN_THREAD_NAME: &str = "GeckoMain";

/// A registered thread. Shared between the registry, the thread itself and the sampler; outlives the thread for as long
/// as a profile may need its name.
#[doc(alias = "ThreadRegistrationInfo")]
#[derive(Debug)]
pub(crate) struct ThreadRegistration {
    /// Which registration of the process; entries name their thread by it, since the kernel uses its ids again.
    pub(crate) serial: u64,
    pub(crate) name: String,
    pub(crate) is_main: bool,
    pub(crate) registered_at: TimeStamp,
    /// Written by the own thread after a fork, read by anyone.
    tid: AtomicI32,
    /// Written under the registry's lock, read by anyone: whether the running session selects the thread.
    profiled: AtomicBool,
    /// Written by the own thread when it unregisters, read by anyone; 0 while it is registered.
    unregistered_at: AtomicU64,
    /// Written by the sampler when it finds the thread dead, read under the registry's lock: where the buffer ended
    /// then. 0 before.
    end_position: AtomicU64,
    /// Raised by the own thread when it says that it goes to sleep, and when it says that it is awake; odd while it
    /// sleeps. Read by anyone.
    announced: AtomicU32,
    /// The thread owns its slot, and the sampler while it samples it; a dead thread's serves another.
    slot: Weak<SlotHandle>,
}

impl ThreadRegistration {
    pub(crate) fn tid(&self) -> ThreadId {
        ThreadId::from_number(self.tid.load(Ordering::Relaxed))
    }

    /// Where the thread's stacks are captured to; `None` when it is gone, or when the system had no memory for one or
    /// could not tell the stack's bounds: such a thread has markers and no stacks.
    pub(crate) fn slot(&self) -> Option<Arc<SlotHandle>> {
        self.slot.upgrade()
    }

    pub(crate) fn is_profiled(&self) -> bool {
        self.profiled.load(Ordering::Relaxed)
    }

    pub(super) fn set_profiled(&self, profiled: bool) {
        self.profiled.store(profiled, Ordering::Relaxed);
    }

    /// When the thread was unregistered, or found dead.
    pub(crate) fn unregistered_at(&self) -> Option<TimeStamp> {
        Some(self.unregistered_at.load(Ordering::Acquire)).filter(|&ns| ns != 0).map(TimeStamp)
    }

    pub(super) fn set_unregistered(&self, at: TimeStamp) {
        self.unregistered_at.store(at.0.max(1), Ordering::Release);
    }

    pub(super) fn end_position(&self) -> Option<u64> {
        Some(self.end_position.load(Ordering::Relaxed)).filter(|&position| position != 0)
    }

    /// Notes that nothing of this thread lies in the buffer from `position` on.
    pub(crate) fn set_end_position(&self, position: u64) {
        self.end_position.store(position.max(1), Ordering::Relaxed);
    }

    /// Which of its announced sleeps the thread is in.
    pub(crate) fn announced_sleep(&self) -> Option<u32> {
        Some(self.announced.load(Ordering::Relaxed)).filter(|announced| announced % 2 == 1)
    }

    /// The own thread says that it goes to sleep, or is awake; to say the same again changes nothing.
    pub(crate) fn announce(&self, sleeps: bool) {
        let before = self.announced.load(Ordering::Relaxed);
        if (before % 2 == 1) != sleeps {
            self.announced.store(before.wrapping_add(1), Ordering::Relaxed);
        }
    }

    /// In the child of a fork, on the surviving thread: it has a new id, and nobody waits for its slot.
    pub(super) fn adopt_after_fork(&self) {
        self.tid.store(current_thread_id().to_number(), Ordering::Relaxed);
        if let Some(slot) = self.slot() {
            slot.reset_after_fork();
        }
    }
}

/// The calling thread's registration, and how often it was asked for.
#[derive(Debug, Default)]
pub(crate) struct CurrentThread {
    registration: Option<Arc<ThreadRegistration>>,
    slot: Option<Arc<SlotHandle>>,
    nesting: u32,
}

thread_local! {
    // The destructor unregisters a thread that ends without doing so.
    static CURRENT: RefCell<CurrentThread> = const { RefCell::new(CurrentThread { registration: None, slot: None, nesting: 0 }) };
}

impl CurrentThread {
    /// Calls `body` with the calling thread's registration; `None` when there is none, or the thread is ending.
    pub(crate) fn with<T>(body: impl FnOnce(&Arc<ThreadRegistration>) -> T) -> Option<T> {
        CURRENT.try_with(|current| current.try_borrow().ok()?.registration.as_ref().map(body)).ok()?
    }

    fn end(&mut self) {
        if let Some(registration) = self.registration.take() {
            close_profiling_stack();
            if let Some(slot) = self.slot.take() {
                slot.leave_for_thread(thread_pointer());
                slot.unbind();
            }
            ThreadRegistry::remove(&registration, monotonic_now());
        }
    }
}

impl Drop for CurrentThread {
    fn drop(&mut self) {
        self.end();
    }
}

/// Registers the calling thread, or counts once more that it is registered. Does nothing when it is called, by an
/// allocator say, from within itself.
pub(crate) fn register_current_thread(name: &str) {
    let _ = CURRENT.try_with(|current| {
        let Ok(mut current) = current.try_borrow_mut() else { return };
        current.nesting += 1;
        if current.registration.is_none() {
            let slot = acquire_slot().map(Arc::new);
            current.registration =
                Some(ThreadRegistry::add(|serial| new_registration(serial, name, slot.as_ref())));
            current.slot = slot;
        }
    });
}

/// Takes one registration back; the last one ends it. More than there were are harmless.
pub(crate) fn unregister_current_thread() {
    let _ = CURRENT.try_with(|current| {
        let Ok(mut current) = current.try_borrow_mut() else { return };
        current.nesting = current.nesting.saturating_sub(1);
        if current.nesting == 0 {
            current.end();
        }
    });
}

fn acquire_slot() -> Option<SlotHandle> {
    let bounds = current_stack_bounds()?;
    let slot = SlotHandle::acquire(bounds.bytes())?;
    slot.bind_to_current_thread(bounds);
    slot.enter_for_thread(thread_pointer());
    Some(slot)
}

fn new_registration(serial: u64, name: &str, slot: Option<&Arc<SlotHandle>>) -> ThreadRegistration {
    let tid = current_thread_id();
    let is_main = is_main_thread();
    ThreadRegistration {
        serial,
        name: if is_main { MAIN_THREAD_NAME.to_owned() } else { name_or_stand_in(name, tid) },
        is_main,
        registered_at: monotonic_now(),
        tid: AtomicI32::new(tid.to_number()),
        profiled: AtomicBool::new(false),
        unregistered_at: AtomicU64::new(0),
        end_position: AtomicU64::new(0),
        announced: AtomicU32::new(0),
        slot: slot.map_or_else(Weak::new, Arc::downgrade),
    }
}

/// An empty name is the system's for the thread, and failing that its id.
fn name_or_stand_in(name: &str, tid: ThreadId) -> String {
    let name = if name.is_empty() { current_thread_os_name() } else { name.to_owned() };
    if name.is_empty() { format!("Thread {}", tid.to_number()) } else { name }
}
