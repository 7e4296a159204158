//! The profiler's threads have the normal scheduling policy, whatever their creator has.

use std::collections::HashSet;

use crate::common::{isolated, wait_until};
use gekkota::{ProfilerSession, StartParams};

/// Returns the ids of the process's threads and their policies.
fn policies() -> Vec<(i32, i32)> {
    let tasks = std::fs::read_dir("/proc/self/task")
        .expect("threads")
        .flatten();
    let ids = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok());
    let policy = |id: i32| {
        // SAFETY: accesses no memory. musl's own function does not ask the kernel.
        let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, id) };
        (id, policy as i32)
    };
    ids.map(policy).filter(|(_, policy)| *policy >= 0).collect()
}

fn assert_normal_under(policy: libc::c_int, priority: libc::c_int) {
    let before: HashSet<_> = policies().into_iter().map(|(id, _)| id).collect();
    // SAFETY: the kernel reads a local, which begins with the priority.
    let set =
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) };
    if set != 0 {
        println!("!!! SKIPPED: the kernel refuses policy {policy}");
        return;
    }
    let session = ProfilerSession::start(StartParams::default()).expect("start");
    gekkota::callback::profiler_callback_after_sampling(|_| ());
    wait_until("the profiler's threads have the normal policy", || {
        let mut all = policies();
        all.retain(|(id, _)| !before.contains(id));
        all.len() >= 2 && all.iter().all(|(_, policy)| *policy == libc::SCHED_OTHER)
    });
    session.finish().expect("a profile");
}

#[test]
fn threads_of_the_profiler_do_not_inherit_a_policy() {
    isolated(|| {
        assert_normal_under(libc::SCHED_BATCH, 0);
        assert_normal_under(libc::SCHED_FIFO, 1);
    });
}
