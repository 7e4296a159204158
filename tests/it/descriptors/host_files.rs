//! The application closes all descriptors that it does not know, as a daemon does, and opens files
//! that get the same numbers. The profiler neither closes nor uses them, and keeps no file of the
//! application open.

use std::fs::File;
use std::io::{PipeReader, Read as _};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno;

use super::Sampled;
use crate::common::{in_forked_child, isolated, one_loop};
use gekkota::{profiler_pause, profiler_resume};

const SLEEPERS: usize = 20;
/// More files than the sampler has threads.
const FILES: usize = 3 * SLEEPERS;

/// Files that the application opens with the numbers of the descriptors that it has closed.
struct HostFiles(Vec<File>);

impl HostFiles {
    /// Closes all descriptors but the standard streams, and opens files.
    fn replace_all() -> Self {
        let (first, last, flags) = (3u32, u32::MAX, 0);
        // SAFETY: the test owns no descriptor above the standard streams.
        let answer = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
        assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
        let open = |_| File::open("/proc/self/exe").expect("a file");
        Self((0..FILES).map(open).collect())
    }

    /// Returns how many of the files are no longer open.
    fn closed(&self) -> usize {
        // SAFETY: the call accesses no memory of the process.
        let is_open = |file: &File| unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFD) } >= 0;
        self.0.iter().filter(|file| !is_open(file)).count()
    }
}

impl Drop for HostFiles {
    fn drop(&mut self) {
        // A debug build of the standard library aborts if it finds a file closed.
        if self.closed() > 0 {
            std::mem::forget(std::mem::take(&mut self.0));
        }
    }
}

/// Asserts that the files stay open while a fork's child begins, threads end, and the session ends.
fn assert_files_stay_open(sampled: Sampled, files: &HostFiles) {
    let in_child = in_forked_child(|| files.closed().to_string());
    assert_eq!(in_child, "0", "files closed in the child of a fork");
    drop(sampled.sleepers);
    one_loop();
    one_loop();
    assert_eq!(
        files.closed(),
        0,
        "files closed after the threads have ended"
    );
    sampled.session.finish().expect("profile");
    assert_eq!(
        files.closed(),
        0,
        "files closed after the session has ended"
    );
}

#[test]
fn files_of_the_host_stay_open_after_close_range() {
    isolated(|| {
        let sampled = Sampled::start(SLEEPERS);
        let files = HostFiles::replace_all();
        assert_files_stay_open(sampled, &files);
    });
}

/// In a sandbox the sampler has no descriptor table of its own.
#[test]
#[cfg(target_arch = "x86_64")]
fn files_of_the_host_stay_open_after_close_range_in_a_sandbox() {
    isolated(|| {
        use crate::common::seccomp::Filtered;
        crate::sampling::sandbox::kill_for(
            Filtered::AllThreads,
            &[libc::SYS_close_range, libc::SYS_unshare],
        );
        let sampled = Sampled::start(SLEEPERS);
        profiler_pause();
        one_loop();
        // The filter forbids `close_range`.
        let numbers = std::fs::read_dir("/proc/self/fd").expect("descriptors");
        let numbers = numbers.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let numbers: Vec<i32> = numbers.filter(|number| *number > 2).collect();
        for number in numbers {
            // SAFETY: the test owns no descriptor above the standard streams.
            unsafe { libc::close(number) };
        }
        let open = |_| File::open("/proc/self/exe").expect("a file");
        let files = HostFiles((0..FILES).map(open).collect());
        profiler_resume();
        one_loop();
        assert_files_stay_open(sampled, &files);
    });
}

/// Returns whether all write ends of the pipe are closed.
fn has_ended(mut pipe: &PipeReader) -> bool {
    match pipe.read(&mut [0]) {
        Ok(count) => count == 0,
        Err(error) if error.raw_os_error() == Some(Errno::EAGAIN as i32) => false,
        Err(error) => panic!("{error}"),
    }
}

fn set_nonblocking(pipe: &impl AsFd) {
    let number = pipe.as_fd().as_raw_fd();
    // SAFETY: the call accesses no memory of the process.
    let answer = unsafe { libc::fcntl(number, libc::F_SETFL, libc::O_NONBLOCK) };
    assert_eq!(answer, 0);
}

#[test]
fn pipe_that_the_host_closes_during_a_session_has_ended() {
    isolated(|| {
        let (end, write_end) = std::io::pipe().expect("a pipe");
        let (end_of_input, write_end_of_input) = std::io::pipe().expect("a pipe");
        set_nonblocking(&end);
        set_nonblocking(&end_of_input);
        // Standard input, because this test and its parent use the other standard streams.
        // SAFETY: the test does not read its standard input.
        assert_eq!(unsafe { libc::dup2(write_end_of_input.as_raw_fd(), 0) }, 0);
        drop(write_end_of_input);
        let sampled = Sampled::start(1);
        one_loop();
        drop(OwnedFd::from(write_end));
        // SAFETY: the test does not read its standard input.
        assert_eq!(unsafe { libc::close(0) }, 0);
        assert!(has_ended(&end), "the sampler keeps the pipe open");
        assert!(has_ended(&end_of_input), "the sampler keeps the pipe open");
        sampled.session.finish().expect("profile");
    });
}
