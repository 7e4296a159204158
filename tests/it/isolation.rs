//! The helper that runs a test in a process of its own.

use crate::common::isolated;

#[test]
fn each_test_has_its_own_process() {
    let parent = std::process::id();
    let is_child = std::env::var_os("GEKKOTA_TEST_ISOLATED").is_some();
    isolated(|| {
        assert!(is_child, "the parent {parent} runs no body");
        // SAFETY: nothing else runs in this process.
        unsafe { std::env::set_var("GEKKOTA_TEST_OF_ONE", "set") };
    });
    assert_eq!(std::env::var_os("GEKKOTA_TEST_OF_ONE").is_some(), is_child);
}

#[test]
#[should_panic(expected = "in the child, on purpose")]
fn a_panic_of_the_body_is_one_of_the_test() {
    isolated(|| panic!("in the child, on purpose"));
}

#[test]
#[should_panic(expected = "isolation::a_signal_that_kills_is_named was killed by SIGKILL")]
fn a_signal_that_kills_is_named() {
    isolated(|| {
        // SAFETY: touches no memory.
        unsafe { libc::raise(libc::SIGKILL) };
    });
}

#[test]
#[should_panic(expected = "did not run to its end")]
fn an_early_end_is_no_success() {
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
