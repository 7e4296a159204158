//! State-change callbacks: which states they receive, in which order, and what they may do.

use std::sync::{Arc, Mutex, PoisonError};

use crate::common::{self, Read, isolated, mark};
use gekkota::callback::{
    ProfilingState, ProfilingStates, profiler_add_state_change_callback,
    profiler_remove_state_change_callback,
};
use gekkota::{
    ProfilerSession, StartParams, profiler_ensure_started, profiler_get_profile,
    profiler_is_active, profiler_is_paused, profiler_pause, profiler_pause_sampling,
    profiler_resume, profiler_resume_sampling, profiler_shutdown, profiler_start, profiler_stop,
};

use ProfilingState::{
    AlreadyActive, GeneratingProfile, Pausing, RemovingCallback, Resumed, ShuttingDown, Started,
    Stopping,
};

/// The states that a callback received, each with whether the profiler was active and paused then.
#[derive(Clone, Default)]
struct Received(Arc<Mutex<Vec<(ProfilingState, bool, bool)>>>);

impl Received {
    fn note(&self, state: ProfilingState) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((
            state,
            profiler_is_active(),
            profiler_is_paused(),
        ));
    }

    fn listen(states: impl Into<ProfilingStates>, id: u64) -> Self {
        let received = Self::default();
        let own = received.clone();
        profiler_add_state_change_callback(states.into(), move |state| own.note(state), id);
        received
    }

    fn take(&self) -> Vec<(ProfilingState, bool, bool)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn take_states(&self) -> Vec<ProfilingState> {
        self.take().into_iter().map(|(state, ..)| state).collect()
    }
}

fn start() {
    profiler_start(StartParams::default()).expect("start");
}

#[test]
fn every_state_is_notified_once_and_in_order() {
    isolated(|| {
        gekkota::register_thread("notified");
        let received = Received::listen(ProfilingStates::ALL, 1);
        let few = Received::listen(Started | Stopping, 2);
        let no_states = Received::listen(ProfilingStates::NONE, 3);
        // Nothing changes while the profiler is inactive.
        profiler_pause();
        profiler_resume();
        profiler_stop();
        assert!(profiler_get_profile().is_none());
        assert!(profiler_start(StartParams::default().capacity_bytes(0)).is_err());
        assert_eq!(received.take(), []);

        start();
        assert_eq!(received.take(), [(Started, true, false)]);
        profiler_ensure_started(StartParams::default()).expect("started");
        assert_eq!(received.take(), [], "the same settings start nothing");
        start();
        assert_eq!(
            received.take(),
            [(Started, true, false)],
            "a restart does not notify of the stop"
        );
        let other = StartParams::default().capacity_bytes(1 << 20);
        profiler_ensure_started(other).expect("started");
        assert_eq!(received.take(), [(Started, true, false)]);

        profiler_pause();
        profiler_pause();
        assert_eq!(
            received.take(),
            [(Pausing, true, false)],
            "once, before the change"
        );
        profiler_resume();
        profiler_resume();
        assert_eq!(
            received.take(),
            [(Resumed, true, false)],
            "once, after the change"
        );
        profiler_pause_sampling();
        profiler_resume_sampling();
        assert_eq!(received.take(), []);
        assert!(profiler_get_profile().is_some());
        assert_eq!(received.take_states(), [GeneratingProfile]);
        let path =
            std::env::temp_dir().join(format!("gekkota-{}-notified.json", std::process::id()));
        gekkota::profiler_save_profile_to_file(&path).expect("saved");
        std::fs::remove_file(path).expect("removed");
        assert_eq!(received.take_states(), [GeneratingProfile]);
        let late = Received::listen(AlreadyActive | Stopping, 4);
        assert_eq!(late.take(), [(AlreadyActive, true, false)]);
        assert_eq!(received.take(), [], "only the new callback receives it");
        profiler_stop();
        profiler_stop();
        assert_eq!(
            received.take(),
            [(Stopping, true, false)],
            "once, before the change"
        );
        assert_eq!(late.take_states(), [Stopping]);

        let session = ProfilerSession::start(StartParams::default()).expect("start");
        session.finish().expect("profile");
        assert_eq!(
            received.take_states(),
            [Started, GeneratingProfile, Stopping]
        );
        assert_eq!(
            few.take_states(),
            [Started, Started, Started, Stopping, Started, Stopping]
        );
        assert_eq!(late.take_states(), [Stopping]);
        (1..=4).for_each(profiler_remove_state_change_callback);
        assert_eq!(
            (received.take_states(), few.take_states()),
            (vec![RemovingCallback], vec![])
        );
        start();
        profiler_stop();
        assert!(
            [received, few, no_states, late]
                .iter()
                .all(|received| received.take().is_empty()),
            "nothing after removal"
        );
    });
}

