//! An after-sampling callback uses the application's descriptors while sampling continues.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::sync::mpsc;

use crate::common::{LONGEST_WAIT, Read, Sleeper, isolated, one_loop, wait_until};
use gekkota::callback::profiler_callback_after_sampling;
use gekkota::{ProfilerSession, StartParams};

#[test]
fn callback_opens_and_closes_descriptors_of_the_host() {
    isolated(|| {
        let _session = ProfilerSession::start(StartParams::default()).expect("start");
        // The sampler and the thread of the callbacks run by now.
        one_loop();
        let (mut end, mut write_end) = std::io::pipe().expect("a pipe");
        let (send, opened) = mpsc::channel();
        assert!(profiler_callback_after_sampling(move |_| {
            let written = write_end.write_all(b"from the callback");
            drop(write_end);
            _ = send.send((
                written.is_ok(),
                File::open("/proc/self/exe").expect("a file"),
            ));
        }));
        let (is_written, file) = opened.recv_timeout(LONGEST_WAIT).expect("a loop");
        assert!(is_written);
        let mut text = String::new();
        end.read_to_string(&mut text).expect("a text");
        assert_eq!(text, "from the callback");
        // SAFETY: the call accesses no memory of the process.
        let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFD) };
        assert!(flags >= 0, "the file is not open on this thread");
    });
}

#[test]
fn threads_are_sampled_while_a_callback_runs() {
    isolated(|| {
        let _session = ProfilerSession::start(StartParams::default()).expect("start");
        let (entered, has_entered) = mpsc::channel();
        let (leave, may_leave) = mpsc::channel::<()>();
        assert!(profiler_callback_after_sampling(move |_| {
            _ = entered.send(());
            _ = may_leave.recv();
        }));
        has_entered.recv_timeout(LONGEST_WAIT).expect("a loop");
        let _sleeper = Sleeper::start("sleeps");
        wait_until("the thread is sampled", || {
            let read = Read::of_running();
            let mut threads = read.threads().iter();
            threads.any(|thread| thread["name"] == "sleeps") && !read.samples("sleeps").is_empty()
        });
        leave.send(()).expect("the callback waits");
        one_loop();
    });
}
