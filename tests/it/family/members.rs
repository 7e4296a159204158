//! Children follow the session of their parent.

use std::time::Duration;

use gekkota::process::profiler_wait_for_sampling_of_children;

use crate::common::{LONGEST_WAIT, isolated, wait_until};
use crate::family::roles::{
    Member, marks_of, process_of, read_family, spawn_member, start_family, start_family_with,
    state, wait_for_children,
};

fn wait_for_state(member: &mut Member, expected: &str) {
    let mut last = String::new();
    wait_until("the child follows", || {
        last = member.ask("state");
        last == expected
    });
}

#[test]
fn child_follows_starts_stops_and_pauses() {
    isolated(|| {
        gekkota::profiler_init();
        start_family_with(|params| {
            let filters = ["member", "main"];
            params.interval(Duration::from_millis(3)).filters(filters)
        });
        let mut child = spawn_member(1);
        assert_eq!(child.ask("state"), state());
        // The variables have started it, and the parent has not started it again.
        assert_eq!(child.ask("starts"), "1");
        gekkota::profiler_pause();
        wait_for_state(&mut child, &state());
        gekkota::profiler_resume();
        wait_for_state(&mut child, &state());
        gekkota::profiler_pause_sampling();
        wait_for_state(&mut child, &state());
        gekkota::profiler_resume_sampling();
        wait_for_state(&mut child, &state());
        gekkota::profiler_stop();
        wait_for_state(&mut child, "inactive");
        let params = gekkota::StartParams::default().children(true);
        let started = gekkota::profiler_start(params).expect("start");
        assert_eq!(started.wait_for_children(LONGEST_WAIT), 1);
        assert_eq!(child.ask("state"), state());
        assert_eq!(child.ask("starts"), "2");
        // A session without children.
        gekkota::profiler_start(gekkota::StartParams::default()).expect("start");
        wait_for_state(&mut child, "inactive");
        child.kill();
    });
}

#[test]
fn child_that_joins_late_gets_the_state_and_the_pauses() {
    isolated(|| {
        gekkota::profiler_init();
        start_family();
        gekkota::profiler_pause();
        gekkota::profiler_pause_sampling();
        let mut child = spawn_member(1);
        wait_for_state(&mut child, &state());
        gekkota::profiler_resume();
        wait_for_state(&mut child, &state());
        child.kill();
        // One that joins while no session runs.
        gekkota::profiler_stop();
        let mut child = Member::spawn();
        assert_eq!(child.ask("state"), "inactive");
        start_family();
        wait_for_children(1);
        assert_eq!(child.ask("state"), state());
        child.kill();
    });
}

#[test]
fn child_that_the_filters_exclude_does_not_record() {
    isolated(|| {
        gekkota::profiler_init();
        let own = format!("pid:{}", std::process::id());
        start_family_with(|params| params.filters([own]));
        let mut child = Member::spawn();
        wait_for_state(&mut child, "inactive");
        let profile = read_family();
        assert!(process_of(&profile, child.id()).is_none());
        child.kill();
    });
}

#[test]
fn pages_are_cleared_in_children_and_each_child_has_its_own_markers() {
    isolated(|| {
        gekkota::profiler_init();
        start_family();
        let mut children = [spawn_member(1), spawn_member(2), spawn_member(3)];
        for (number, child) in children.iter_mut().enumerate() {
            child.ask(&format!("mark m{number}"));
        }
        gekkota::process::profiler_clear_all_pages();
        let profile = read_family();
        for (number, child) in children.into_iter().enumerate() {
            assert_eq!(marks_of(&profile, child.id()), [format!("m{number}")]);
            child.kill();
        }
    });
}

#[test]
fn session_of_a_child_goes_on_until_the_parent_starts_one() {
    isolated(|| {
        gekkota::profiler_init();
        start_family();
        gekkota::profiler_stop();
        let mut child = Member::spawn_with_session();
        assert_ne!(child.ask("state"), "inactive");
        start_family();
        wait_for_children(1);
        assert_eq!(child.ask("state"), state());
        // The child has joined, and followed the parent's orders in turn.
        assert_eq!(child.ask("stops"), "0");
        gekkota::profiler_stop();
        wait_for_state(&mut child, "inactive");
        assert_eq!(child.ask("stops"), "1");
        child.kill();
    });
}

#[test]
fn samplers_of_all_children_that_run_are_waited_for() {
    isolated(|| {
        gekkota::profiler_init();
        assert_eq!(profiler_wait_for_sampling_of_children(LONGEST_WAIT), 0);
        start_family();
        assert_eq!(profiler_wait_for_sampling_of_children(LONGEST_WAIT), 0);
        let (one, other) = (spawn_member(1), spawn_member(2));
        assert_eq!(profiler_wait_for_sampling_of_children(LONGEST_WAIT), 2);
        gekkota::profiler_pause_sampling();
        assert_eq!(profiler_wait_for_sampling_of_children(LONGEST_WAIT), 2);
        gekkota::profiler_resume_sampling();
        other.signal(libc::SIGSTOP);
        wait_until("only one child answers", || {
            profiler_wait_for_sampling_of_children(Duration::from_millis(100)) == 1
        });
        other.signal(libc::SIGCONT);
        assert_eq!(profiler_wait_for_sampling_of_children(LONGEST_WAIT), 2);
        one.kill();
        other.kill();
        wait_for_children(0);
        assert_eq!(profiler_wait_for_sampling_of_children(LONGEST_WAIT), 0);
    });
}
