//! What `fork` does to a profiler. In the child there is no sampler, and any lock could be held by a thread that is no
//! more; so the locks are taken before, in their order, and given back on both sides after.

use std::cell::RefCell;
use std::mem::ManuallyDrop;

use crate::base::{Guard, PsLock};
use crate::buffer::BufferForkGuard;
use crate::control::control_signals::forget_control_in_child;
use crate::control::life_cycle::LIFE_CYCLE;
use crate::platform::{
    ForkHooks, forget_clock_follower_in_child, hold_loader_for_fork, is_main_thread,
};
use crate::sampler::{
    OnDemandUnwinder, close_fork_gate, hold_unwinder_for_fork, open_fork_gate,
    reopen_fork_gate_in_child,
};
use crate::state::{
    ACTIVE_PS, CORE_PS, RacyFeatures, core_buffer, leave_callbacks_to_parent, own_lane_index,
};
use crate::threads::{
    EventWatches, OnThreadRef, RegistryForkGuard, ScriptFunctions, ThreadRegistry,
    hold_script_functions_for_fork,
};
use crate::unwind::{CodeRanges, hold_code_ranges_for_fork};

/// All locks, dropped innermost first.
struct Held {
    event_watches: Guard<'static, EventWatches>,
    script_functions: Guard<'static, Option<ScriptFunctions>>,
    code_ranges: Guard<'static, Option<CodeRanges>>,
    loader: Guard<'static, ()>,
    unwinder: Guard<'static, Option<OnDemandUnwinder>>,
    buffer: BufferForkGuard<'static>,
    registry: RegistryForkGuard,
    ps: PsLock,
    _life_cycle: Guard<'static, ()>,
    by_main_thread: bool,
}

thread_local! {
    // A fork returns on the thread that called it. Without a destructor, so that it is there also when an ending thread forks.
    static HELD: RefCell<ManuallyDrop<Option<Held>>> = const { RefCell::new(ManuallyDrop::new(None)) };
}

pub(super) fn fork_hooks() -> ForkHooks {
    ForkHooks {
        prepare,
        parent,
        child,
    }
}

fn prepare() {
    let by_main_thread = is_main_thread();
    close_fork_gate();
    let _life_cycle = LIFE_CYCLE.lock();
    let ps = PsLock::acquire();
    let registry = ThreadRegistry::hold_for_fork();
    let buffer = core_buffer().hold_for_fork();
    let unwinder = hold_unwinder_for_fork();
    let loader = hold_loader_for_fork();
    let code_ranges = hold_code_ranges_for_fork();
    let script_functions = hold_script_functions_for_fork();
    let event_watches = EventWatches::hold_for_fork();
    let held = Held {
        event_watches,
        script_functions,
        code_ranges,
        loader,
        unwinder,
        buffer,
        registry,
        ps,
        _life_cycle,
        by_main_thread,
    };
    HELD.with(|place| **place.borrow_mut() = Some(held));
}

fn take_held() -> Option<Held> {
    HELD.with(|place| place.borrow_mut().take())
}

fn parent() {
    drop(take_held());
    open_fork_gate();
}

/// The profiler is off and can be started again. What the parent's sampler was in the middle of is left alone.
fn child() {
    RacyFeatures::set_inactive_in_child();
    leave_callbacks_to_parent();
    forget_clock_follower_in_child();
    if let Some(held) = take_held() {
        let Held {
            event_watches,
            script_functions,
            code_ranges,
            loader,
            unwinder,
            buffer,
            registry,
            mut ps,
            _life_cycle,
            by_main_thread,
        } = held;
        EventWatches::keep_only_current_thread(event_watches);
        // Scripts and generated code are there in the child, too.
        drop(script_functions);
        drop(code_ranges);
        drop(loader);
        drop(unwinder);
        std::mem::forget(buffer.abandon_session(own_lane_index()));
        ThreadRegistry::keep_only_current_thread(registry);
        forget_control_in_child(&mut ps);
        // The thread that forks is the child's main thread; what it registered before, it did itself.
        if let Some(core) = CORE_PS.get_mut(&mut ps) {
            core.registered_main_thread &= by_main_thread;
        }
        let active = ACTIVE_PS.get_mut(&mut ps).take();
        OnThreadRef::with(|thread| thread.locked_rw_on_thread().adopt_after_fork());
        ThreadRegistry::for_each(&ps, |thread| {
            thread
                .locked_rw_from_any_thread()
                .clear_profiling_features(&ps);
        });
        std::mem::forget(active);
        drop(ps);
    }
    reopen_fork_gate_in_child();
}
