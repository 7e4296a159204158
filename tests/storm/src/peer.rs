//! Another profiler in the same process: pprof-rs, configured as its documentation recommends.
//!
//! While it runs, workers that call `catch_unwind` often are idle. pprof's handler unwinds with
//! libgcc. The standard library's `__rust_try` has no call frame information for its last
//! instructions. There libgcc takes another word for the return address, reads the instruction at
//! it, and ends the process with `SIGSEGV` (pprof-rs #36, #85). Coroutines and ending threads still
//! pass through this code, so it happens once in some minutes. A core dump shows it. Its
//! fault address was 6:
//!
//! ```text
//! #0  ?? () from libgcc_s.so.1
//! #1  _Unwind_Backtrace () from libgcc_s.so.1
//! #2  backtrace::backtrace::libunwind::trace ()
//! #5  pprof::profiler::perf_signal_handler ()
//! #6  gekkota::platform::signal::handler::call_in_handler ()
//! #9  <signal handler called>
//! #10 corosensei::arch::x86_64::switch_yield ()
//! ```
//!
//! gekkota's handler appears there because it passes the signal on to the handler that was
//! installed before it.

use std::sync::{PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;

use crate::tally;

const FREQUENCY_HZ: i32 = 250;
/// Libraries in which pprof's handler does not unwind.
const BLOCKLIST: [&str; 5] = ["libc", "libgcc", "pthread", "vdso", "ld-linux"];

static PRESENCE: RwLock<()> = RwLock::new(());

/// The running peer, stopped on drop.
pub struct Peer {
    guard: pprof::ProfilerGuard<'static>,
    /// Released after the guard was dropped.
    _presence: RwLockWriteGuard<'static, ()>,
}

/// Runs a step that could crash the process while pprof runs. Sleeps briefly instead if pprof runs.
pub fn while_absent(step: impl FnOnce()) {
    match PRESENCE.try_read() {
        Ok(_absent) => step(),
        Err(_) => std::thread::sleep(Duration::from_millis(2)),
    }
}

impl Peer {
    /// Starts pprof. Returns `None` if `STORM_PPROF=0`, because pprof can crash the process by
    /// itself.
    pub fn start() -> Option<Self> {
        if std::env::var_os("STORM_PPROF").is_some_and(|value| value == "0") {
            return None;
        }
        let builder = pprof::ProfilerGuardBuilder::default()
            .frequency(FREQUENCY_HZ)
            .blocklist(&BLOCKLIST);
        tally::PEER_RUNS.one();
        let presence = PRESENCE.write().unwrap_or_else(PoisonError::into_inner);
        let guard = builder
            .build()
            .unwrap_or_else(|error| panic!("pprof: {error}"));
        Some(Self {
            guard,
            _presence: presence,
        })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if let Ok(report) = self.guard.report().build_unresolved() {
            let samples: isize = report.data.values().sum();
            tally::PEER_SAMPLES.add(samples.unsigned_abs() as u64);
        }
    }
}
