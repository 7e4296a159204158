//! Registration of threads, and the reference to the calling thread.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::capture::{EventDelay, SlotHandle};
use crate::labels::close_profiling_stack;
use crate::platform::{
    SignalStack, ThreadProbe, current_stack_bounds, current_thread_id, current_thread_os_name,
    is_main_thread, monotonic_now, thread_pointer,
};
use crate::threads::registration_data::{
    OffThreadRef, ThreadRegistrationInfo, UnlockedReaderAndAtomicRwOnThread,
};
use crate::threads::registry::ThreadRegistry;
use crate::types::ThreadId;
use crate::util::{PsLock, SMALL_TASK_BYTES, allocator_has, holds_any_lock, prepare_to_wait};

/// Name by which the Firefox Profiler recognizes the main thread of a process.
pub(crate) const MAIN_THREAD_NAME: &str = "GeckoMain";

/// A reference to the calling thread, which is registered. It can leave neither the thread nor the
/// call to which it was passed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnThreadRef<'tls> {
    registration: &'tls OffThreadRef,
    slot: Option<&'tls SlotHandle>,
    not_send: PhantomData<*const ()>,
}

impl<'tls> OnThreadRef<'tls> {
    /// Calls `body` with a reference to the calling thread. Returns `None` when the thread is not
    /// registered, is exiting, or is inside a registration.
    #[doc(alias = "WithOnThreadRef")]
    pub(crate) fn with<T>(body: impl FnOnce(OnThreadRef<'_>) -> T) -> Option<T> {
        let call = |current: &RefCell<CurrentThread>| {
            let current = current.try_borrow().ok()?;
            let registration = current.registration.as_ref()?;
            let slot = current.slot.as_deref();
            Some(body(OnThreadRef {
                registration,
                slot,
                not_send: PhantomData,
            }))
        };
        CURRENT.try_with(call).ok()?
    }

    #[doc(alias = "UnlockedReaderAndAtomicRWOnThreadRef")]
    pub(crate) fn unlocked_reader_and_atomic_rw_on_thread(
        &self,
    ) -> UnlockedReaderAndAtomicRwOnThread<'tls> {
        self.registration.unlocked_reader_and_atomic_rw_on_thread()
    }

    /// Returns the state of the thread's event loop; `None` for a thread without a slot.
    ///
    /// Written by the thread itself. Read by its handler and by the sampler. Lock: none.
    pub(crate) fn event_delay(&self) -> Option<&'tls EventDelay> {
        self.slot.map(|slot| slot.event_delay())
    }

    /// Returns a reference to the thread for use on any thread.
    pub(crate) fn to_off_thread(self) -> OffThreadRef {
        self.registration.clone()
    }
}

/// Functions that update the session when a thread registers or unregisters. Called under the
/// `PsLock`; supplied by a higher layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegistrationHooks {
    /// Returns the thread with this id if the sampler has found it and it has not registered.
    pub(crate) found: fn(ThreadId, &PsLock) -> Option<OffThreadRef>,
    /// Called again if the thread gets another name.
    pub(crate) registered: fn(&OffThreadRef, &PsLock),
    pub(crate) unregistered: fn(&OffThreadRef, &PsLock),
}

#[cfg(test)]
impl RegistrationHooks {
    /// Hooks for tests without a session.
    pub(crate) const NONE: Self = Self {
        found: |_, _| None,
        registered: |_, _| (),
        unregistered: |_, _| (),
    };
}

/// The calling thread's registration, and how many times it was requested.
#[derive(Debug)]
struct CurrentThread {
    registration: Option<OffThreadRef>,
    hooks: Option<RegistrationHooks>,
    slot: Option<Arc<SlotHandle>>,
    /// The handler's stack, if the thread had none or too small a one: the thread may run
    /// coroutines whose stacks are too small for a signal.
    signal_stack: Option<SignalStack>,
    /// Number of times that the application has registered the thread. 0 if the profiler has done
    /// it itself.
    nesting: u32,
    /// Whether the application has unregistered the thread. The profiler then does not register it
    /// itself.
    has_left: bool,
}