#[test]
fn removal_by_id_removes_every_callback_with_this_id() {
    isolated(|| {
        gekkota::register_thread("notified");
        let received = Received::listen(ProfilingStates::ALL, 7);
        let twin = Received::listen(ProfilingStates::ALL, 7);
        let without_id = Received::listen(Started, 0);
        for unknown in [0, 8, u64::MAX] {
            profiler_remove_state_change_callback(unknown);
        }
        assert_eq!(
            (received.take(), twin.take(), without_id.take()),
            (vec![], vec![], vec![])
        );
        profiler_remove_state_change_callback(7);
        profiler_remove_state_change_callback(7);
        assert_eq!(
            (received.take_states(), twin.take_states()),
            (vec![RemovingCallback], vec![RemovingCallback])
        );
        start();
        profiler_stop();
        assert_eq!(
            without_id.take_states(),
            [Started],
            "the id 0 removes no callback"
        );
    });
}

#[test]
fn callbacks_are_called_in_the_order_of_addition() {
    isolated(|| {
        gekkota::register_thread("notified");
        let order = Arc::new(Mutex::new(Vec::new()));
        for id in [13, 11, 12] {
            let order = Arc::clone(&order);
            let note = move |_| order.lock().expect("no thread panics").push(id);
            profiler_add_state_change_callback(Started.into(), note, id);
        }
        start();
        assert_eq!(*order.lock().expect("no thread panics"), [13, 11, 12]);
        profiler_remove_state_change_callback(11);
        start();
        assert_eq!(
            *order.lock().expect("no thread panics"),
            [13, 11, 12, 13, 12]
        );
        profiler_stop();
        [12, 13]
            .into_iter()
            .for_each(profiler_remove_state_change_callback);
    });
}

#[test]
fn marker_of_a_callback_is_in_the_profile() {
    isolated(|| {
        gekkota::register_thread("notified");
        profiler_add_state_change_callback(
            Started | Pausing | Resumed | GeneratingProfile,
            |state| {
                mark(match state {
                    Started => "started",
                    Pausing => "pausing",
                    Resumed => "resumed",
                    _ => "generating",
                })
            },
            21,
        );
        start();
        profiler_pause();
        profiler_resume();
        let read = Read::from_text(&profiler_get_profile().expect("active"));
        profiler_stop();
        profiler_remove_state_change_callback(21);
        let names: Vec<_> = read
            .markers("notified")
            .into_iter()
            .map(|marker| marker.0)
            .collect();
        assert_eq!(names, ["started", "pausing", "resumed", "generating"]);
    });
}

