//! Dumps of the last seconds: their causes, their files, and how rare they are.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gekkota::dump::{DumpError, DumpSettings, profiler_dump, profiler_set_dumps};
use gekkota::{
    MarkerTiming, Profile, ProfilerSession, ProfilerTime, StartParams, add_text_marker,
    add_untyped_marker, gecko_profiler_category, register_thread,
};

use crate::common::{Read, isolated, one_loop, wait_until, work};

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
            .filter(|path| name(path).starts_with("dump_"))
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
    Read::from_profile(&Profile::read(path).expect("a profile"))
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

/// Asks for a dump until none is being written any more.
fn dump_when_possible(last: Duration, reason: &str) -> PathBuf {
    let mut path = None;
    wait_until("the dump is accepted", || {
        match profiler_dump(last, reason) {
            Ok(accepted) => path = Some(accepted),
            Err(DumpError::TooSoon { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        path.is_some()
    });
    path.expect("accepted")
}

#[test]
fn dump_has_the_last_seconds_and_its_reason() {
    isolated(|| {
        let folder = Folder::new();
        assert_eq!(
            profiler_dump(Duration::MAX, "nothing"),
            Err(DumpError::Inactive)
        );
        profiler_set_dumps(Some(settings(&folder))).expect("no limits");
        let session = start();
        let category = gecko_profiler_category!(Other);
        add_text_marker("Old", category, MarkerTiming::instant_now().into(), "old");
        let between = ProfilerTime::now();
        // Two loops of the sampler lie between the markers.
        (one_loop(), one_loop());
        work(1000);
        add_text_marker("New", category, MarkerTiming::instant_now().into(), "new");
        let last = ProfilerTime::now().duration_since(between);
        let path = dump_when_possible(Duration::from_secs(1000), "it is slow: /a?b=c");
        assert_eq!(folder.wait_for(1), [path.clone()]);
        let all = name(&path);
        assert!(all.contains("_it-is-slow-a-b-c."), "{all}");
        assert!(
            all.contains(&format!("dump_{}_2", std::process::id())),
            "{all}"
        );
        let whole = read(&path);
        assert_eq!(texts(&whole, "test", "Dump"), ["it is slow: /a?b=c"]);
        assert_eq!(texts(&whole, "test", "Old"), ["old"]);
        // The session goes on, and a shorter dump lacks what is older.
        let path = dump_when_possible(last / 2, "again");
        wait_until("the file is there", || path.exists());
        let short = read(&path);
        assert!(texts(&short, "test", "Old").is_empty());
        assert_eq!(texts(&short, "test", "Dump"), ["again"]);
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
        let first = profiler_dump(last, "first").expect("the first one");
        for _ in 0..3 {
            match profiler_dump(last, "too soon") {
                Err(DumpError::TooSoon { wait }) => assert!(wait <= Duration::from_secs(3600)),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(folder.wait_for(1), [first.clone()]);
        // Other settings allow a dump at once, and keep the count.
        profiler_set_dumps(Some(settings(&folder).max_files(2))).expect("no limits");
        for number in 1..=3 {
            let path = dump_when_possible(last, &format!("number {number}"));
            wait_until("the file is there", || path.exists());
            if number == 1 {
                let dump = read(&path);
                let reasons = texts(&dump, "test", "Dump");
                let newest = reasons.last().expect("a marker");
                assert!(newest.starts_with("number 1; "), "{newest}");
                assert!(newest.ends_with("other causes came too soon after the last dump"));
            }
        }
        wait_until("the oldest are removed", || folder.dumps().len() == 2);
        assert!(!first.exists());
        drop(session);
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
        assert!(folder.dumps().is_empty());
        add("Long", 51.0);
        let dumps = folder.wait_for(1);
        assert!(name(&dumps[0]).ends_with(if cfg!(feature = "gzip") {
            "_Long-took-0-051-s.json.gz"
        } else {
            "_Long-took-0-051-s.json"
        }));
        let read = read(&dumps[0]);
        let names: Vec<_> = read.markers("test").into_iter().map(|row| row.0).collect();
        assert!(names.contains(&"Long".to_owned()), "{names:?}");
        profiler_set_dumps(None).expect("no limits");
        add("Long", 51.0);
        drop(session);
        assert_eq!(folder.dumps().len(), 1);
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
        let dumps = folder.dumps();
        assert_eq!(dumps.len(), 1, "the thread has waited");
        let reasons = texts(&read(&dumps[0]), "worker", "Dump");
        assert!(reasons[0].contains("dumps/mod.rs:"), "{reasons:?}");
        drop(session);
    });
}

#[test]
fn memory_above_its_limit_causes_one_dump() {
    isolated(|| {
        let folder = Folder::new();
        let session = start();
        let settings = settings(&folder).on_memory_above(1).on_cpu_above(1e6);
        profiler_set_dumps(Some(settings)).expect("a thread");
        let dumps = folder.wait_for(1);
        assert!(name(&dumps[0]).contains("MiB-in-memory"), "{dumps:?}");
        profiler_set_dumps(None).expect("no limits");
        drop(session);
    });
}
