//! A forked child has none of the files open that the sampler reads about the threads.

use crate::common::{Read, Sleeper, in_forked_child, isolated, wait_until};
use gekkota::{ProfilerSession, SamplingEngine, StartParams};

const SLEEPERS: u64 = 20;

/// The open files that tell about a thread.
fn files_about_threads() -> Vec<String> {
    let entries = std::fs::read_dir("/proc/self/fd").expect("a folder");
    let targets = entries.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let names = targets.map(|target| target.display().to_string());
    names
        .filter(|name| name.contains("/task/") && name.ends_with("/syscall"))
        .collect()
}

#[test]
fn a_child_has_no_files_of_the_samplers() {
    isolated(|| {
        let params = || StartParams::default().engine(SamplingEngine::Signals);
        let session = ProfilerSession::start(params()).expect("start");
        let sleepers: Vec<_> = (0..SLEEPERS).map(|_| Sleeper::start("sleeper")).collect();
        let looks = || {
            Read::from_text(&gekkota::profiler_get_profile().expect("a session"))
                .count("samples_from_outside")
        };
        wait_until("they were looked at", || looks() >= SLEEPERS);
        let in_parent = files_about_threads().len();
        let in_child = in_forked_child(|| {
            let at_once = files_about_threads();
            let session = ProfilerSession::start(params()).expect("start");
            session.finish().expect("profile");
            let after = files_about_threads();
            assert!(
                at_once.is_empty() && after.is_empty(),
                "{} at once, {} after a session: {after:?}",
                at_once.len(),
                after.len()
            );
            "none".to_owned()
        });
        drop(sleepers);
        session.finish().expect("profile");
        println!("{in_parent} in the parent, {in_child} in the child");
        assert_eq!(files_about_threads(), [""; 0], "after the session");
    });
}
