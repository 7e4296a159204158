//! What an application tells the profiler about its process: its name, its pages, and the profiles
//! of its children.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::common::{Read, isolated, libtest_name, mark, wait_until, work_for_cpu};
use gekkota::process::{
    ExitProfileError, Page, profiler_clear_all_pages, profiler_env_vars_for_child_process,
    profiler_received_exit_profile, profiler_register_page, profiler_set_process_name,
    profiler_set_process_type, profiler_set_version, profiler_unregister_page,
};
use gekkota::profile::Format;
use gekkota::{
    ProfilerSession, StartParams, profiler_get_profile, profiler_init, profiler_pause,
    profiler_save_profile_to_file, profiler_shutdown, profiler_start, profiler_stop,
    register_thread,
};
use serde_json::json;

/// Set in the child process.
const ROLE: &str = "GEKKOTA_TEST_ROLE";

fn start() {
    profiler_start(StartParams::default().capacity_bytes(1 << 18)).expect("start");
}

/// Returns the URLs of the pages in the profile.
fn urls() -> Vec<String> {
    let read = Read::of_running();
    let pages = read.0["pages"].as_array().expect("pages");
    pages
        .iter()
        .map(|page| page["url"].as_str().expect("a URL").to_owned())
        .collect()
}

/// Adds markers, which push the oldest data out of the buffer, until the condition holds.
fn fill_buffer_until(what: &str, condition: impl Fn() -> bool) {
    wait_until(what, || {
        (0..10_000).for_each(|_| mark("to fill it up"));
        condition()
    });
}

