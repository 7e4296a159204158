//! A timer of one thread that the kernel looks at on its own ticks.
//!
//! It is a POSIX timer by the thread's CPU clock. The kernel compares that clock on each of its ticks,
//! 100 to 1,000 times per second, so the timer is no more exact than these: it fires once for all
//! intervals that have passed since the last tick. In turn, a switch from thread to thread costs
//! nothing, unlike with an event of `perf_event_open`. It needs no permission and no descriptor. The
//! kernel deletes it at `exec`, and the child of a fork has none.
//!
//! **Contract** (cited below):
//! - *kernel's layouts*: the structures are those of the C library, and live as long as the call;
//! - *ours*: the timer was made here, and is deleted at most once, on drop.

use std::io;
use std::mem::MaybeUninit;

use nix::errno::Errno;

use crate::platform::sandbox::may_make_uncommon_call;
use crate::platform::signal::handler::SignalTicket;
use crate::types::ThreadId;

/// The kind of clock in the lowest bits of a clock's number: the CPU time of a single thread
/// (`CPUCLOCK_SCHED` and `CPUCLOCK_PERTHREAD_MASK` of the kernel).
const CPU_TIME_OF_THREAD: libc::clockid_t = 0b110;
const NS_PER_SECOND: u64 = 1_000_000_000;

/// A timer of one thread, deleted on drop.
#[derive(Debug)]
pub(crate) struct CpuTimer {
    id: libc::timer_t,
}

// SAFETY: *ours*: a timer belongs to the process, not to a thread.
unsafe impl Send for CpuTimer {}

impl CpuTimer {
    /// Starts a timer that sends `signal` with this ticket to a thread of this process after each
    /// `interval_ns` of its CPU time. Cost: some microseconds.
    ///
    /// # Errors
    /// The error of the operating system; `Unsupported` in a sandbox.
    pub(crate) fn start(
        thread: ThreadId,
        interval_ns: u64,
        signal: i32,
        ticket: SignalTicket,
    ) -> io::Result<Self> {
        if !may_make_uncommon_call() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // SAFETY: zeroed is valid for the structure.
        let mut event: libc::sigevent = unsafe { MaybeUninit::zeroed().assume_init() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal;
        event.sigev_value.sival_ptr = ticket.to_value() as *mut libc::c_void;
        event.sigev_notify_thread_id = thread.to_number();
        let clock = (!thread.to_number()) << 3 | CPU_TIME_OF_THREAD;
        let mut id = MaybeUninit::uninit();
        // SAFETY: *kernel's layouts*.
        Errno::result(unsafe { libc::timer_create(clock, &mut event, id.as_mut_ptr()) })?;
        // SAFETY: the call has succeeded, so it has written the timer's number.
        let id = unsafe { id.assume_init() };
        let timer = Self { id };
        let interval = libc::timespec {
            tv_sec: (interval_ns / NS_PER_SECOND) as _,
            tv_nsec: (interval_ns % NS_PER_SECOND) as _,
        };
        let times = libc::itimerspec {
            it_interval: interval,
            it_value: interval,
        };
        let before = std::ptr::null_mut();
        // SAFETY: *kernel's layouts*; *ours*.
        Errno::result(unsafe { libc::timer_settime(timer.id, 0, &times, before) })?;
        Ok(timer)
    }
}

impl Drop for CpuTimer {
    fn drop(&mut self) {
        // In a sandbox that forbids the call, the timer goes on. Later sessions ignore its signals.
        if may_make_uncommon_call() {
            // SAFETY: *ours*.
            let _ = unsafe { libc::timer_delete(self.id) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::{current_process_id, current_thread_id, thread_exists};

    const NEVER_NS: u64 = 1 << 60;

    #[test]
    fn timer_of_a_thread_is_granted_while_it_exists() {
        let ticket = SignalTicket {
            slot: 1,
            sequence: 2,
        };
        let start = |thread| CpuTimer::start(thread, NEVER_NS, libc::SIGURG, ticket);
        match start(current_thread_id()) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                println!("!!! SKIPPED: the process is in a sandbox");
                return;
            }
            timer => drop(timer.expect("a timer")),
        }
        let ended = std::thread::spawn(current_thread_id).join().expect("an id");
        // A thread may be joined shortly before it is gone.
        while thread_exists(current_process_id(), ended) {
            std::thread::yield_now();
        }
        start(ended).expect_err("no thread");
    }
}
