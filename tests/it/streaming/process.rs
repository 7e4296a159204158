//! What a host says of its process: its name, its pages, and the profiles of its children.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::common::{Read, isolated, libtest_name, mark, wait_until, work_for_cpu};
use gekkota::process::{
    ExitProfileError, Page, profiler_clear_all_pages, profiler_env_vars_for_child_process,
    profiler_received_exit_profile, profiler_register_page, profiler_set_process_name,
    profiler_unregister_page,
};
use gekkota::{
    StartParams, profiler_get_profile, profiler_init, profiler_shutdown, profiler_start,
    profiler_stop, register_thread,
};

/// Set in the child: what it is to do.
const ROLE: &str = "GEKKOTA_TEST_ROLE";

fn start() {
    profiler_start(StartParams::default().capacity_bytes(1 << 18)).expect("start");
}

/// The urls of the pages in the profile.
fn urls() -> Vec<String> {
    let read = Read::of_running();
    let pages = read.0["pages"].as_array().expect("pages");
    pages
        .iter()
        .map(|page| page["url"].as_str().expect("an url").to_owned())
        .collect()
}

/// Fills the buffer, round and round, until it reaches back no more to what was before, and so nothing is known of it.
fn go_round_until(what: &str, is_so: impl Fn() -> bool) {
    wait_until(what, || {
        (0..10_000).for_each(|_| mark("to fill it up"));
        is_so()
    });
}

#[test]
fn pages_are_known_while_the_buffer_speaks_of_them() {
    isolated(|| {
        register_thread("says");
        // Before anything else.
        profiler_register_page(Page::new(1, "before"));
        profiler_unregister_page(17);
        start();
        let page = Page::new(2, "https://example.org/\"2\"")
            .tab_id(5)
            .embedder(1)
            .private_browsing(true);
        profiler_register_page(page.clone());
        profiler_register_page(page);
        let read = Read::of_running();
        assert_eq!(
            read.0["pages"],
            serde_json::json!([
                { "tabID": 0, "innerWindowID": 1, "url": "before", "embedderInnerWindowID": 0, "isPrivateBrowsing": false },
                { "tabID": 5, "innerWindowID": 2, "url": "https://example.org/\"2\"", "embedderInnerWindowID": 1,
                  "isPrivateBrowsing": true },
            ])
        );
        profiler_register_page(Page::new(1, "navigated"));
        assert_eq!(urls(), ["navigated", "https://example.org/\"2\""]);
        profiler_unregister_page(1);
        assert_eq!(
            urls(),
            ["https://example.org/\"2\"", "navigated"],
            "its markers may be there"
        );
        go_round_until("a page that is gone is forgotten", || {
            urls() == ["https://example.org/\"2\""]
        });
        profiler_register_page(Page::new(3, "gone when the session ends"));
        profiler_unregister_page(3);
        start();
        assert_eq!(
            urls(),
            ["https://example.org/\"2\""],
            "a new session knows those that are there"
        );
        profiler_unregister_page(2);
        profiler_clear_all_pages();
        assert!(urls().is_empty());
        profiler_stop();
        profiler_register_page(Page::new(4, "until the shutdown"));
        profiler_shutdown();
        profiler_unregister_page(4);
        start();
        assert!(urls().is_empty());
        profiler_stop();
    });
}

#[test]
fn the_process_has_the_name_that_it_is_given() {
    isolated(|| {
        register_thread("says");
        start();
        let names = || {
            let read = Read::of_running();
            let thread = read.thread("says").clone();
            let name = |key: &str| thread[key].as_str().map(str::to_owned);
            (
                name("processName"),
                name("eTLD+1"),
                read.0["meta"]["product"].clone(),
            )
        };
        let executable = std::env::current_exe().expect("an executable");
        let executable = executable
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let product = serde_json::json!(executable);
        assert_eq!(names(), (executable.clone(), None, product.clone()));
        profiler_set_process_name("Web Content", Some("example.org"));
        assert_eq!(
            names(),
            (
                Some("Web Content".into()),
                Some("example.org".into()),
                product.clone()
            )
        );
        profiler_set_process_name("Idle", None);
        assert_eq!(names(), (Some("Idle".into()), None, product.clone()));
        profiler_shutdown();
        start();
        assert_eq!(names(), (executable, None, product));
        profiler_shutdown();
    });
}

/// In a process of its own, under the variables that its parent gave it.
#[test]
fn role_of_the_child() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    profiler_init();
    register_thread("child's thread");
    profiler_set_process_name("Child", None);
    mark("in the child");
    work_for_cpu(Duration::from_millis(50));
    profiler_shutdown();
}

fn run_child(folder: &Path) -> String {
    let file = folder.join("child.json");
    let status = Command::new(std::env::current_exe().expect("this test"))
        .args([
            "--exact",
            libtest_name(std::any::type_name_of_val(&role_of_the_child)),
        ])
        .env(ROLE, "child")
        .envs(profiler_env_vars_for_child_process())
        .env("MOZ_PROFILER_SHUTDOWN", &file)
        .output()
        .expect("the child");
    assert!(
        status.status.success(),
        "{}",
        String::from_utf8_lossy(&status.stderr)
    );
    std::fs::read_to_string(file).expect("the child's profile")
}

#[test]
fn a_childs_profile_stands_in_its_parents() {
    isolated(|| {
        register_thread("says");
        let folder: PathBuf =
            std::env::temp_dir().join(format!("gekkota-process-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        start();
        let child = run_child(&folder);
        profiler_received_exit_profile(child).expect("a profile");
        // As somebody who wants to look at it in the real viewer asks.
        if let Some(path) = std::env::var_os("GEKKOTA_TEST_KEEP") {
            std::fs::write(path, profiler_get_profile().expect("active")).expect("kept");
        }
        let read = Read::of_running();
        let processes = read.0["processes"].as_array().expect("processes");
        assert_eq!(processes.len(), 1);
        let child = Read(processes[0].clone());
        assert_eq!(child.thread("child's thread")["processName"], "Child");
        assert_eq!(child.markers("child's thread").len(), 1);
        assert!(child.samples("child's thread").len() > 20);
        assert_ne!(
            child.thread("child's thread")["pid"],
            read.thread("says")["pid"]
        );
        let processes = || Read::of_running().0["processes"].as_array().map(Vec::len);
        go_round_until("a child's profile is dropped", || processes() == Some(0));
        profiler_stop();
        std::fs::remove_dir_all(&folder).expect("the folder is ours");
    });
}

#[test]
fn what_is_no_profile_is_refused() {
    isolated(|| {
        register_thread("says");
        let profile = r#"{"meta": {}, "threads": []}"#;
        assert_eq!(
            profiler_received_exit_profile(profile),
            Err(ExitProfileError::Inactive)
        );
        start();
        let refused = profiler_received_exit_profile(&profile[..20]).expect_err("it is cut");
        assert!(
            matches!(refused, ExitProfileError::NotJson(_))
                && refused.to_string().contains("line 1")
        );
        let refused = profiler_received_exit_profile(r#"{"meta": {}}"#);
        assert_eq!(
            refused,
            Err(ExitProfileError::NotAProfile { lacks: "threads" })
        );
        assert_eq!(
            Read::of_running().0["processes"].as_array().map(Vec::len),
            Some(0)
        );
        profiler_stop();
    });
}
