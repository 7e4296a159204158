//! Handles `fork`.
//!
//! The child has no sampler thread, and a lock could be held by a thread that does not exist in the
//! child. So the hooks take all locks before the fork, in the lock order. In the parent they
//! release the locks. In the child they recreate the locks, because the threads that waited for
//! them do not exist there (`util/lock/fork_safe.rs`).

use std::cell::RefCell;
use std::mem::ManuallyDrop;

use crate::allocations::{end_allocations_in_child, forget_allocations_in_child};
use crate::buffer::BufferForkGuard;
use crate::capture::forget_batches_in_child;
use crate::counters::{ApplicationCounters, hold_counters_for_fork};
use crate::event_loop::EventWatches;
use crate::labels::{
    ContextLabels, ScriptFunctions, hold_context_labels_for_fork, hold_script_functions_for_fork,
};
use crate::platform::{
    ForkHooks, LoaderForkGuard, close_gate, close_sockets_in_child, forget_own_threads_in_child,
    hold_loader_for_fork, install_fork_handlers, reset_clock_calibration_in_child,
};
use crate::sampler::{
    IdleUnwinders, close_fork_gate, forget_allocation_stacks_in_child, hold_unwinders_for_fork,
    open_fork_gate, reopen_fork_gate_in_child,
};
use crate::session::dumps::dump::forget_dumps_in_child;
use crate::session::ends::control_state::forget_control_in_child;
use crate::session::family::family;
use crate::session::running::{LIFE_CYCLE, forget_turns_in_child};
use crate::session::saving::crash_file;
use crate::session::saving::snapshot::forget_kept_in_child;
use crate::state::{
    ACTIVE_PS, CurrentFacts, RacyFeatures, core_buffer, disown_callbacks_in_child,
    hold_crash_facts_for_fork, own_lane_index,
};
use crate::threads::{OnThreadRef, RegistryForkGuard, ThreadRegistry};
use crate::unwind::{CodeRanges, hold_code_ranges_for_fork};
use crate::util::{
    Guard, LockRank, MarkedRank, PsLock, is_any_lock_held_on_current_thread, mark_rank,
    refuse_calls_of_current_thread,
};
use crate::waiting_tasks::{end_waits_in_child, forget_waits_in_child};

/// Guards of all locks, dropped innermost first.
struct HeldLocks {
    /// Not the lock: the application's own fork handlers may wait for a thread that waits for it.
    live_allocations: MarkedRank,
    crash_facts: Guard<'static, CurrentFacts>,
    counters: Guard<'static, ApplicationCounters>,
    event_watches: Guard<'static, EventWatches>,
    context_labels: Guard<'static, Option<ContextLabels>>,
    script_functions: Guard<'static, Option<ScriptFunctions>>,
    code_ranges: Guard<'static, CodeRanges>,
    loader: LoaderForkGuard,
    idle_unwinders: Guard<'static, IdleUnwinders>,
    buffer: BufferForkGuard<'static>,
    registry: RegistryForkGuard,
    ps: PsLock,
    _life_cycle: Guard<'static, ()>,
}

thread_local! {
    // Thread-local, because `fork` returns on the thread that called it. It has no destructor, so
    // that an exiting thread can fork, too.
    static HELD: RefCell<ManuallyDrop<Option<HeldLocks>>> = const { RefCell::new(ManuallyDrop::new(None)) };
}

/// Installs the fork handlers, unless they are installed.
///
/// Called before a thread first stores anything that the child of a fork must find consistent: a
/// registration, `CorePs`, the stack of a suspended thread. Cost: one atomic load after the first
/// call.
pub(crate) fn ensure_fork_handlers() {
    install_fork_handlers(ForkHooks {
        prepare,
        parent,
        child,
    });
}

/// Takes all locks. Takes none if the caller of the fork is a signal handler of the application
/// that has interrupted the profiler on this thread: the thread may already hold one of these
/// locks, or the loader's lock.
fn prepare() {
    close_fork_gate();
    if is_any_lock_held_on_current_thread() {
        return;
    }
    // Taken in this order.
    let held = HeldLocks {
        _life_cycle: LIFE_CYCLE.lock(),
        ps: PsLock::acquire(),
        registry: ThreadRegistry::hold_for_fork(),
        buffer: core_buffer().hold_for_fork(),
        idle_unwinders: hold_unwinders_for_fork(),
        loader: hold_loader_for_fork(),
        code_ranges: hold_code_ranges_for_fork(),
        script_functions: hold_script_functions_for_fork(),
        context_labels: hold_context_labels_for_fork(),
        event_watches: EventWatches::hold_for_fork(),
        counters: hold_counters_for_fork(),
        crash_facts: hold_crash_facts_for_fork(),
        live_allocations: mark_rank(LockRank::LiveAllocations),
    };
    HELD.with(|cell| **cell.borrow_mut() = Some(held));
}

fn take_held() -> Option<HeldLocks> {
    HELD.with(|cell| cell.borrow_mut().take())
}

fn parent() {
    drop(take_held());
    open_fork_gate();
}

/// Turns the profiler off in the child, so that it can be started again there.
///
/// Leaks data that the parent's sampler may have been changing during the fork.
///
/// If [`prepare`] took no locks, the profiler stays off: all calls of the child's thread are
/// refused. Such a child may only execute a program or end, as the children of most crash handlers
/// do.
fn child() {
    RacyFeatures::set_inactive_in_child();
    end_allocations_in_child();
    end_waits_in_child();
    forget_batches_in_child();
    disown_callbacks_in_child();
    reset_clock_calibration_in_child();
    forget_own_threads_in_child();
    close_sockets_in_child();
    close_gate();
    let held = take_held();
    if held.is_none() {
        refuse_calls_of_current_thread();
    }
    if let Some(held) = held {
        let mut ps = held.ps;
        drop(held.live_allocations);
        forget_allocations_in_child();
        forget_allocation_stacks_in_child();
        forget_waits_in_child();
        crash_file::forget_in_child(held.crash_facts, &mut ps);
        EventWatches::keep_only_current_thread(held.event_watches);
        // These stay valid: the child has the same counters, scripts and generated code.
        drop(held.counters);
        drop(held.context_labels);
        drop(held.script_functions);
        drop(held.code_ranges);
        held.loader.reset_in_child();
        drop(held.idle_unwinders);
        std::mem::forget(held.buffer.abandon_session(own_lane_index()));
        let current = OnThreadRef::with(|thread| thread.to_off_thread());
        ThreadRegistry::keep_only(current, held.registry);
        forget_control_in_child(&mut ps);
        if let Some(family) = family() {
            family.forget_in_child(&mut ps);
        }
        forget_dumps_in_child(&mut ps);
        forget_kept_in_child(&mut ps);
        forget_turns_in_child(&mut ps);
        let active = ACTIVE_PS.get_mut(&mut ps).take();
        OnThreadRef::with(|thread| {
            thread
                .unlocked_reader_and_atomic_rw_on_thread()
                .adopt_after_fork()
        });
        ThreadRegistry::for_each(&ps, |thread| {
            thread
                .unlocked_rw_for_locked_profiler()
                .clear_profiling_features(&ps);
        });
        std::mem::forget(active);
        drop(ps);
    }
    reopen_fork_gate_in_child();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fork_by_a_thread_that_holds_a_lock_takes_none() {
        let lock = PsLock::acquire();
        prepare();
        assert!(take_held().is_none());
        parent();
        drop(lock);
        prepare();
        assert!(HELD.with(|cell| cell.borrow().is_some()));
        parent();
    }
}
