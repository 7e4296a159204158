//! A library to preload (`LD_PRELOAD`) into an unmodified program, in order to profile it.
//!
//! It starts the profiler before `main`, which finds the program's threads by itself. A background
//! thread reads the session's counters every [`PAUSE`]. When the program exits, the library writes all
//! readings, with their times, to the file that [`COUNTS_VARIABLE`] names. Without that variable the
//! library does nothing.
#![allow(unsafe_code, reason = "runs before `main` and after it")]

use std::fmt::Write as _;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use gekkota::{ProfilerSession, StartParams};

/// Environment variable that names the output file.
const COUNTS_VARIABLE: &str = "PEERS_UNWIND_COUNTS";
const INTERVAL: Duration = Duration::from_millis(1);
const PAUSE: Duration = Duration::from_millis(50);

static RECORDING: OnceLock<Recording> = OnceLock::new();

struct Recording {
    session: ProfilerSession,
    path: std::ffi::OsString,
    start: Instant,
    /// One line per reading: milliseconds since the start, unwound frames and nanoseconds, repeated
    /// frames and nanoseconds.
    readings: Mutex<String>,
}

impl Recording {
    fn read_counts(&self) {
        let Ok(profile) = self.session.snapshot() else {
            return;
        };
        let counts = profile.sampler_counts();
        let count = |name| {
            counts
                .iter()
                .find(|(known, _)| *known == name)
                .map_or(0, |(_, count)| *count)
        };
        let milliseconds = self.start.elapsed().as_millis();
        let mut readings = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
        // Writing to a string does not fail.
        let _ = writeln!(
            readings,
            "{milliseconds} {} {} {} {}",
            count("unwound_frames"),
            count("unwind_ns"),
            count("repeated_frames"),
            count("repeated_unwind_ns"),
        );
    }
}

// SAFETY: the loader calls the functions of this section once, when it loads the library, with
// arguments that a function without parameters ignores.
#[unsafe(link_section = ".init_array")]
#[used]
static START: extern "C" fn() = start_profiler;

extern "C" fn start_profiler() {
    let Some(path) = std::env::var_os(COUNTS_VARIABLE) else {
        return;
    };
    gekkota::__private::repeat_unwinding();
    let session = match ProfilerSession::start(StartParams::default().interval(INTERVAL)) {
        Ok(session) => session,
        Err(error) => return eprintln!("peers: cannot start the profiler: {error}"),
    };
    let recording = RECORDING.get_or_init(|| Recording {
        session,
        path,
        start: Instant::now(),
        readings: Mutex::default(),
    });
    let reader = std::thread::Builder::new().name("counts".to_owned());
    let reader = reader.spawn(move || {
        loop {
            std::thread::sleep(PAUSE);
            recording.read_counts();
        }
    });
    if let Err(error) = reader {
        eprintln!("peers: cannot create the thread that reads the counters: {error}");
    }
    // SAFETY: the function has no parameters and no result, and stays mapped: a preloaded library is
    // never unloaded.
    unsafe { libc::atexit(write_counts) };
}

extern "C" fn write_counts() {
    let Some(recording) = RECORDING.get() else {
        return;
    };
    recording.read_counts();
    let readings = recording
        .readings
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if let Err(error) = std::fs::write(&recording.path, readings.as_str()) {
        eprintln!("peers: cannot write the counters: {error}");
    }
}