/// The callback itself starts, stops, pauses, takes profiles, and adds and removes callbacks.
#[test]
fn callbacks_may_call_anything() {
    isolated(|| {
        gekkota::register_thread("notified");
        let received = Received::default();
        let own = received.clone();
        let interfere = move |state| {
            own.note(state);
            match state {
                Started => {
                    profiler_stop();
                    start();
                    profiler_pause();
                }
                Pausing | Resumed => {
                    profiler_pause();
                    profiler_resume();
                }
                GeneratingProfile => _ = profiler_get_profile(),
                Stopping => {
                    profiler_stop();
                    profiler_ensure_started(StartParams::default()).expect("started");
                }
                _ => {}
            }
            let inner = own.clone();
            profiler_add_state_change_callback(Started.into(), move |state| inner.note(state), 32);
            profiler_remove_state_change_callback(32);
        };
        profiler_add_state_change_callback(ProfilingStates::ALL, interfere, 31);
        // Each call begins in the state that the previous one left: paused after the start and
        // after the pause, not paused after the resume.
        type Call = (fn(), &'static [ProfilingState]);
        let calls: [Call; 6] = [
            (start, &[Started, Stopping, Pausing, Resumed]),
            (profiler_resume, &[Resumed, Pausing]),
            (profiler_pause, &[Pausing, Resumed]),
            (
                || _ = profiler_get_profile().expect("active"),
                &[GeneratingProfile],
            ),
            (|| profiler_remove_state_change_callback(99), &[]),
            (profiler_stop, &[Stopping, Started, Pausing, Resumed]),
        ];
        for (number, (call, states)) in calls.into_iter().enumerate() {
            call();
            assert_eq!(received.take_states(), states, "call {number}");
        }
        assert!(
            !profiler_is_active(),
            "the profiler has stopped, although the callback started it again"
        );
        // A callback that removes itself receives that state, and then no other.
        profiler_remove_state_change_callback(31);
        assert_eq!(received.take_states(), [RemovingCallback]);
        let own = received.clone();
        let remove_itself = move |state| {
            own.note(state);
            profiler_remove_state_change_callback(33);
        };
        profiler_add_state_change_callback(ProfilingStates::ALL, remove_itself, 33);
        start();
        profiler_stop();
        let states = received.take_states();
        assert!(
            states.ends_with(&[RemovingCallback]) && states.len() == 2,
            "{states:?}"
        );
        // Each callback adds another one.
        fn add_another(state: ProfilingState) {
            assert!(matches!(state, AlreadyActive | RemovingCallback));
            profiler_add_state_change_callback(AlreadyActive.into(), add_another, 34);
        }
        start();
        add_another(AlreadyActive);
        profiler_remove_state_change_callback(34);
        profiler_stop();
    });
}

#[test]
fn panic_in_a_callback_does_not_spread() {
    isolated(|| {
        gekkota::register_thread("notified");
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        profiler_add_state_change_callback(ProfilingStates::ALL, |_| panic!("on purpose"), 41);
        let panics_twice = |_| std::panic::panic_any(common::PanicsAgain);
        profiler_add_state_change_callback(ProfilingStates::ALL, panics_twice, 41);
        let received = Received::listen(ProfilingStates::ALL, 42);
        start();
        profiler_pause();
        profiler_resume();
        assert!(profiler_is_active() && profiler_get_profile().is_some());
        profiler_stop();
        assert!(!profiler_is_active());
        (41..=42).for_each(profiler_remove_state_change_callback);
        std::panic::set_hook(hook);
        let states = [
            Started,
            Pausing,
            Resumed,
            GeneratingProfile,
            Stopping,
            RemovingCallback,
        ];
        assert_eq!(received.take_states(), states);
    });
}

#[test]
fn callback_receives_the_states_of_all_threads() {
    isolated(|| {
        gekkota::register_thread("notified");
        let received = Received::listen(Started | Stopping, 51);
        std::thread::scope(|scope| {
            for number in 0..4u64 {
                scope.spawn(move || {
                    for round in 0..40 {
                        let id = 100 + number;
                        profiler_add_state_change_callback(
                            Started | Stopping,
                            |_| mark("notified"),
                            id,
                        );
                        match (number + round) % 3 {
                            0 => start(),
                            1 => profiler_stop(),
                            _ => profiler_pause(),
                        }
                        profiler_remove_state_change_callback(id);
                    }
                });
            }
        });
        profiler_stop();
        let states = received.take_states();
        let started = states.iter().filter(|&&state| state == Started).count();
        // 54 of the 160 calls are starts, and each is notified once.
        assert_eq!(started, 54);
        profiler_remove_state_change_callback(51);
    });
}

#[test]
fn shutdown_is_notified() {
    isolated(|| {
        gekkota::register_thread("notified");
        let received = Received::listen(ProfilingStates::ALL, 61);
        start();
        assert_eq!(received.take_states(), [Started]);
        profiler_shutdown();
        assert_eq!(
            received.take(),
            [(Stopping, true, false), (ShuttingDown, true, false)]
        );
        profiler_shutdown();
        assert_eq!(received.take(), [], "the profiler was already shut down");
        gekkota::profiler_init();
        profiler_shutdown();
        assert_eq!(received.take(), [(ShuttingDown, false, false)]);
        profiler_remove_state_change_callback(61);
    });
}
