//! The profiles of running children, while some of them do not answer.

use std::time::Duration;

use gekkota::profile::{Format, SnapshotOptions};
use gekkota::{Profile, ProfilerSession, ProfilerTime, StartParams};
use serde_json::Value;

use crate::common::sleepers::{SLEEPERS, SleeperTracks, thread_names_in};
use crate::common::{LONGEST_WAIT, Read, isolated, wait_until};
use crate::family::roles::{
    Member, gathering_events, marks_of, process_of, read_family, read_with, spawn_member,
    start_family, wait_for_children, wait_for_event,
};

#[test]
fn stopped_child_is_left_out_and_named_and_comes_back() {
    isolated(|| {
        gekkota::profiler_init();
        start_family();
        let (mut one, mut other) = (spawn_member(1), spawn_member(2));
        one.ask("mark m1");
        other.ask("name the frozen one");
        other.ask("mark m2");
        wait_until("the parent knows the name", || {
            let events = gathering_events(&read_family());
            events.iter().any(|event| event.contains("the frozen one"))
        });
        other.signal(libc::SIGSTOP);
        let options = SnapshotOptions::default().child_timeout(Duration::from_secs(3));
        let profile = read_with(options);
        assert_eq!(marks_of(&profile, one.id()), ["m1"]);
        assert!(process_of(&profile, other.id()).is_none());
        let left_out = format!(
            "process {} (the frozen one): left out, because it has not answered for 3s",
            other.id()
        );
        let events = gathering_events(&profile);
        assert!(events.contains(&left_out), "{events:?}");
        other.signal(libc::SIGCONT);
        wait_for_children(2);
        // What it sends late does not disturb the next one.
        let profile = read_family();
        assert_eq!(marks_of(&profile, one.id()), ["m1"]);
        assert_eq!(marks_of(&profile, other.id()), ["m2"]);
        one.kill();
        other.kill();
    });
}

#[test]
fn child_whose_thread_is_stuck_is_gathered() {
    isolated(|| {
        gekkota::profiler_init();
        start_family();
        let mut child = spawn_member(1);
        child.ask("mark m");
        child.order("stuck");
        assert_eq!(marks_of(&read_family(), child.id()), ["m"]);
        child.kill();
    });
}

#[test]
fn start_of_the_data_holds_for_children() {
    isolated(|| {
        gekkota::profiler_init();
        start_family();
        let mut child = spawn_member(1);
        child.ask("mark m1");
        let since = ProfilerTime::now();
        child.ask("mark m2");
        let options = SnapshotOptions::default()
            .since(since)
            .child_timeout(LONGEST_WAIT);
        let profile = read_with(options);
        assert_eq!(marks_of(&profile, child.id()), ["m2"]);
        child.kill();
    });
}

#[test]
fn profile_that_is_written_twice_gathers_twice() {
    isolated(|| {
        gekkota::profiler_init();
        start_family();
        let mut child = spawn_member(1);
        child.ask("mark m1");
        let params = gekkota::profiler_get_start_params().expect("active");
        assert!(params.children);
        let session = ProfilerSession::start(params).expect("start");
        wait_for_children(1);
        child.ask("mark m2");
        let profile = session.finish().expect("a profile");
        // The session has ended, and the child holds its snapshot.
        for _ in 0..2 {
            assert_eq!(marks_of(&Read::from_profile(&profile), child.id()), ["m2"]);
        }
        child.kill();
    });
}

/// Starts a session with a child that has sleepers, and waits until the file shows them as one track.
fn start_with_sleeping_child() -> (ProfilerSession, Member) {
    gekkota::profiler_init();
    start_family();
    let mut child = spawn_member(1);
    child.ask("sleepers");
    let params = StartParams::default().children(true);
    // The sleepers are there when the session starts.
    let session = ProfilerSession::start(params).expect("start");
    wait_for_children(1);
    wait_until("the file shows the child's sleepers as one track", || {
        let process = process_of(&read_family(), child.id());
        let merged =
            |process: Read| SleeperTracks::of(thread_names_in(&process.0["threads"])).is_merged();
        process.is_some_and(merged)
    });
    (session, child)
}

/// Checks that the viewer's file shows the sleepers as one track, and a report all of them.
fn check_sleepers(profile: &Profile) {
    let write = |format| {
        let mut file = Vec::new();
        profile
            .write(format, &mut file)
            .expect("a vector never fails");
        file
    };
    let processed: Value = serde_json::from_slice(&write(Format::Processed)).expect("JSON");
    let tracks = SleeperTracks::of(thread_names_in(&processed["threads"]));
    assert!(tracks.is_merged(), "{tracks:?}");
    let stacks = String::from_utf8(write(Format::Stacks)).expect("text");
    let heads = stacks.lines().filter(|line| line.starts_with("thread "));
    let names = heads.filter_map(|head| head.split('"').nth(1));
    let all = SleeperTracks {
        shared: Vec::new(),
        own: SLEEPERS,
    };
    assert_eq!(SleeperTracks::of(names), all);
}

#[test]
fn reports_have_all_threads_of_a_child_that_sleep_alike() {
    isolated(|| {
        let (session, child) = start_with_sleeping_child();
        // The child holds its snapshot for each format.
        check_sleepers(&session.finish().expect("a profile"));
        child.kill();
    });
}

#[test]
fn reports_have_all_threads_of_a_killed_child_that_sleep_alike() {
    isolated(|| {
        let (session, child) = start_with_sleeping_child();
        child.kill();
        wait_for_event("a child process has ended without sending its profile, which was rescued");
        check_sleepers(&session.finish().expect("a profile"));
    });
}

#[test]
fn many_profiles_at_the_same_time_have_all_children() {
    isolated(|| {
        gekkota::profiler_init();
        start_family();
        let mut children = [spawn_member(1), spawn_member(2)];
        children
            .iter_mut()
            .for_each(|child| drop(child.ask("mark m")));
        let ids = [children[0].id(), children[1].id()];
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let profile = read_family();
                    for id in ids {
                        assert_eq!(
                            marks_of(&profile, id),
                            ["m"],
                            "{:?}",
                            gathering_events(&profile)
                        );
                    }
                });
            }
        });
        children.into_iter().for_each(Member::kill);
    });
}