#[test]
fn unregistered_page_stays_while_the_buffer_may_refer_to_it() {
    isolated(|| {
        register_thread("caller");
        // Before the profiler is initialized.
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
            "its markers may still be in the buffer"
        );
        fill_buffer_until("the unregistered page is dropped", || {
            urls() == ["https://example.org/\"2\""]
        });
        profiler_register_page(Page::new(3, "unregistered before the session ends"));
        profiler_unregister_page(3);
        start();
        assert_eq!(
            urls(),
            ["https://example.org/\"2\""],
            "a new session has the registered pages"
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
fn process_name_is_that_set_by_the_application() {
    isolated(|| {
        register_thread("caller");
        start();
        let names = || {
            let read = Read::of_running();
            let thread = read.thread("caller").clone();
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

#[test]
fn process_type_is_in_the_profile_and_in_the_name_of_its_file() {
    isolated(|| {
        register_thread("caller");
        let params = StartParams::default().capacity_bytes(1 << 18);
        let session = ProfilerSession::start(params).expect("start");
        let of_gecko = || {
            let read = Read::of_running();
            let thread = read.thread("caller")["processType"].clone();
            (thread, read.0["meta"]["processType"].clone())
        };
        let of_processed = || {
            let mut text = Vec::new();
            let profile = session.snapshot().expect("a session");
            profile
                .write(Format::Processed, &mut text)
                .expect("a vector");
            let read: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
            read["threads"][0]["processType"].clone()
        };
        assert_eq!(of_gecko(), (json!("default"), json!(0)));
        assert_eq!(of_processed(), json!("default"));
        profiler_set_process_type("gpu");
        assert_eq!(of_gecko(), (json!("gpu"), json!(5)));
        profiler_set_process_type("my worker");
        assert_eq!(of_gecko(), (json!("my worker"), json!(0)));
        assert_eq!(of_processed(), json!("my worker"));
        profiler_set_process_name("number/1", None);
        let folder = std::env::temp_dir().join(format!("gekkota-type-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        profiler_save_profile_to_file(folder.join("%t-%n-%p.json")).expect("a file");
        let name = format!("my_worker-number_1-{}.json", std::process::id());
        assert!(folder.join(&name).exists(), "{name}");
        std::fs::remove_dir_all(&folder).expect("the folder");
        profiler_set_process_type("");
        assert_eq!(of_gecko(), (json!("default"), json!(0)));
        drop(session);
    });
}

/// Returns the value of an entry that the viewer adds to its information about the profile.
fn extra(read: &Read, section: &str, label: &str) -> Option<serde_json::Value> {
    let sections = read.0["meta"]["extra"].as_array().expect("sections");
    let section = sections.iter().find(|known| known["label"] == section)?;
    let mut entries = section["entries"].as_array().expect("entries").iter();
    let entry = entries.find(|entry| entry["label"] == label)?;
    Some(entry["value"].clone())
}

#[test]
fn profile_has_the_version_and_build_of_the_program() {
    isolated(|| {
        // Before the profiler is initialized.
        profiler_set_version("1.20.3-rc.1");
        start();
        let version = |read: &Read| {
            let version = extra(read, "Program", "Version");
            (read.0["meta"]["misc"].clone(), version)
        };
        let read = Read::of_running();
        let expected = (json!("rv:1.20.3"), Some(json!("1.20.3-rc.1")));
        assert_eq!(version(&read), expected);
        let executable = std::env::current_exe().expect("an executable");
        let libs = read.0["libs"].as_array().expect("libs");
        let is_own = |lib: &&serde_json::Value| lib["path"] == executable.to_str().expect("UTF-8");
        let own = libs.iter().find(is_own).expect("the executable");
        assert!(own["codeId"].is_string(), "{own}");
        assert_eq!(read.0["meta"]["appBuildID"], own["codeId"]);
        for without_number in ["nightly", ""] {
            profiler_set_version(without_number);
            let text = (!without_number.is_empty()).then(|| json!(without_number));
            assert_eq!(version(&Read::of_running()), (json!(""), text));
        }
        profiler_set_version("2.0");
        profiler_shutdown();
        start();
        assert_eq!(version(&Read::of_running()), (json!(""), None));
    });
}

#[test]
fn profile_has_the_overhead_of_the_profiler() {
    isolated(|| {
        start();
        let cpu_ms = || {
            let read = Read::of_running();
            let value = |label| extra(&read, "Profiler", label).expect("an entry");
            let number = |label| value(label).as_f64().expect("a number");
            assert!(number("Ticks") >= 0.0 && number("Memory of the buffer") > 0.0);
            assert!(number("Missed ticks") == read.count("missed_ticks") as f64);
            let session_ms = ["profilingStartTime", "profilingEndTime"]
                .map(|key| read.0["meta"][key].as_f64().expect("a time"));
            let cpu_ms = number("CPU time of the sampler");
            let share = cpu_ms / (session_ms[1] - session_ms[0]);
            assert!((number("Share of one processor") - share).abs() < 1e-3);
            let stopped_ns = (number("Time in which threads were stopped") * 1e6).round();
            assert_eq!(stopped_ns, read.count("stopped_ns") as f64);
            let line = value("Cost");
            let line = line.as_str().expect("a text");
            assert!(
                line.starts_with(&format!("{cpu_ms:.1} ms of CPU time")),
                "{line}"
            );
            let statistics = read.0["profilerOverhead"]["statistics"].clone();
            (cpu_ms, statistics["overheadPercentage"].as_f64())
        };
        wait_until("the sampler has used CPU time", || {
            let (cpu_ms, percentage) = cpu_ms();
            // A fraction: the viewer multiplies it.
            cpu_ms > 0.0 && percentage.is_some_and(|fraction| fraction > 0.0)
        });
    });
}

/// Runs in a child process, with the environment variables that its parent passes.
#[test]
#[ignore = "runs only as a child of another test"]
fn role_of_the_child() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    profiler_init();
    register_thread("child's thread");
    profiler_set_process_name("Child", None);
    mark("in the child");
    wait_until("the child's thread has samples", || {
        work_for_cpu(Duration::from_millis(5));
        Read::of_running().samples("child's thread").len() > 20
    });
    profiler_shutdown();
}

fn run_child(folder: &Path) -> String {
    let file = folder.join("child.json");
    let status = Command::new(std::env::current_exe().expect("this test"))
        .args([
            "--exact",
            "--include-ignored",
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
fn childs_profile_is_part_of_its_parents() {
    isolated(|| {
        register_thread("caller");
        let folder: PathBuf =
            std::env::temp_dir().join(format!("gekkota-process-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        // An exit profile may take a quarter of the capacity.
        profiler_start(StartParams::default().capacity_bytes(1 << 20)).expect("start");
        let child = run_child(&folder);
        profiler_received_exit_profile(child).expect("a profile");
        // For a developer who wants to open the profile in Firefox Profiler.
        if let Some(path) = std::env::var_os("GEKKOTA_TEST_KEEP") {
            std::fs::write(path, profiler_get_profile().expect("active")).expect("kept");
        }
        let read = Read::of_running();
        let processes = read.0["processes"].as_array().expect("processes");
        assert_eq!(processes.len(), 1);
        assert_eq!(read.logged_events(), ["exit profile received"]);
        let child = Read(processes[0].clone());
        assert_eq!(child.thread("child's thread")["processName"], "Child");
        assert_eq!(child.markers("child's thread").len(), 1);
        assert!(child.samples("child's thread").len() > 20);
        assert_ne!(
            child.thread("child's thread")["pid"],
            read.thread("caller")["pid"]
        );
        let processes = || Read::of_running().0["processes"].as_array().map(Vec::len);
        fill_buffer_until("the child's profile is dropped", || processes() == Some(0));
        profiler_stop();
        std::fs::remove_dir_all(&folder).expect("the folder is removed");
    });
}

fn loss(read: &Read, name: &str) -> u64 {
    let losses = &read.0["meta"]["losses"];
    losses[name]
        .as_u64()
        .unwrap_or_else(|| panic!("no {name} in {losses}"))
}

/// Returns the profile of a child process, of about `bytes` bytes, with this number.
fn numbered_profile(number: u64, bytes: usize) -> String {
    let filler = "x".repeat(bytes);
    format!(r#"{{"meta": {{"number": {number}, "filler": "{filler}"}}, "threads": []}}"#)
}

/// Returns the numbers of the child processes' profiles.
fn numbers_of_children(read: &Read) -> Vec<u64> {
    let processes = read.0["processes"].as_array().expect("processes");
    processes
        .iter()
        .map(|process| process["meta"]["number"].as_u64().expect("a number"))
        .collect()
}

#[test]
fn exit_profiles_beyond_their_share_are_dropped_and_counted() {
    const PROFILES: u64 = 100;
    isolated(|| {
        register_thread("caller");
        // All exit profiles may take 64 KiB.
        start();
        // Otherwise samples may fill the buffer, and profiles that are older than its data expire
        // without being counted.
        gekkota::profiler_pause_sampling();
        for number in 0..PROFILES {
            profiler_received_exit_profile(numbered_profile(number, 4096)).expect("a profile");
        }
        let read = Read::of_running();
        let kept = numbers_of_children(&read);
        assert_eq!(kept, (PROFILES - 15..PROFILES).collect::<Vec<_>>());
        assert_eq!(loss(&read, "dropped_exit_profiles"), PROFILES - 15);
        let refused = profiler_received_exit_profile(numbered_profile(PROFILES, 65_536));
        assert!(
            matches!(
                refused,
                Err(ExitProfileError::TooLarge {
                    bytes: 65_537..66_000,
                    max_bytes: 65_536
                })
            ),
            "{refused:?}"
        );
        assert_eq!(numbers_of_children(&Read::of_running()), kept);
        profiler_stop();
    });
}

#[test]
fn exit_profiles_and_chunks_together_stay_within_the_capacity() {
    isolated(|| {
        register_thread("caller");
        start();
        fill_buffer_until("the buffer has been full", || {
            loss(&Read::of_running(), "recycled_chunks") > 0
        });
        profiler_pause();
        (0..14).for_each(|number| {
            profiler_received_exit_profile(numbered_profile(number, 4096)).expect("a profile");
        });
        // The sampler discards chunks once a second, also during a pause.
        wait_until("chunks were discarded for the exit profiles", || {
            let read = Read::of_running();
            assert_eq!(numbers_of_children(&read).len(), 14);
            let log = &read.0["profilingLog"][std::process::id().to_string()]["buffer"];
            let bytes = |name: &str| log[name].as_u64().expect(name);
            let kept = bytes("kept_bytes");
            assert!((56 << 10..64 << 10).contains(&kept), "{kept}");
            kept + bytes("unreleased_chunk_bytes") + bytes("released_chunk_bytes") <= 1 << 18
        });
        profiler_stop();
    });
}

#[test]
fn exit_profile_older_than_the_duration_is_dropped() {
    isolated(|| {
        register_thread("caller");
        let params = StartParams::default().duration(Duration::from_millis(200));
        profiler_start(params).expect("start");
        profiler_received_exit_profile(numbered_profile(7, 10)).expect("a profile");
        // The test records nothing that could push the profile out of the buffer.
        wait_until("the exit profile is too old", || {
            numbers_of_children(&Read::of_running()).is_empty()
        });
        let read = Read::of_running();
        assert_eq!(loss(&read, "dropped_exit_profiles"), 0);
        profiler_stop();
    });
}

#[test]
fn unregistered_pages_beyond_their_share_are_dropped_and_counted() {
    const PAGES: u64 = 1000;
    isolated(|| {
        register_thread("caller");
        // All unregistered pages may take 16 KiB.
        start();
        // Pages that are older than the buffer's data expire without being counted.
        gekkota::profiler_pause_sampling();
        profiler_register_page(Page::new(PAGES + 1, "registered"));
        for id in 1..=PAGES {
            profiler_register_page(Page::new(id, format!("page {id}")));
            profiler_unregister_page(id);
        }
        let read = Read::of_running();
        let pages = read.0["pages"].as_array().expect("pages").iter();
        let ids: Vec<_> = pages
            .map(|page| page["innerWindowID"].as_u64().expect("an id"))
            .collect();
        assert_eq!(ids[0], PAGES + 1);
        let dropped = loss(&read, "dropped_ended_pages");
        assert!(dropped > PAGES / 2 && dropped < PAGES, "{dropped}");
        assert_eq!(ids[1..], (dropped + 1..=PAGES).collect::<Vec<_>>());
        profiler_stop();
    });
}

#[test]
fn received_text_that_is_no_profile_is_refused() {
    isolated(|| {
        register_thread("caller");
        let profile = r#"{"meta": {}, "threads": []}"#;
        assert_eq!(
            profiler_received_exit_profile(profile),
            Err(ExitProfileError::Inactive)
        );
        // Without a session, the text is not read.
        assert_eq!(
            profiler_received_exit_profile("no profile"),
            Err(ExitProfileError::Inactive)
        );
        start();
        let refused = profiler_received_exit_profile(&profile[..20]).expect_err("the text is cut");
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
