//! Forks with hooks of the application that run between the profiler's own, and forks on a thread
//! that is exiting. They do not hang, and the child can start the profiler.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::{self, isolated};
use gekkota::process::profiler_register_page;
use gekkota::thread::profiler_is_locked_on_current_thread;
use gekkota::{
    StartError, StartParams, profiler_ensure_started, profiler_get_buffer_info, profiler_is_active,
    profiler_pause, profiler_resume, profiler_start, profiler_stop, profiler_thread_wake,
    register_thread, unregister_thread,
};

static CALLS: AtomicU32 = AtomicU32::new(0);

/// Calls functions that would deadlock if they waited for the locks that the profiler's hooks hold
/// on this thread.
extern "C" fn application_hook() {
    // Before the profiler has registered its hooks, no locks are held here.
    if !profiler_is_locked_on_current_thread() {
        return;
    }
    CALLS.fetch_add(1, Ordering::Relaxed);
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

/// Forks, and returns whether the profiler was inactive in the child, could be started there, and
/// had a profile.
fn state_in_child() -> String {
    common::in_forked_child(|| {
        // Kills a child that hangs.
        nix::unistd::alarm::set(240);
        let was_inactive = !profiler_is_active() && gekkota::profiler_get_profile().is_none();
        profiler_stop();
        let starts = profiler_start(StartParams::default()).is_ok();
        let profile = gekkota::profiler_get_profile().is_some();
        profiler_stop();
        format!("{was_inactive} {starts} {profile}")
    })
}

struct ForksOnDrop(std::sync::mpsc::Sender<String>);

impl Drop for ForksOnDrop {
    fn drop(&mut self) {
        self.0.send(state_in_child()).expect("the receiver exists");
    }
}

thread_local! {
    static AT_EXIT: std::cell::RefCell<Option<ForksOnDrop>> = const { std::cell::RefCell::new(None) };
}

#[test]
fn fork_with_application_hooks_or_on_exiting_thread_does_not_hang() {
    isolated(|| {
        let hook = Some(application_hook as unsafe extern "C" fn());
        // SAFETY: the hooks take no arguments and live as long as the process.
        assert_eq!(unsafe { libc::pthread_atfork(hook, hook, hook) }, 0);
        profiler_start(StartParams::default()).expect("start");
        assert_eq!(state_in_child(), "true true true");
        assert!(
            profiler_is_active(),
            "the hooks do not stop the parent's session"
        );
        assert_eq!(
            CALLS.load(Ordering::Relaxed),
            2,
            "before and after the fork, in the parent"
        );

        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            AT_EXIT.set(Some(ForksOnDrop(sender)));
            register_thread("forks at its exit");
            // The thread's first fork creates thread-local state, which is dropped before
            // `AT_EXIT`.
            assert_eq!(state_in_child(), "true true true");
        });
        assert_eq!(receiver.recv().expect("the thread forks"), "true true true");
        thread.join().expect("thread");
        assert!(profiler_is_active());
        profiler_stop();
    });
}
