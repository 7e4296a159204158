//! Handlers of `fork` that the host put before the profiler's, so that they run between them, and a fork of a thread that is
//! ending: nothing hangs, and the child can start anew.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::{self, isolated};
use gekkota::process::profiler_register_page;
use gekkota::thread::profiler_is_locked_on_current_thread;
use gekkota::{
    StartError, StartParams, profiler_ensure_started, profiler_get_buffer_info, profiler_is_active,
    profiler_pause, profiler_resume, profiler_start, profiler_stop, profiler_thread_wake,
    register_thread, unregister_thread,
};

static CALLED: AtomicU32 = AtomicU32::new(0);

/// Everything here would wait for a lock that its own thread holds.
extern "C" fn between_the_profilers_own() {
    // Before the profiler is there, it is not between anything.
    if !profiler_is_locked_on_current_thread() {
        return;
    }
    CALLED.fetch_add(1, Ordering::Relaxed);
    let params = StartParams::default();
    let refused = [
        profiler_start(params.clone()),
        profiler_ensure_started(params),
    ];
    assert!(
        refused
            .iter()
            .all(|answer| matches!(answer, Err(StartError::System { .. }))),
        "{refused:?}"
    );
    profiler_stop();
    profiler_pause();
    profiler_resume();
    register_thread("between");
    unregister_thread();
    profiler_thread_wake();
    profiler_register_page(gekkota::process::Page::new(1, "between"));
    common::mark("between");
    assert!(profiler_get_buffer_info().is_none());
}

/// What a child finds: a hang ends it.
fn of_child() -> String {
    common::in_forked_child(|| {
        // SAFETY: ends the child, should it hang.
        unsafe { libc::alarm(20) };
        let was_off = !profiler_is_active() && gekkota::profiler_get_profile().is_none();
        profiler_stop();
        let starts = profiler_start(StartParams::default()).is_ok();
        let profile = gekkota::profiler_get_profile().is_some();
        profiler_stop();
        format!("{was_off} {starts} {profile}")
    })
}

struct ForksAtItsEnd(std::sync::mpsc::Sender<String>);

impl Drop for ForksAtItsEnd {
    fn drop(&mut self) {
        self.0.send(of_child()).expect("the test waits");
    }
}

thread_local! {
    static AT_THE_END: std::cell::RefCell<Option<ForksAtItsEnd>> = const { std::cell::RefCell::new(None) };
}

#[test]
fn forks_with_hosts_handlers_and_of_ending_threads() {
    isolated(|| {
        let hook = Some(between_the_profilers_own as unsafe extern "C" fn());
        // SAFETY: the three functions live as long as the program, and take nothing.
        assert_eq!(unsafe { libc::pthread_atfork(hook, hook, hook) }, 0);
        profiler_start(StartParams::default()).expect("start");
        assert_eq!(of_child(), "true true true");
        assert!(profiler_is_active(), "nothing of that stopped it");
        assert_eq!(
            CALLED.load(Ordering::Relaxed),
            2,
            "before and after, in this process"
        );

        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            AT_THE_END.set(Some(ForksAtItsEnd(tell)));
            register_thread("forks at its end");
            // The first fork of a thread makes what is there for later ones; it goes before that which was there before.
            assert_eq!(of_child(), "true true true");
        });
        assert_eq!(told.recv().expect("it forks"), "true true true");
        thread.join().expect("thread");
        assert!(profiler_is_active());
        profiler_stop();
    });
}