thread_local! {
    // The destructor unregisters a thread that exits without unregistering.
    static CURRENT: RefCell<CurrentThread> =
        const { RefCell::new(CurrentThread { registration: None, hooks: None, slot: None, signal_stack: None, nesting: 0, has_left: false }) };
}

impl CurrentThread {
    /// Registers the thread, under this name if the application has given one.
    fn begin(&mut self, name: Option<&str>, hooks: RegistrationHooks) {
        prepare_to_wait();
        let signal_stack = SignalStack::install_if_needed();
        let slot = acquire_slot().map(Arc::new);
        let registration = register_as(name, slot.as_ref(), hooks);
        *self = Self {
            registration: Some(registration),
            hooks: Some(hooks),
            slot,
            signal_stack,
            ..*self
        };
    }

    /// Names a thread that the profiler has registered itself.
    fn rename(&self, name: &str) {
        if let (Some(registration), Some(hooks)) = (&self.registration, self.hooks) {
            registration.data().set_given_name(given_name(name));
            (hooks.registered)(registration, &PsLock::acquire());
        }
    }

    fn end(&mut self) {
        let (Some(registration), Some(hooks)) = (self.registration.take(), self.hooks.take())
        else {
            return;
        };
        close_profiling_stack();
        if let Some(slot) = self.slot.take() {
            slot.remove_for_thread(thread_pointer());
            slot.unbind();
        }
        registration.data().note_cpu_at_end();
        unregister(&registration, hooks);
        self.signal_stack = None;
    }
}

impl Drop for CurrentThread {
    fn drop(&mut self) {
        self.end();
    }
}

/// Calls `body`, unless the calling thread is exiting or is already inside this function.
fn with_current(body: impl FnOnce(&mut CurrentThread)) {
    let _ = CURRENT.try_with(|current| {
        current
            .try_borrow_mut()
            .map(|mut current| body(&mut current))
    });
}

/// Registers the calling thread, or increments its number of registrations. Does nothing when it is
/// called from within itself or from within [`OnThreadRef::with`], for example by an allocator.
pub(crate) fn register_current_thread(name: &str, hooks: RegistrationHooks) {
    with_current(|current| {
        current.nesting = current.nesting.saturating_add(1);
        current.has_left = false;
        // Without memory the thread stays unregistered, until it is registered again.
        if current.registration.is_none() && has_memory() {
            current.begin(Some(name), hooks);
        } else if current.nesting == 1 {
            current.rename(name);
        }
    });
}

/// Registers the calling thread under the system's name, unless it is or was registered. The thread
/// has something to record and the application has not registered it. Does nothing where
/// [`register_current_thread`] does nothing.
pub(crate) fn register_current_thread_itself(hooks: RegistrationHooks) {
    with_current(|current| {
        if current.registration.is_none() && !current.has_left && has_memory() {
            current.begin(None, hooks);
        }
    });
}

/// Returns whether the calling thread was never registered, and so may be by
/// [`register_current_thread_itself`].
pub(crate) fn may_register_itself() -> bool {
    let may_register = |current: &RefCell<CurrentThread>| {
        let current = current.try_borrow();
        current.is_ok_and(|current| current.registration.is_none() && !current.has_left)
    };
    CURRENT.try_with(may_register).unwrap_or(false)
}

fn has_memory() -> bool {
    allocator_has(SMALL_TASK_BYTES.saturating_add(ThreadRegistry::growth_bytes()))
}

/// Decrements the number of registrations, and unregisters the thread when that reaches 0. Surplus
/// calls have no effect.
pub(crate) fn unregister_current_thread() {
    with_current(|current| {
        if current.nesting > 1 {
            current.nesting -= 1;
        } else if current.nesting == 1 {
            current.nesting = 0;
            current.has_left = true;
            current.end();
        }
    });
}

