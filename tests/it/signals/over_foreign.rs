//! The profiler returns to a signal that a foreign handler has taken over in between. No handler of
//! the chain is lost, and a stack on demand leaves a session's foreign handler in place.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, mpsc};

use crate::common::{LONGEST_WAIT, Read, isolated, wait_until};
use gekkota::stack::{
    StackFeatures, StackSample, SuspendError, profiler_suspend_and_sample_thread,
};
use gekkota::thread::{ThreadId, profiler_current_thread_id};
use gekkota::{ProfilerSession, StartParams};

/// The signals that the profiler chooses from.
const CHOICES: [libc::c_int; 3] = [libc::SIGURG, libc::SIGPROF, libc::SIGSTKFLT];
const SIGNAL: libc::c_int = libc::SIGUSR1;

static HOST_CALLS: AtomicU32 = AtomicU32::new(0);
static FOREIGN_CALLS: AtomicU32 = AtomicU32::new(0);
/// The action that [`chain`] passes signals on to.
static REPLACED: Mutex<Option<libc::sigaction>> = Mutex::new(None);

extern "C" fn host_handler(_: libc::c_int) {
    HOST_CALLS.fetch_add(1, Ordering::Relaxed);
}

/// Passes each signal on to the handler that this one replaced, if it replaced one.
extern "C" fn chain(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    type Action = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
    FOREIGN_CALLS.fetch_add(1, Ordering::Relaxed);
    // The signals of this test are raised where no thread holds the lock.
    let replaced = *REPLACED.lock().expect("no panic");
    if let Some(replaced) = replaced.filter(|action| action.sa_sigaction != libc::SIG_DFL) {
        // SAFETY: the profiler's handler was installed with `SA_SIGINFO`.
        let action: Action = unsafe { std::mem::transmute(replaced.sa_sigaction) };
        action(signal, info, context);
    }
}

/// Installs a handler, and returns the action that it replaces.
fn install(
    signal: libc::c_int,
    handler: libc::sighandler_t,
    flags: libc::c_int,
) -> libc::sigaction {
    // SAFETY: the actions are locals, and the handler has the signature that its flags require.
    unsafe {
        let (mut action, mut replaced): (libc::sigaction, libc::sigaction) = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(signal, &action, &mut replaced), 0);
        replaced
    }
}

fn install_host_handler(signal: libc::c_int) {
    install(signal, host_handler as extern "C" fn(_) as usize, 0);
}

/// Installs [`chain`] over the handler that is installed.
fn install_chain() {
    let handler = chain as extern "C" fn(_, _, _) as usize;
    let replaced = install(SIGNAL, handler, libc::SA_SIGINFO);
    *REPLACED.lock().expect("no panic") = Some(replaced);
}

fn handler_of(signal: libc::c_int) -> libc::sighandler_t {
    // SAFETY: the out-pointer points to a local.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(signal, std::ptr::null(), &mut action), 0);
        action.sa_sigaction
    }
}

fn profile() {
    let params = StartParams::default().signal(SIGNAL);
    let session = ProfilerSession::start(params).expect("start");
    session.finish().expect("profile");
}

/// Raises the signal, and returns how often the host's handler and the foreign one were called.
fn calls_of_one_signal() -> [u32; 2] {
    let calls = || [&HOST_CALLS, &FOREIGN_CALLS].map(|calls| calls.swap(0, Ordering::Relaxed));
    calls();
    // SAFETY: accesses no memory.
    assert_eq!(unsafe { libc::raise(SIGNAL) }, 0);
    calls()
}

#[test]
fn hosts_handler_below_a_foreign_handler_that_chains_is_called_once() {
    isolated(|| {
        install_host_handler(SIGNAL);
        profile();
        assert_eq!(calls_of_one_signal(), [1, 0]);
        install_chain();
        assert_eq!(calls_of_one_signal(), [1, 1], "without the profiler above");
        profile();
        assert_ne!(handler_of(SIGNAL), chain as extern "C" fn(_, _, _) as usize);
        assert_eq!(calls_of_one_signal(), [1, 1], "with the profiler above");
    });
}

#[test]
fn foreign_handler_that_has_removed_itself_is_not_called() {
    isolated(|| {
        install_host_handler(SIGNAL);
        profile();
        install_chain();
        profile();
        let replaced = REPLACED
            .lock()
            .expect("no panic")
            .take()
            .expect("installed");
        // SAFETY: the action is one that the kernel held before.
        let answer = unsafe { libc::sigaction(SIGNAL, &replaced, std::ptr::null_mut()) };
        assert_eq!(answer, 0);
        assert_eq!(calls_of_one_signal(), [1, 0]);
        profile();
        assert_eq!(calls_of_one_signal(), [1, 0]);
    });
}

#[test]
fn handler_that_is_installed_before_each_session_is_called_once() {
    isolated(|| {
        for _ in 0..10 {
            install_chain();
            profile();
            let [_, foreign] = calls_of_one_signal();
            assert_eq!(foreign, 1);
        }
        for _ in 0..10 {
            install_host_handler(SIGNAL);
            profile();
            assert_eq!(calls_of_one_signal()[0], 1);
        }
    });
}

fn stack_of(thread: ThreadId) -> Result<StackSample, SuspendError> {
    profiler_suspend_and_sample_thread(thread, StackFeatures::NATIVE, LONGEST_WAIT)
}

/// A registered thread that sleeps.
struct Target {
    id: ThreadId,
    _end: mpsc::Sender<()>,
}

impl Target {
    fn start() -> Self {
        let (send_id, id) = mpsc::channel();
        let (end, ends) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            gekkota::register_thread("sleeps");
            send_id
                .send(profiler_current_thread_id())
                .expect("the test waits");
            let _ = ends.recv();
        });
        let id = id.recv().expect("an id");
        Self { id, _end: end }
    }
}

#[test]
fn stack_on_demand_leaves_a_foreign_handler_of_the_session_in_place() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let target = Target::start();
        install_host_handler(libc::SIGURG);
        // An optimized build may have several copies of the function.
        let foreign = handler_of(libc::SIGURG);
        assert!(stack_of(target.id).expect("a stack").frames().len() > 1);
        assert_eq!(handler_of(libc::SIGURG), foreign);
        wait_until("the session goes on with another signal", || {
            Read::of_running().0["meta"]["samplingSignal"] == "SIGPROF"
        });
        // The session's last, so that it finds none that is free.
        CHOICES.into_iter().rev().for_each(install_host_handler);
        let error = stack_of(target.id)
            .expect_err("no signal is free")
            .to_string();
        assert!(error.contains("got a foreign handler of SIGURG"), "{error}");
        assert_eq!(CHOICES.map(handler_of), [foreign; 3]);
        session.finish().expect("profile");
    });
}

#[test]
fn stack_on_demand_without_a_session_uses_a_signal_without_a_handler() {
    isolated(|| {
        install_host_handler(libc::SIGURG);
        let foreign = handler_of(libc::SIGURG);
        let target = Target::start();
        assert!(stack_of(target.id).expect("a stack").frames().len() > 1);
        assert_eq!(handler_of(libc::SIGURG), foreign);
    });
}
