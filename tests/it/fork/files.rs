//! A forked child does not keep the sampler's open files about the parent's threads.

use crate::common::{Read, Sleeper, in_forked_child, isolated, wait_until};
use gekkota::{ProfilerSession, StartParams};

const SLEEPERS: u64 = 20;

/// Returns the open files that the sampler reads about threads.
fn thread_files() -> Vec<String> {
    let entries = std::fs::read_dir("/proc/self/fd").expect("a folder");
    let targets = entries.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let names = targets.map(|target| target.display().to_string());
    names
        .filter(|name| name.contains("/task/") && name.ends_with("/syscall"))
        .collect()
}

#[test]
fn forked_child_has_no_thread_files_open() {
    isolated(|| {
        let params = || StartParams::default();
        let session = ProfilerSession::start(params()).expect("start");
        let sleepers: Vec<_> = (0..SLEEPERS).map(|_| Sleeper::start("sleeper")).collect();
        wait_until("the sleeping threads are sampled", || {
            Read::of_running().count("remote_samples") >= SLEEPERS
        });
        let in_parent = thread_files().len();
        let in_child = in_forked_child(|| {
            let after_fork = thread_files();
            let session = ProfilerSession::start(params()).expect("start");
            session.finish().expect("profile");
            let after_session = thread_files();
            assert!(
                after_fork.is_empty() && after_session.is_empty(),
                "after the fork: {after_fork:?}, after a session: {after_session:?}"
            );
            "none".to_owned()
        });
        drop(sleepers);
        session.finish().expect("profile");
        println!("open files: {in_parent} in the parent, {in_child} in the child");
        assert_eq!(thread_files(), [""; 0], "after the session");
    });
}
