//! Dumps of the last seconds: their causes, their files, and how rare they are.

mod explained;
#[cfg(feature = "tracing")]
mod suspended;
mod triggers;

use std::path::{Path, PathBuf};
use std::time::Duration;

use gekkota::dump::{DumpError, DumpSettings, profiler_dump, profiler_set_dumps};
use gekkota::{
    MarkerOptions, MarkerStack, MarkerTiming, Profile, ProfilerSession, ProfilerTime, StartParams,
    add_text_marker, add_untyped_marker, gecko_profiler_category, register_thread,
};

use crate::common::{LONGEST_WAIT, Read, in_forked_child, isolated, wait_until};

/// A new folder, which is removed when this is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("dumps-{}", std::process::id()));
        std::fs::create_dir(&path).expect("a new folder");
        Self(path)
    }

    /// Returns the dumps, by their names.
    fn dumps(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.0).expect("the folder");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        // A file that is being written has another name.
        let mut dumps: Vec<_> = paths
            .filter(|path| name(path).starts_with("dump_") && !name(path).ends_with(".txt"))
            .collect();
        dumps.sort();
        dumps
    }

    fn wait_for(&self, count: usize) -> Vec<PathBuf> {
        wait_until("the dumps are there", || self.dumps().len() >= count);
        self.dumps()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn name(path: &Path) -> &str {
    path.file_name()
        .and_then(|name| name.to_str())
        .expect("a name")
}

fn read(path: &Path) -> Read {
    Read::of_file(&Profile::read(path).expect("a profile"))
}

fn texts(read: &Read, thread: &str, marker: &str) -> Vec<String> {
    let markers = read.markers(thread).into_iter();
    let named = markers.filter(|(name, ..)| name == marker);
    named
        .map(|(.., data)| data["name"].as_str().expect("a text").to_owned())
        .collect()
}

fn settings(folder: &Folder) -> DumpSettings {
    DumpSettings::in_folder(&folder.0).min_interval(Duration::ZERO)
}

fn start() -> ProfilerSession {
    let session = ProfilerSession::start(StartParams::default()).expect("starts");
    register_thread("test");
    session
}

/// Asks for a dump until no other one is being written, and waits for the file.
fn dumped(last: Duration, reason: &str) -> PathBuf {
    let mut dump = None;
    wait_until("the dump is accepted", || {
        match profiler_dump(last, reason) {
            Ok(accepted) => dump = Some(accepted),
            Err(DumpError::Busy) => {}
            Err(error) => panic!("{error}"),
        }
        dump.is_some()
    });
    let dump = dump.expect("accepted");
    assert!(dump.wait(LONGEST_WAIT), "{dump:?}");
    dump.path().to_owned()
}

#[test]
fn dump_has_the_last_seconds_and_its_reason() {
    isolated(|| {
        let folder = Folder::new();
        let inactive = profiler_dump(Duration::MAX, "nothing").expect_err("no session");
        assert_eq!(inactive, DumpError::Inactive);
        profiler_set_dumps(Some(settings(&folder))).expect("no limits");
        let session = start();
        let category = gecko_profiler_category!(Other);
        let add = |name| add_text_marker(name, category, MarkerTiming::instant_now().into(), name);
        add("Old");
        let path = dumped(Duration::from_secs(1000), "it is slow:\n/a?b=c");
        assert_eq!(folder.dumps(), std::slice::from_ref(&path));
        let all = name(&path);
        assert!(all.contains("Z_1_it-is-slow-a-b-c."), "{all}");
        assert!(
            all.starts_with(&format!("dump_{}_2", std::process::id())),
            "{all}"
        );
        let whole = read(&path);
        assert_eq!(texts(&whole, "test", "Dump"), ["it is slow:\\n/a?b=c"]);
        assert_eq!(texts(&whole, "test", "Old"), ["Old"]);
        // The session continues, and a shorter dump lacks the older markers.
        let between = ProfilerTime::now();
        add("New");
        let last = ProfilerTime::now().duration_since(between);
        let path = dumped(last, "it is slow:\n/a?b=c");
        let short = read(&path);
        assert!(texts(&short, "test", "Old").is_empty());
        assert_eq!(texts(&short, "test", "Dump"), ["it is slow:\\n/a?b=c"]);
        drop(session);
    });
}

#[test]
fn dumps_are_as_rare_and_as_few_as_the_settings_say() {
    isolated(|| {
        let folder = Folder::new();
        let hourly = DumpSettings::in_folder(&folder.0).min_interval(Duration::from_secs(3600));
        profiler_set_dumps(Some(hourly)).expect("no limits");
        let session = start();
        let last = Duration::from_secs(10);
        let first = dumped(last, "first");
        for _ in 0..3 {
            match profiler_dump(last, "too soon") {
                Err(DumpError::TooSoon { wait }) => assert!(wait <= Duration::from_secs(3600)),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(folder.dumps(), std::slice::from_ref(&first));
        // Other settings allow a dump at once, and keep the count.
        profiler_set_dumps(Some(settings(&folder).max_files(2))).expect("no limits");
        let second = dumped(last, "second");
        let reasons = texts(&read(&second), "test", "Dump");
        let newest = reasons.last().expect("a marker");
        assert!(newest.starts_with("second; "), "{newest}");
        assert!(newest.ends_with(" other causes were refused since the last dump"));
        assert_eq!(folder.dumps(), [first.clone(), second.clone()]);
        let third = dumped(last, "second");
        wait_until("the oldest is removed", || !first.exists());
        assert_eq!(folder.dumps(), [second, third]);
        drop(session);
    });
}

#[test]
fn limit_of_markers_leaves_out_no_interval_that_is_too_long() {
    isolated(|| {
        const LONG: usize = 100;
        let folder = Folder::new();
        let limit = Duration::from_millis(50);
        let once = DumpSettings::in_folder(&folder.0).min_interval(Duration::from_secs(3600));
        profiler_set_dumps(Some(once.on_interval_longer_than(limit))).expect("no limits");
        let params = StartParams::default().max_markers_per_second(1);
        let session = ProfilerSession::start(params).expect("starts");
        register_thread("test");
        let category = gecko_profiler_category!(Other);
        let now = ProfilerTime::now();
        let add = |name: &str, ms: f64, stack: MarkerStack| {
            let start = now.subtract_microseconds(ms * 1000.0);
            let timing = MarkerTiming::interval(start, now);
            let options = MarkerOptions {
                stack,
                ..timing.into()
            };
            add_untyped_marker(name, category, options);
        };
        for _ in 0..LONG {
            for stack in [MarkerStack::NoStack, MarkerStack::Full] {
                add("Short", 49.0, stack);
                add("Long", 51.0, stack);
            }
        }
        folder.wait_for(1);
        let read = Read::from_profile(&session.finish().expect("a profile"));
        let count = |name: &str| {
            let markers = read.markers("test").into_iter();
            markers.filter(|marker| marker.0 == name).count()
        };
        assert_eq!((count("Long"), count("Dump")), (2 * LONG, 1));
        assert!(count("Short") < LONG, "{}", count("Short"));
    });
}

#[test]
fn interval_that_is_too_long_causes_a_dump() {
    isolated(|| {
        let folder = Folder::new();
        let limit = Duration::from_millis(50);
        let settings = settings(&folder).on_interval_longer_than(limit);
        profiler_set_dumps(Some(settings)).expect("no limits");
        let session = start();
        let category = gecko_profiler_category!(Other);
        let now = ProfilerTime::now();
        let add = |name: &str, ms: f64| {
            let start = now.subtract_microseconds(ms * 1000.0);
            add_untyped_marker(name, category, MarkerTiming::interval(start, now).into());
        };
        add("Short", 49.0);
        add("Instant", 0.0);
        // The first dump is for this marker.
        add("Long", 51.0);
        let dumps = folder.wait_for(1);
        assert!(
            name(&dumps[0]).contains("Z_1_Long-took-0-051-s."),
            "{dumps:?}"
        );
        let read = read(&dumps[0]);
        let names: Vec<_> = read.markers("test").into_iter().map(|row| row.0).collect();
        assert!(names.contains(&"Long".to_owned()), "{names:?}");
        profiler_set_dumps(None).expect("no limits");
        add("Long", 51.0);
        profiler_set_dumps(Some(DumpSettings::in_folder(&folder.0))).expect("no limits");
        let next = dumped(Duration::from_secs(10), "by hand");
        assert!(
            name(&next).contains("Z_2_by-hand."),
            "no dump in between: {next:?}"
        );
        drop(session);
    });
}

#[test]
fn thread_that_panics_waits_for_its_dump() {
    isolated(|| {
        let folder = Folder::new();
        profiler_set_dumps(Some(settings(&folder).on_panic())).expect("no limits");
        let session = start();
        let worker = std::thread::spawn(|| {
            register_thread("worker");
            panic!("on purpose");
        });
        assert!(worker.join().is_err());
        let dumps = folder.wait_for(1);
        let reasons = texts(&read(&dumps[0]), "worker", "Dump");
        assert!(reasons[0].contains("dumps/mod.rs:"), "{reasons:?}");
        drop(session);
    });
}

#[test]
fn memory_above_its_limit_causes_one_dump_once_a_session_runs() {
    isolated(|| {
        let folder = Folder::new();
        let settings = settings(&folder).on_memory_above(1);
        profiler_set_dumps(Some(settings)).expect("a thread");
        // The limit is exceeded before the session begins.
        let session = start();
        let dumps = folder.wait_for(1);
        assert!(name(&dumps[0]).contains("MiB-in-memory"), "{dumps:?}");
        profiler_set_dumps(Some(DumpSettings::in_folder(&folder.0))).expect("no limits");
        let next = dumped(Duration::from_secs(10), "by hand");
        assert!(name(&next).contains("Z_2_by-hand."), "{next:?}");
        drop(session);
    });
}

#[test]
fn child_of_a_fork_dumps_on_its_own() {
    isolated(|| {
        let folder = Folder::new();
        let hourly = DumpSettings::in_folder(&folder.0).min_interval(Duration::from_secs(3600));
        profiler_set_dumps(Some(hourly)).expect("no limits");
        let session = start();
        let parents = dumped(Duration::from_secs(10), "in the parent");
        let childs = in_forked_child(|| {
            let inactive = profiler_dump(Duration::MAX, "none").expect_err("no session");
            assert_eq!(inactive, DumpError::Inactive);
            let session = start();
            let path = dumped(Duration::from_secs(10), "in the child");
            drop(session);
            let process = format!("dump_{}_", std::process::id());
            assert!(name(&path).starts_with(&process), "{path:?}");
            path.display().to_string()
        });
        assert_eq!(folder.dumps().len(), 2);
        assert!(parents.exists() && Path::new(&childs).exists());
        drop(session);
    });
}
