//! Tests of the helper that runs a test in a process of its own.

use crate::common::isolated;

#[test]
fn isolated_test_runs_in_its_own_process() {
    let parent = std::process::id();
    let is_child = std::env::var_os("GEKKOTA_TEST_ISOLATED").is_some();
    isolated(|| {
        assert!(is_child, "the body runs in the parent {parent}");
        // SAFETY: no other thread of this process uses the environment.
        unsafe { std::env::set_var("GEKKOTA_TEST_VARIABLE", "set") };
    });
    assert_eq!(
        std::env::var_os("GEKKOTA_TEST_VARIABLE").is_some(),
        is_child
    );
}

#[test]
#[should_panic(expected = "expected panic in the child")]
fn panic_of_the_body_fails_the_test() {
    isolated(|| panic!("expected panic in the child"));
}

#[test]
#[should_panic(expected = "isolation::killing_signal_is_named was killed by SIGKILL")]
fn killing_signal_is_named() {
    isolated(|| {
        // SAFETY: the call accesses no memory of the process.
        unsafe { libc::raise(libc::SIGKILL) };
    });
}

#[test]
#[should_panic(expected = "did not run to its end")]
fn early_exit_fails_the_test() {
    isolated(|| std::process::exit(0));
}

#[test]
fn variables_of_the_profiler_are_not_inherited() {
    isolated(|| {
        assert!(
            std::env::vars_os()
                .all(|(name, _)| !name.to_string_lossy().starts_with("MOZ_PROFILER_"))
        );
    });
}
