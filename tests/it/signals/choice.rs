//! The signal that the profiler samples with if the application chooses none.

use std::ffi::CString;
use std::os::unix::ffi::OsStringExt as _;

use crate::common::{Read, isolated};
use gekkota::{ProfilerSession, StartParams};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, execve, fork};

extern "C" fn application_handler(_: libc::c_int) {}

fn install_handler(signal: i32) {
    // SAFETY: the action is a local, and the handler has the signature that its flags require.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = application_handler as extern "C" fn(_) as libc::sighandler_t;
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
    }
}

/// Returns the name of the signal that a session uses.
fn chosen_signal() -> String {
    let session = ProfilerSession::start(StartParams::default()).expect("start");
    let read = Read::from_profile(&session.finish().expect("profile"));
    let name = read.0["meta"]["samplingSignal"].as_str();
    name.expect("a name").to_owned()
}

#[test]
fn signals_with_a_handler_of_the_application_are_not_chosen() {
    isolated(|| {
        assert_eq!(chosen_signal(), "SIGURG");
        assert_eq!(chosen_signal(), "SIGURG", "the profiler's own handler");
        install_handler(libc::SIGURG);
        assert_eq!(chosen_signal(), "SIGPROF");
        install_handler(libc::SIGPROF);
        assert_eq!(chosen_signal(), "SIGSTKFLT");
        install_handler(libc::SIGSTKFLT);
        assert_eq!(chosen_signal(), "SIGURG", "all have a handler");
    });
}

#[test]
fn chosen_signal_that_is_pending_at_exec_ends_nothing() {
    const TEST: &str = "signals::choice::chosen_signal_that_is_pending_at_exec_ends_nothing";
    /// Tells the executed program to unblock its signals.
    const IS_EXECUTED: &str = "GEKKOTA_TEST_IS_EXECUTED";
    fn set_blocked(how: libc::c_int) {
        // SAFETY: the set is a local.
        unsafe {
            let mut signals: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&mut signals, libc::SIGURG);
            let before = std::ptr::null_mut();
            assert_eq!(libc::pthread_sigmask(how, &signals, before), 0);
        }
    }
    if std::env::var_os(IS_EXECUTED).is_some() {
        set_blocked(libc::SIG_UNBLOCK);
        return;
    }
    isolated(|| {
        assert_eq!(chosen_signal(), "SIGURG");
        let program = std::env::current_exe().expect("the test binary");
        let path = CString::new(program.into_os_string().into_vec()).expect("a path");
        let arguments = [c"it", c"--exact", &CString::new(TEST).expect("a name")];
        let variables = [CString::new(format!("{IS_EXECUTED}=1")).expect("a variable")];
        set_blocked(libc::SIG_BLOCK);
        // SAFETY: the child only raises a signal and executes a program.
        match unsafe { fork() }.expect("a child") {
            ForkResult::Child => {
                // SAFETY: `raise` accesses no memory; `_exit` returns nowhere.
                unsafe {
                    libc::raise(libc::SIGURG);
                    let _ = execve(&path, &arguments, &variables);
                    libc::_exit(1);
                }
            }
            ForkResult::Parent { child } => {
                let status = waitpid(child, None).expect("a status");
                assert_eq!(status, WaitStatus::Exited(child, 0));
            }
        }
    });
}
