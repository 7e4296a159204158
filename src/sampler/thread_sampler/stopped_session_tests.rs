//! A session that has stopped asks no thread for a sample, even if its sampler, which waited for
//! the loader, is still in the middle of a tick: another session may use the threads' slots by
//! then.

use std::cell::RefCell;

use crate::capture::SlotPhase;
use crate::platform::{current_process_id, monotonic_now};
use crate::sampler::encode::{SampleWriter, Tick};
use crate::sampler::thread_sampler::ThreadSampler;
use crate::sampler::tick_context::{Scratch, TickContext};
use crate::state::{SeenPauses, Session, SessionSettings, core_buffer};
use crate::threads::{
    OffThreadRef, OnThreadRef, ProfiledThreadData, RegistrationHooks, register_current_thread,
    unregister_current_thread,
};
use crate::types::ThreadProfilingFeatures;
use crate::unwind::Unwinder;
use crate::util::PsLock;

/// Runs one tick of a session for a thread, and returns the phase of the thread's slot.
fn phase_after_tick(registration: &OffThreadRef, has_stopped: bool) -> SlotPhase {
    let now = monotonic_now();
    let session = Session::new(SessionSettings::for_tests(), now, now, Vec::new());
    let data = ProfiledThreadData {
        live_index: 0,
        end_position: None,
    };
    registration
        .unlocked_rw_for_locked_profiler()
        .set_profiling_features(
            session.generation,
            ThreadProfilingFeatures::SAMPLING,
            data,
            &PsLock::acquire(),
        );
    let mut thread = ThreadSampler::new(registration.clone(), &session, 0);
    if has_stopped {
        session.request_stop();
    }
    let lane = core_buffer().take_lane_for_samples();
    let encoder = RefCell::default();
    let tick = Tick {
        number: 1,
        time: now,
    };
    let mut context = TickContext {
        session: &session,
        process: current_process_id(),
        unwinder: Unwinder::new(),
        writer: SampleWriter {
            lane: &lane,
            encoder: &encoder,
            session: session.generation,
            process_start: now,
        },
        scratch: Scratch::default(),
        tick,
        tick_before: tick,
        last_before: tick,
        even_since: 0,
        pauses: SeenPauses::default(),
        is_handler_in_place: true,
    };
    assert!(thread.tick(&mut context).is_ok());
    let slot = registration.unlocked_const_reader().slot();
    slot.expect("a slot").state.phase()
}

#[test]
fn thread_is_asked_for_a_sample_only_until_its_session_stops() {
    let checks = || {
        register_current_thread("asked", RegistrationHooks::NONE);
        let registration = OnThreadRef::with(|thread| thread.to_off_thread()).expect("registered");
        assert_eq!(phase_after_tick(&registration, true), SlotPhase::Idle);
        // The settings of the test choose no signal, so the request stays pending.
        assert_eq!(phase_after_tick(&registration, false), SlotPhase::Requested);
        unregister_current_thread();
    };
    std::thread::spawn(checks).join().expect("no panic");
}
