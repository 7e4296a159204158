//! One limit for the memory of a parent and its children.

use gekkota::StartParams;

use crate::common::{Read, isolated, mark, thread_names, wait_until};
use crate::family::roles::{
    Member, process_of, read_family, spawn_member, start_family_with, wait_for_children,
};

const LIMIT: u64 = 4 << 20;
const CHILDREN: usize = 3;

/// Returns the size of all chunks that the profile of a process tells, in bytes.
pub(super) fn chunk_bytes(profile: &Read, process: i32) -> u64 {
    let log = &profile.0["profilingLog"][process.to_string()]["buffer"];
    let count = |name: &str| log[name].as_u64().expect("a size");
    count("unreleased_chunk_bytes") + count("released_chunk_bytes")
}

#[test]
fn sum_of_all_buffers_stays_within_the_limit_of_the_parent() {
    isolated(|| {
        gekkota::profiler_init();
        start_family_with(|params: StartParams| params.capacity_bytes(LIMIT));
        let mut children: Vec<Member> = (1..=CHILDREN).map(spawn_member).collect();
        wait_for_children(CHILDREN);
        // Each of them alone would fill its own buffer.
        for child in &mut children {
            child.ask("markers 200000");
        }
        (0..200_000).for_each(|number| mark(&format!("many {number}")));
        let largest_chunk = LIMIT / 4;
        let mut last = Vec::new();
        wait_until("the sum is within the limit", || {
            let profile = read_family();
            let of_child = |child: &Member| {
                let read = process_of(&profile, child.id()).expect("its profile");
                chunk_bytes(&read, child.id())
            };
            last = children.iter().map(of_child).collect();
            last.push(chunk_bytes(&profile, std::process::id() as i32));
            last.iter().sum::<u64>() <= LIMIT + largest_chunk
        });
        // The limit is used, and each process has kept its newest data.
        assert!(last.iter().sum::<u64>() > LIMIT / 4, "{last:?}");
        assert!(last.iter().all(|&bytes| bytes > 0), "{last:?}");
        children.into_iter().for_each(Member::kill);
    });
}

#[test]
fn children_that_come_and_go_leave_nothing_behind() {
    const ROUNDS: usize = 3;
    const EACH: usize = 8;
    isolated(|| {
        gekkota::profiler_init();
        start_family_with(|params: StartParams| params.capacity_bytes(LIMIT));
        let threads = || {
            let mut names = thread_names();
            names.sort();
            names
        };
        // A new thread has the name of its creator for a moment.
        wait_until("the threads have their names", || {
            let names = threads();
            let own = ["ProfilerFamily", "ProfilerMailbo", "SamplerThread"];
            own.iter()
                .all(|own| names.iter().filter(|name| name.starts_with(own)).count() == 1)
                && !names.iter().any(|name| name.starts_with("ProfilerEvents"))
        });
        let before = threads();
        for round in 0..ROUNDS {
            // They start at the same time.
            let mut children: Vec<Member> = (0..EACH).map(|_| Member::spawn()).collect();
            wait_for_children(EACH);
            for child in &mut children {
                child.order("markers 20000");
            }
            for (number, mut child) in children.into_iter().enumerate() {
                if number % 2 == 0 {
                    child.kill();
                    continue;
                }
                child.reply();
                child.ask(&format!("mark m{round}"));
                child.order("exit");
                child.wait();
            }
            wait_for_children(0);
        }
        let profile = read_family();
        // Of the ended and the rescued processes, the newest are kept.
        let kept = profile.0["processes"].as_array().expect("a list").len();
        let all = ROUNDS * EACH;
        assert!((1..=all).contains(&kept), "{kept} of {all}");
        wait_until("the threads are those of the beginning", || {
            threads() == before
        });
        let folder = crate::family::host::socket();
        gekkota::profiler_shutdown();
        assert!(!folder.exists());
    });
}
