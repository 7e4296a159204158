//! A library was loaded through a descriptor whose number the application has since given to a
//! named pipe. Opening that path again would wait for a writer of the pipe. A pipe without a name
//! is opened without waiting, and is not a library.

use std::fs::File;
use std::os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::stat::Mode;

use crate::common::{Read, isolated, wait_until};
use crate::unwinding::accuracy::c_code;
use gekkota::{ProfilerSession, StartParams};

/// A function without call frame information, so that the unwinder asks for the symbols of its
/// module.
const SOURCE: &str = "
unsigned long works_in_library(unsigned long rounds) {
    volatile unsigned long value = rounds;
    while (rounds-- > 0) value = value * 31 + rounds;
    return value;
}
";
const FLAGS: [&str; 4] = [
    "-O1",
    "-fno-omit-frame-pointer",
    "-fno-asynchronous-unwind-tables",
    "-Wl,--build-id=none",
];
const THREAD: &str = "works in the library";
const SAMPLES: usize = 20;
/// A blocked sampler or writer of the profile would last for ever.
const WATCHDOG_SECONDS: u32 = 120;

/// Returns the end of a named pipe that has no writer.
fn named_pipe(folder: &c_code::Folder) -> OwnedFd {
    let path = folder.path().join("pipe");
    nix::unistd::mkfifo(&path, Mode::S_IRWXU).expect("a named pipe");
    let mut options = File::options();
    let pipe = options.read(true).custom_flags(libc::O_NONBLOCK).open(path);
    pipe.expect("an end").into()
}

/// Returns the end of a pipe that has no writer, and no name.
fn unnamed_pipe(_: &c_code::Folder) -> OwnedFd {
    std::io::pipe().expect("a pipe").0.into()
}

/// Loads the library by the path of a descriptor, and lets the pipe take the descriptor.
fn load_and_replace_file(open_pipe: fn(&c_code::Folder) -> OwnedFd) -> c_code::Library {
    let folder = c_code::Folder::new();
    let file =
        File::open(c_code::compile(&folder, "replaced", SOURCE, &FLAGS)).expect("it is there");
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let library = c_code::Library::load(&path);
    let end = open_pipe(&folder);
    let number = file.into_raw_fd();
    // SAFETY: the test owns both descriptors.
    assert_eq!(unsafe { libc::dup2(end.as_raw_fd(), number) }, number);
    library
}

fn profile_library_replaced_by(open_pipe: fn(&c_code::Folder) -> OwnedFd) {
    nix::unistd::alarm::set(WATCHDOG_SECONDS);
    let library = load_and_replace_file(open_pipe);
    let works = library.function("works_in_library");
    let session = ProfilerSession::start(StartParams::default()).expect("start");
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            gekkota::register_thread(THREAD);
            while !end.load(Ordering::Relaxed) {
                assert!(works(1_000_000) > 0);
            }
        });
        wait_until("the thread is sampled", || {
            let read = Read::of_running();
            let mut threads = read.threads().iter();
            threads.any(|thread| thread["name"] == THREAD) && read.samples(THREAD).len() >= SAMPLES
        });
        end.store(true, Ordering::Relaxed);
    });
    // Names the functions.
    let read = Read::from_profile(&session.finish().expect("profile"));
    assert!(read.samples(THREAD).len() >= SAMPLES);
}

#[test]
fn module_whose_path_became_a_named_pipe_blocks_neither_sampler_nor_profile() {
    isolated(|| profile_library_replaced_by(named_pipe));
}

#[test]
fn module_whose_path_became_a_pipe_blocks_neither_sampler_nor_profile() {
    isolated(|| profile_library_replaced_by(unnamed_pipe));
}
