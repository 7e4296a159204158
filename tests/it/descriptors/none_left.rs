//! The application has used up its descriptors. Functions have names nevertheless, and a profile can
//! be saved. In a sandbox, where neither works, the profile and a notice say so.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::common::{Read, isolated, wait_until, work};
use gekkota::{Profile, ProfilerSession, StartParams};

/// Number of descriptors that the process may have.
const LIMIT: u64 = 64;
const THREAD: &str = "works";
const FUNCTION: &str = "works_without_descriptors";

static IS_OVER: AtomicBool = AtomicBool::new(false);

#[inline(never)]
fn works_without_descriptors() {
    while !IS_OVER.load(Ordering::Relaxed) {
        std::hint::black_box(work(1000));
    }
}

/// Returns a profile with samples of the function.
fn profile() -> Profile {
    let session = ProfilerSession::start(StartParams::default()).expect("start");
    let thread = std::thread::spawn(|| {
        gekkota::register_thread(THREAD);
        works_without_descriptors();
    });
    wait_until("the thread is sampled", || {
        let read = Read::of_running();
        let mut threads = read.threads().iter();
        threads.any(|thread| thread["name"] == THREAD) && read.samples(THREAD).len() > 20
    });
    IS_OVER.store(true, Ordering::Relaxed);
    thread.join().expect("no panic");
    session.finish().expect("profile")
}

/// Opens files until no descriptor is free.
fn use_all_descriptors() -> Vec<File> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("the limits");
    setrlimit(Resource::RLIMIT_NOFILE, LIMIT, hard).expect("a lower limit");
    let files: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    let error = File::open("/dev/null").expect_err("none is free");
    assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
    files
}

fn names_function(read: &Read) -> bool {
    let samples = read.samples(THREAD);
    let mut frames = samples.iter().flat_map(|sample| &sample.stack);
    frames.any(|frame| frame.contains(FUNCTION))
}

/// Returns the texts that name modules without names.
fn modules_without_names(read: &Read) -> Vec<String> {
    let log = &read.0["profilingLog"][std::process::id().to_string()];
    let modules = log["modulesWithoutNames"].as_array().expect("a list");
    let texts = modules
        .iter()
        .map(|module| module.as_str().expect("a text"));
    texts.map(str::to_owned).collect()
}

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("gekkota-{name}-{}.json", std::process::id()))
}

#[test]
fn profile_without_free_descriptors_has_names_and_is_saved() {
    isolated(|| {
        let profile = profile();
        let before = Read::from_profile(&profile);
        let files = use_all_descriptors();
        let in_memory = Read::from_profile(&profile);
        let path = path("none-left");
        let saved = profile.save(&path);
        drop(files);
        saved.expect("saved");
        let text = std::fs::read(&path).expect("the file");
        std::fs::remove_file(&path).expect("removed");
        for read in [in_memory, Read::from_text(&text)] {
            assert!(names_function(&read), "{:?}", read.samples(THREAD).first());
            assert_eq!(modules_without_names(&read), [""; 0]);
            for key in ["CPUName", "oscpu"] {
                assert_eq!(read.0["meta"][key], before.0["meta"][key]);
            }
        }
    });
}

/// A session that starts when no descriptor is free still reads the threads' files in `/proc`.
#[test]
fn session_without_free_descriptors_reads_sleeping_threads_from_outside() {
    isolated(|| {
        let _files = use_all_descriptors();
        let _session = ProfilerSession::start(StartParams::default()).expect("start");
        let _sleeper = crate::common::Sleeper::start("sleeps");
        wait_until("the sleeping thread is read from outside", || {
            Read::of_running().count("remote_samples") > 0
        });
    });
}

/// In a sandbox the profiler cannot have a descriptor table of its own.
#[test]
#[cfg(target_arch = "x86_64")]
fn missing_names_and_an_impossible_save_are_reported() {
    isolated(|| {
        use crate::common::seccomp::Filtered;
        let profile = profile();
        crate::sampling::sandbox::kill_for(Filtered::AllThreads, &[libc::SYS_close_range]);
        let notices = path("notices");
        let file = File::create(&notices).expect("a file");
        // SAFETY: the process's standard error, which is restored below.
        let standard_error = unsafe {
            let before = libc::dup(2);
            assert_eq!(libc::dup2(file.as_raw_fd(), 2), 2);
            before
        };
        let files = use_all_descriptors();
        let reads = [0, 1].map(|_| Read::from_profile(&profile));
        let path = path("impossible");
        let error = profile.save(&path).expect_err("no descriptor");
        drop(files);
        // SAFETY: restores the process's standard error.
        unsafe { assert_eq!(libc::dup2(standard_error, 2), 2) };
        let error = error.to_string();
        assert!(
            error.contains("cannot create") && error.contains("Too many open files"),
            "{error}"
        );
        assert!(!path.exists());
        let program = std::env::current_exe().expect("path").display().to_string();
        for read in reads {
            assert!(!names_function(&read));
            let modules = modules_without_names(&read);
            let mut modules = modules.iter();
            assert!(
                modules
                    .any(|text| text.starts_with(&program) && text.contains("Too many open files"))
            );
        }
        let notices_text = std::fs::read_to_string(&notices).expect("the notices");
        std::fs::remove_file(&notices).expect("removed");
        let lines: Vec<&str> = notices_text.lines().collect();
        assert_eq!(lines.len(), 1, "{notices_text}");
        assert!(
            lines[0].starts_with("gekkota: cannot name functions in "),
            "{notices_text}"
        );
    });
}
