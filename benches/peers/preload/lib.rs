//! A library to preload (`LD_PRELOAD`) into an unmodified program, in order to profile it.
//!
//! It replaces `pthread_create`. The first call starts the profiler. Each thread that the program
//! creates registers itself before it runs. A background thread reads the session's counters every
//! [`PAUSE`]. When the program exits, the library writes all readings, with their times, to the
//! file that [`COUNTS_VARIABLE`] names. Without that variable the library does nothing.
//!
//! **Contract** (cited below):
//! - *the system's `pthread_create`*: found by name in the libraries loaded after this one, so it
//!   has the type of that function;
//! - *passed on*: the arguments are the caller's, and the caller's promises to `pthread_create`
//!   also hold for the system's function;
//! - *own box*: the argument of [`run_thread`] is the box made for it, which no other code takes.
#![allow(unsafe_code, reason = "replaces a function of the C library")]

use std::ffi::{c_int, c_void};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use gekkota::{ProfilerSession, StartParams, ThreadGuard};

/// Environment variable that names the output file.
const COUNTS_VARIABLE: &str = "PEERS_UNWIND_COUNTS";
const INTERVAL: Duration = Duration::from_millis(1);
const PAUSE: Duration = Duration::from_millis(50);

type Routine = extern "C-unwind" fn(*mut c_void) -> *mut c_void;
type PthreadCreate = unsafe extern "C" fn(
    *mut libc::pthread_t,
    *const libc::pthread_attr_t,
    Routine,
    *mut c_void,
) -> c_int;

static STARTED: AtomicBool = AtomicBool::new(false);
/// Set while the profiler starts: threads created then belong to the profiler or to this library.
static STARTING: AtomicBool = AtomicBool::new(false);
static RECORDING: OnceLock<Recording> = OnceLock::new();

struct Recording {
    session: ProfilerSession,
    path: std::ffi::OsString,
    start: Instant,
    /// One line per reading: milliseconds since the start, unwound frames and nanoseconds, repeated
    /// frames and nanoseconds, samples, truncated samples.
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
            "{milliseconds} {} {} {} {} {} {}",
            count("unwound_frames"),
            count("unwind_ns"),
            count("repeated_frames"),
            count("repeated_unwind_ns"),
            count("captured_samples"),
            count("truncated_samples"),
        );
    }
}

fn start_profiler() {
    let Some(path) = std::env::var_os(COUNTS_VARIABLE) else {
        return;
    };
    STARTING.store(true, Ordering::Release);
    gekkota::__private::repeat_unwinding();
    match ProfilerSession::start(StartParams::default().interval(INTERVAL)) {
        Ok(session) => {
            let readings = Mutex::new(String::new());
            let recording = RECORDING.get_or_init(|| Recording {
                session,
                path,
                start: Instant::now(),
                readings,
            });
            let reader = std::thread::Builder::new()
                .name("counts".to_owned())
                .spawn(move || {
                    loop {
                        std::thread::sleep(PAUSE);
                        recording.read_counts();
                    }
                });
            if let Err(error) = reader {
                eprintln!("peers: cannot create the thread that reads the counters: {error}");
            }
            // SAFETY: the function has no parameters and no result, and stays mapped: a preloaded
            // library is never unloaded.
            unsafe { libc::atexit(write_counts) };
        }
        Err(error) => eprintln!("peers: cannot start the profiler: {error}"),
    }
    STARTING.store(false, Ordering::Release);
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

/// The start routine of a thread and its argument.
struct Task {
    routine: Routine,
    argument: *mut c_void,
}

extern "C-unwind" fn run_thread(task: *mut c_void) -> *mut c_void {
    // SAFETY: *own box*.
    let Task { routine, argument } = *unsafe { Box::from_raw(task.cast::<Task>()) };
    let _registered = ThreadGuard::register("");
    routine(argument)
}

fn system_pthread_create() -> Option<PthreadCreate> {
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    let mut address = FOUND.load(Ordering::Relaxed);
    if address == 0 {
        // SAFETY: the name ends with a zero.
        address = unsafe { libc::dlsym(libc::RTLD_NEXT, c"pthread_create".as_ptr()) } as usize;
        FOUND.store(address, Ordering::Relaxed);
    }
    // SAFETY: *the system's `pthread_create`*; a null pointer is `None`.
    unsafe { std::mem::transmute::<usize, Option<PthreadCreate>>(address) }
}

/// Creates a thread as the C library does, and has the thread register itself first.
///
/// # Safety
/// - The requirements of the C library's `pthread_create`.
// SAFETY: it has the type of the function that it replaces.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    routine: Routine,
    argument: *mut c_void,
) -> c_int {
    let Some(create) = system_pthread_create() else {
        return libc::ENOSYS;
    };
    if !STARTED.swap(true, Ordering::AcqRel) {
        start_profiler();
    }
    if RECORDING.get().is_none() || STARTING.load(Ordering::Acquire) {
        // SAFETY: *passed on*.
        return unsafe { create(thread, attributes, routine, argument) };
    }
    let task = Box::into_raw(Box::new(Task { routine, argument }));
    // SAFETY: *passed on*; `run_thread` has the type of a routine.
    let result = unsafe { create(thread, attributes, run_thread, task.cast()) };
    if result != 0 {
        // SAFETY: *own box*: no thread was created, so nothing else takes the box.
        drop(unsafe { Box::from_raw(task) });
    }
    result
}
