//! A parent, its child and its grandchild in one profile.

use crate::common::{Read, isolated, mark, wait_until};
use crate::family::memory_limit::chunk_bytes;
use crate::family::roles::{
    Member, flow, marks_of, process_of, read_family, spawn_member, start_family, start_family_with,
};

/// Returns the current time on the timeline of this process's profile, in milliseconds since 1970.
fn now_ms() -> f64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("after 1970").as_secs_f64() * 1e3
}

#[test]
fn three_generations_are_in_one_profile() {
    isolated(|| {
        gekkota::profiler_init();
        start_family();
        let mut child = spawn_member(1);
        child.ask("name the child");
        let grandchild: i32 = child.ask("spawn").parse().expect("an id");
        child.ask("children 1");
        child.ask("child name the grandchild");
        child.ask("mark m1");
        child.ask("child mark m2");
        let profile = read_family();
        assert_eq!(marks_of(&profile, child.id()), ["m1"]);
        assert_eq!(marks_of(&profile, grandchild), ["m2"]);
        for (process, name) in [(child.id(), "the child"), (grandchild, "the grandchild")] {
            let process = process_of(&profile, process).expect("its profile");
            let thread = &process.threads()[0];
            assert_eq!(thread["processName"], name);
            assert_eq!(thread["processType"], "worker");
            // The viewer shows only one level.
            assert_eq!(process.0["processes"].as_array().expect("a list").len(), 0);
        }
        child.order("exit");
        child.wait();
        gekkota::profiler_shutdown();
    });
}

#[test]
fn same_address_in_two_processes_is_two_flows() {
    isolated(|| {
        gekkota::profiler_init();
        start_family();
        let mut children = [spawn_member(1), spawn_member(2)];
        let [one, other] = children.each_mut().map(|child| child.ask("flow"));
        assert_ne!(one, other);
        assert!(flow() != one && flow() != other);
        children.into_iter().for_each(Member::kill);
    });
}

#[test]
fn times_of_children_are_on_the_parents_timeline() {
    isolated(|| {
        gekkota::profiler_init();
        start_family();
        let mut child = spawn_member(1);
        let before = now_ms();
        child.ask("mark m");
        let after = now_ms();
        let profile = read_family();
        let of_child = process_of(&profile, child.id()).expect("its profile");
        let start = |read: &Read| read.0["meta"]["startTime"].as_f64().expect("a time");
        let marker = of_child.markers(crate::family::roles::THREAD);
        let marker = marker
            .iter()
            .find(|marker| marker.0 == "m")
            .expect("the marker");
        let at = start(&of_child) + marker.1;
        // The kernel's record of a start has a resolution of 10 ms.
        assert!(
            before - 20.0 < at && at < after + 20.0,
            "{before} < {at} < {after}"
        );
        // The difference between the two processes is exact.
        let monotonic = |read: &Read| {
            let key = "startTimeAsClockMonotonicNanosecondsSinceBoot";
            read.0["meta"][key].as_f64().expect("a time") / 1e6
        };
        let by_clock = monotonic(&of_child) - monotonic(&profile);
        let by_epoch = start(&of_child) - start(&profile);
        assert!((by_clock - by_epoch).abs() < 0.01, "{by_clock} {by_epoch}");
        child.kill();
    });
}

#[test]
fn one_limit_holds_for_three_generations() {
    const LIMIT: u64 = 4 << 20;
    isolated(|| {
        gekkota::profiler_init();
        start_family_with(|params| params.capacity_bytes(LIMIT));
        let mut child = spawn_member(1);
        let grandchild: i32 = child.ask("spawn").parse().expect("an id");
        child.ask("children 1");
        // The parent and the grandchild would fill a buffer each.
        child.ask("child markers 200000");
        (0..200_000).for_each(|number| mark(&format!("many {number}")));
        let largest_chunk = LIMIT / 4;
        let mut last = [0; 3];
        wait_until("the sum is within the limit", || {
            let profile = read_family();
            let of = |process| {
                let read = process_of(&profile, process).expect("its profile");
                chunk_bytes(&read, process)
            };
            let own = std::process::id() as i32;
            last = [chunk_bytes(&profile, own), of(child.id()), of(grandchild)];
            last.iter().sum::<u64>() <= LIMIT + largest_chunk
        });
        assert!(last.iter().sum::<u64>() > LIMIT / 4, "{last:?}");
        assert!(last.iter().all(|&bytes| bytes > 0), "{last:?}");
        child.kill();
    });
}
