//! The application has closed a standard stream, and a file of its own has its number.

use std::fs::File;
use std::os::fd::AsRawFd as _;

use crate::common::isolated_with;
use gekkota::AutoProfilerInit;

/// Runs the profiler, and lets it write a notice while standard error is what `replace` makes of it
/// with a new file. Returns the content of that file.
fn notice_in_file(name: &str, replace: impl Fn(&File)) -> String {
    let init = AutoProfilerInit::new();
    let path = std::env::temp_dir().join(format!("gekkota-{name}-{}", std::process::id()));
    let mut options = File::options();
    let file = options
        .read(name == "database")
        .write(true)
        .create_new(true);
    let file = file.open(&path).expect("a file");
    // SAFETY: copies the process's standard error, which the test does not use at the same time.
    let before = unsafe { libc::dup(2) };
    replace(&file);
    // The profile cannot be saved, and a notice says so.
    drop(init);
    // SAFETY: restores standard error.
    unsafe { assert_eq!(libc::dup2(before, 2), 2) };
    let text = std::fs::read_to_string(&path).expect("a text");
    std::fs::remove_file(&path).expect("removed");
    text
}

#[test]
fn notice_is_not_written_to_a_file_with_the_number_of_standard_error() {
    let variables = [
        ("MOZ_PROFILER_STARTUP", "1"),
        ("MOZ_PROFILER_SHUTDOWN", "/nonexistent-folder/profile.json"),
    ];
    isolated_with(&variables, || {
        let redirected = notice_in_file("redirected", |file| {
            // SAFETY: replaces standard error, which is restored.
            unsafe { assert_eq!(libc::dup2(file.as_raw_fd(), 2), 2) };
        });
        assert!(redirected.starts_with("gekkota: "), "{redirected:?}");
        let database = notice_in_file("database", |file| {
            // SAFETY: closes standard error, which is restored, and opens the file under its number.
            unsafe {
                libc::close(2);
                let number = libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 2);
                assert_eq!(number, 2);
            }
        });
        assert_eq!(database, "");
    });
}
