//! State-change callbacks: what they are told, in which order, and that nothing they do harms the profiler.

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

/// What was told, with whether the profiler was active and paused then.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<(ProfilingState, bool, bool)>>>);

impl Told {
    fn note(&self, state: ProfilingState) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((
            state,
            profiler_is_active(),
            profiler_is_paused(),
        ));
    }

    fn listen(states: impl Into<ProfilingStates>, id: u64) -> Self {
        let told = Self::default();
        let own = told.clone();
        profiler_add_state_change_callback(states.into(), move |state| own.note(state), id);
        told
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
fn every_state_is_told_once_and_in_its_order() {
    isolated(|| {
        gekkota::register_thread("told");
        let told = Told::listen(ProfilingStates::ALL, 1);
        let few = Told::listen(Started | Stopping, 2);
        let no_states = Told::listen(ProfilingStates::NONE, 3);
        // Nothing changes while it is inactive.
        profiler_pause();
        profiler_resume();
        profiler_stop();
        assert!(profiler_get_profile().is_none());
        assert!(profiler_start(StartParams::default().capacity_bytes(0)).is_err());
        assert_eq!(told.take(), []);

        start();
        assert_eq!(told.take(), [(Started, true, false)]);
        profiler_ensure_started(StartParams::default()).expect("started");
        assert_eq!(told.take(), [], "the same settings start nothing");
        start();
        assert_eq!(
            told.take(),
            [(Started, true, false)],
            "a start anew does not tell of the stop"
        );
        let other = StartParams::default().capacity_bytes(1 << 20);
        profiler_ensure_started(other).expect("started");
        assert_eq!(told.take(), [(Started, true, false)]);

        profiler_pause();
        profiler_pause();
        assert_eq!(told.take(), [(Pausing, true, false)], "before, and once");
        profiler_resume();
        profiler_resume();
        assert_eq!(told.take(), [(Resumed, true, false)], "after, and once");
        profiler_pause_sampling();
        profiler_resume_sampling();
        assert_eq!(told.take(), []);
        assert!(profiler_get_profile().is_some());
        assert_eq!(told.take_states(), [GeneratingProfile]);
        let path = std::env::temp_dir().join(format!("gekkota-{}-told.json", std::process::id()));
        gekkota::profiler_save_profile_to_file(&path).expect("saved");
        std::fs::remove_file(path).expect("removed");
        assert_eq!(told.take_states(), [GeneratingProfile]);
        let late = Told::listen(AlreadyActive | Stopping, 4);
        assert_eq!(late.take(), [(AlreadyActive, true, false)]);
        assert_eq!(told.take(), [], "it is told to the new one alone");
        profiler_stop();
        profiler_stop();
        assert_eq!(told.take(), [(Stopping, true, false)], "before, and once");
        assert_eq!(late.take_states(), [Stopping]);

        let session = ProfilerSession::start(StartParams::default()).expect("start");
        session.finish().expect("profile");
        assert_eq!(told.take_states(), [Started, GeneratingProfile, Stopping]);
        assert_eq!(
            few.take_states(),
            [Started, Started, Started, Stopping, Started, Stopping]
        );
        assert_eq!(late.take_states(), [Stopping]);
        (1..=4).for_each(profiler_remove_state_change_callback);
        assert_eq!(
            (told.take_states(), few.take_states()),
            (vec![RemovingCallback], vec![])
        );
        start();
        profiler_stop();
        assert!(
            [told, few, no_states, late]
                .iter()
                .all(|told| told.take().is_empty()),
            "nothing after removal"
        );
    });
}

#[test]
fn ids_are_the_hosts() {
    isolated(|| {
        gekkota::register_thread("told");
        let told = Told::listen(ProfilingStates::ALL, 7);
        let twin = Told::listen(ProfilingStates::ALL, 7);
        let nameless = Told::listen(Started, 0);
        for unknown in [0, 8, u64::MAX] {
            profiler_remove_state_change_callback(unknown);
        }
        assert_eq!(
            (told.take(), twin.take(), nameless.take()),
            (vec![], vec![], vec![])
        );
        profiler_remove_state_change_callback(7);
        profiler_remove_state_change_callback(7);
        assert_eq!(
            (told.take_states(), twin.take_states()),
            (vec![RemovingCallback], vec![RemovingCallback])
        );
        start();
        profiler_stop();
        assert_eq!(nameless.take_states(), [Started], "0 is nobody's id");
    });
}

#[test]
fn callbacks_are_told_in_the_order_in_which_they_were_added() {
    isolated(|| {
        gekkota::register_thread("told");
        let order = Arc::new(Mutex::new(Vec::new()));
        for id in [13, 11, 12] {
            let order = Arc::clone(&order);
            let note = move |_| order.lock().expect("nobody panics").push(id);
            profiler_add_state_change_callback(Started.into(), note, id);
        }
        start();
        assert_eq!(*order.lock().expect("nobody panics"), [13, 11, 12]);
        profiler_remove_state_change_callback(11);
        start();
        assert_eq!(*order.lock().expect("nobody panics"), [13, 11, 12, 13, 12]);
        profiler_stop();
        [12, 13]
            .into_iter()
            .for_each(profiler_remove_state_change_callback);
    });
}

#[test]
fn a_marker_of_a_callback_is_in_what_follows() {
    isolated(|| {
        gekkota::register_thread("told");
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
            .markers("told")
            .into_iter()
            .map(|marker| marker.0)
            .collect();
        assert_eq!(names, ["started", "pausing", "resumed", "generating"]);
    });
}

/// It does what it is told of, and everything else, from within.
#[test]
fn callbacks_may_call_anything() {
    isolated(|| {
        gekkota::register_thread("told");
        let told = Told::default();
        let own = told.clone();
        let meddle = move |state| {
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
        profiler_add_state_change_callback(ProfilingStates::ALL, meddle, 31);
        // Each call finds what the one before left: the start and the pause leave a pause, the resume leaves none.
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
            assert_eq!(told.take_states(), states, "call {number}");
        }
        assert!(
            !profiler_is_active(),
            "it is stopped, though it was started meanwhile"
        );
        // One that removes itself is told that, and nothing else.
        profiler_remove_state_change_callback(31);
        assert_eq!(told.take_states(), [RemovingCallback]);
        let own = told.clone();
        let remove_itself = move |state| {
            own.note(state);
            profiler_remove_state_change_callback(33);
        };
        profiler_add_state_change_callback(ProfilingStates::ALL, remove_itself, 33);
        start();
        profiler_stop();
        let states = told.take_states();
        assert!(
            states.ends_with(&[RemovingCallback]) && states.len() == 2,
            "{states:?}"
        );
        // One that adds another without end.
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
fn a_panic_ends_in_its_callback() {
    isolated(|| {
        gekkota::register_thread("told");
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        profiler_add_state_change_callback(ProfilingStates::ALL, |_| panic!("on purpose"), 41);
        let panics_twice = |_| std::panic::panic_any(common::PanicsAgain);
        profiler_add_state_change_callback(ProfilingStates::ALL, panics_twice, 41);
        let told = Told::listen(ProfilingStates::ALL, 42);
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
        assert_eq!(told.take_states(), states);
    });
}

#[test]
fn the_profiler_is_told_of_on_whatever_thread() {
    isolated(|| {
        gekkota::register_thread("told");
        let told = Told::listen(Started | Stopping, 51);
        std::thread::scope(|scope| {
            for number in 0..4u64 {
                scope.spawn(move || {
                    for round in 0..40 {
                        let id = 100 + number;
                        profiler_add_state_change_callback(
                            Started | Stopping,
                            |_| mark("told"),
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
        let states = told.take_states();
        let started = states.iter().filter(|&&state| state == Started).count();
        // Of the 160 calls, so many are starts, and each is told once.
        assert_eq!(started, 54);
        profiler_remove_state_change_callback(51);
    });
}

#[test]
fn a_shutdown_is_told_of() {
    isolated(|| {
        gekkota::register_thread("told");
        let told = Told::listen(ProfilingStates::ALL, 61);
        start();
        assert_eq!(told.take_states(), [Started]);
        profiler_shutdown();
        assert_eq!(
            told.take(),
            [(Stopping, true, false), (ShuttingDown, true, false)]
        );
        profiler_shutdown();
        assert_eq!(told.take(), [], "there is nothing to shut down");
        gekkota::profiler_init();
        profiler_shutdown();
        assert_eq!(told.take(), [(ShuttingDown, false, false)]);
        profiler_remove_state_change_callback(61);
    });
}