/// Registers the calling thread with these data, or with those that the sampler has of it if it has
/// found the thread before.
fn register_as(
    name: Option<&str>,
    slot: Option<&Arc<SlotHandle>>,
    hooks: RegistrationHooks,
) -> OffThreadRef {
    let tid = current_thread_id();
    let name = name.map(given_name);
    let system_name = if name.is_none() {
        name_or_default("", tid)
    } else {
        String::new()
    };
    let (found, lock) = found_data(tid, hooks);
    let registration = found.unwrap_or_else(|| {
        let info = ThreadRegistrationInfo {
            serial: ThreadRegistry::next_serial(),
            is_main: is_main_thread(),
            registered_at: monotonic_now(),
        };
        let had_tid_at = info.registered_at;
        OffThreadRef::of_found_thread(info, &system_name, (tid, had_tid_at))
    });
    let data = registration.data();
    if name.is_none() {
        // The sampler may have found the thread before the thread had a name of its own.
        let data = registration.unlocked_rw_for_locked_profiler();
        data.set_system_name(&system_name, &lock);
    }
    if is_main_thread() {
        data.set_given_name(MAIN_THREAD_NAME.to_owned());
    } else if let Some(name) = name {
        data.set_given_name(name);
    }
    data.set_registered(slot);
    ThreadRegistry::add(&registration);
    (hooks.registered)(&registration, &lock);
    registration
}

/// Returns the data that the sampler has of the calling thread, and the lock that keeps the sampler
/// from finding the thread.
fn found_data(tid: ThreadId, hooks: RegistrationHooks) -> (Option<OffThreadRef>, PsLock) {
    let mut asked: Option<(OffThreadRef, bool)> = None;
    loop {
        let lock = PsLock::acquire();
        let Some(found) = (hooks.found)(tid, &lock) else {
            return (None, lock);
        };
        // By now, the sampler may have found the thread, or another session may have begun.
        match &asked {
            Some((before, is_own)) if before.is(&found) => {
                return (is_own.then_some(found), lock);
            }
            _ => {}
        }
        drop(lock);
        // Asked without the lock, because it reads a file.
        let is_own = found.is_thread_of(&ThreadProbe::new(tid));
        asked = Some((found, is_own));
    }
}

/// Adds a thread to the registry and the session.
#[cfg(all(test, loom))]
pub(crate) fn register(registration: &OffThreadRef, hooks: RegistrationHooks) {
    let lock = PsLock::acquire();
    ThreadRegistry::add(registration);
    (hooks.registered)(registration, &lock);
}

/// Removes a thread that has exited, or is exiting, from the registry and the session. A second
/// call has no effect. Does nothing if the calling thread holds a lock: a signal handler that
/// interrupted the profiler has called `exit`, and the process is about to end.
pub(crate) fn unregister(registration: &OffThreadRef, hooks: RegistrationHooks) {
    if holds_any_lock() {
        return;
    }
    let now = monotonic_now();
    let lock = PsLock::acquire();
    if ThreadRegistry::remove(registration, now) {
        (hooks.unregistered)(registration, &lock);
    }
}

fn acquire_slot() -> Option<SlotHandle> {
    let bounds = current_stack_bounds()?;
    let slot = SlotHandle::acquire()?;
    slot.bind_to_current_thread(bounds);
    slot.insert_for_thread(thread_pointer());
    Some(slot)
}

/// Returns the name of a thread that the application registers.
fn given_name(name: &str) -> String {
    if is_main_thread() {
        MAIN_THREAD_NAME.to_owned()
    } else {
        name_or_default(name, current_thread_id())
    }
}

/// Returns `name`, or if it is empty the thread's system name, or if that is empty too a name with
/// the thread's id.
fn name_or_default(name: &str, tid: ThreadId) -> String {
    let name = if name.is_empty() {
        current_thread_os_name()
    } else {
        name.to_owned()
    };
    if name.is_empty() {
        format!("Thread {}", tid.to_number())
    } else {
        name
    }
}
