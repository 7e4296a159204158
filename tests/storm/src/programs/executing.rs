//! Replaces itself by another program, with `exec`, while it is profiled and signals are pending.

use std::ffi::CString;
use std::io;
use std::os::unix::process::CommandExt;
use std::time::Duration;

use super::profiled::{Workers, start_session, wait_for_samples};
use super::{Orders, command};
use crate::work::spend_cpu;

/// Number of other programs that one thread starts.
const STARTS: usize = 5;

pub fn main(orders: &mut Orders) -> Result<(), String> {
    gekkota::register_thread("main");
    let session = start_session(&mut orders.random)?;
    let _workers = Workers::start(3);
    wait_for_samples(&session, 3)?;
    let code = orders.code;
    let error = match orders.random.below(4) {
        0 => execute(code),
        1 => on_other_thread(move || execute(code)),
        2 => on_other_thread(move || {
            leave_signal_pending();
            execute(code)
        }),
        _ => {
            start_others(code)?;
            execute(code)
        }
    };
    Err(format!("cannot execute the next program: {error}"))
}

/// Replaces the process by the program `arrived`. Returns only if that fails.
fn execute(code: u8) -> io::Error {
    let arguments = ["storm", "arrived", "0", &code.to_string()]
        .map(|argument| CString::new(argument).expect("no zero byte"));
    let [name, program, seed, code] = arguments.each_ref().map(|argument| argument.as_ptr());
    let list = [name, program, seed, code, std::ptr::null()];
    // SAFETY: the path, the arguments and their list are null-terminated.
    unsafe { libc::execv(c"/proc/self/exe".as_ptr(), list.as_ptr()) };
    io::Error::last_os_error()
}

/// Runs `body` on a registered thread of its own, whose id is not the process's.
fn on_other_thread(body: impl FnOnce() -> io::Error + Send + 'static) -> io::Error {
    let thread = std::thread::spawn(move || {
        gekkota::register_thread("executes");
        spend_cpu(Duration::from_millis(5));
        body()
    });
    thread.join().expect("the thread does not panic")
}

/// Blocks all signals on the calling thread, and sends it the profiler's.
fn leave_signal_pending() {
    // SAFETY: a filled set is valid and a local; the signal goes to the calling thread.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
        libc::raise(libc::SIGURG);
    }
}

/// Starts other programs from sampled threads, by `posix_spawn` and by `fork` and `exec`.
fn start_others(code: u8) -> Result<(), String> {
    let start = move |forks: bool| {
        gekkota::register_thread("starts others");
        for _ in 0..STARTS {
            let mut command = command("arrived", 0, code);
            if forks {
                // SAFETY: the closure does nothing. Its presence makes the standard library fork.
                unsafe { command.pre_exec(|| Ok(())) };
            }
            let status = command.status().map_err(|error| error.to_string())?;
            if status.code() != Some(code.into()) {
                return Err(format!("a started program: {status}"));
            }
        }
        Ok(())
    };
    let threads = [false, true].map(|forks| std::thread::spawn(move || start(forks)));
    threads
        .into_iter()
        .try_for_each(|thread| thread.join().expect("the thread does not panic"))
}
