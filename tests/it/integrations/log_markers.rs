//! `ProfilerLogger` forwards log records to the application's logger and records them as markers.
//!
//! Also runs without the profiler: `cargo test --no-default-features --features log`.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::typed_markers::{names, only, typed_markers};
use crate::common::{Read, isolated};
use gekkota::{MarkerStack, ProfilerLogger, ProfilerSession, StartParams, register_thread};
use log::{Level, LevelFilter, Log, Metadata, Record};

/// The application's logger: enables levels up to `Info`, keeps levels and targets, and formats
/// nothing.
struct Inner;

static SEEN: Mutex<Vec<(Level, String)>> = Mutex::new(Vec::new());
static FLUSHES: AtomicUsize = AtomicUsize::new(0);

impl Log for Inner {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= Level::Info
    }

    fn log(&self, record: &Record<'_>) {
        SEEN.lock()
            .expect("no panic with the lock")
            .push((record.level(), record.target().to_owned()));
    }

    fn flush(&self) {
        FLUSHES.fetch_add(1, Ordering::Relaxed);
    }
}

#[track_caller]
fn assert_seen(expected: &[(Level, &str)]) {
    let seen = std::mem::take(&mut *SEEN.lock().expect("no panic with the lock"));
    assert!(
        seen.iter()
            .map(|(level, target)| (*level, target.as_str()))
            .eq(expected.iter().copied()),
        "{seen:?}"
    );
}

static FORMATTED: AtomicUsize = AtomicUsize::new(0);

/// A value that counts how often it is formatted.
struct Counted;

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        FORMATTED.fetch_add(1, Ordering::Relaxed);
        f.write_str("counted")
    }
}

/// A value that logs itself while it is formatted.
struct Endless;

#[expect(clippy::recursive_format_impl, reason = "the test needs the recursion")]
impl fmt::Display for Endless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        log::info!(target: "nested", "{self}");
        f.write_str("endless")
    }
}

struct Panics;

impl fmt::Display for Panics {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("the value panics, as the test wants")
    }
}

/// Logs on a thread with this name in the system, which has not registered.
fn log_on_unregistered_thread(name: &str) {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(|| log::info!(target: "unregistered", "{Counted}"))
        .expect("thread")
        .join()
        .expect("no panic");
    assert_seen(&[(Level::Info, "unregistered")]);
}

fn log_without_session() {
    log::warn!(target: "idle", "{Counted}");
    log::debug!(target: "idle", "{Counted}");
    assert!(log::log_enabled!(Level::Info) && !log::log_enabled!(Level::Debug));
    assert_seen(&[(Level::Warn, "idle")]);
}

fn log_everything() {
    log::error!(target: "first", "{Counted} {}", 1);
    log::warn!("default target");
    log::info!(target: "long", "{}", "é".repeat(20_000));
    log::debug!(target: "detail", "only in the profile");
    log::trace!(target: "never", "{Counted}");
    assert!(log::log_enabled!(Level::Debug) && !log::log_enabled!(Level::Trace));
    log::logger().flush();
    let own = module_path!();
    assert_seen(&[
        (Level::Error, "first"),
        (Level::Warn, own),
        (Level::Info, "long"),
    ]);

    log::info!(target: "outer", "{Endless}");
    assert_seen(&[(Level::Info, "nested"), (Level::Info, "outer")]);
    log::info!(target: "panics", "before {Panics} behind");
    log::info!(target: "after", "");
    assert_seen(&[(Level::Info, "panics"), (Level::Info, "after")]);
    let line = log::Record::builder()
        .level(Level::Trace)
        .target("by hand")
        .args(format_args!("x"))
        .build();
    ProfilerLogger::new(log::logger())
        .with_stacks(MarkerStack::Full)
        .log(&line);
    assert_seen(&[]);
}

#[test]
fn log_record_becomes_marker_and_reaches_inner_logger() {
    isolated(|| {
        let logger: Box<dyn Log> = Box::new(Inner);
        ProfilerLogger::new(logger)
            .markers_up_to(LevelFilter::Debug)
            .install(LevelFilter::Info)
            .expect("no logger is installed yet");
        assert!(
            ProfilerLogger::new(Inner)
                .install(LevelFilter::Off)
                .is_err()
        );
        assert_eq!(log::max_level(), LevelFilter::Debug);
        register_thread("logs");
        log_without_session();

        let Ok(session) = ProfilerSession::start(StartParams::default()) else {
            assert_eq!(
                (cfg!(has_profiler), FORMATTED.load(Ordering::Relaxed)),
                (false, 0)
            );
            return;
        };
        log_on_unregistered_thread("logs once");
        log_everything();
        assert_eq!(
            (
                FORMATTED.load(Ordering::Relaxed),
                FLUSHES.load(Ordering::Relaxed)
            ),
            (2, 1)
        );
        let read = Read::from_profile(&session.finish().expect("profile"));
        log_without_session();
        assert_eq!(FORMATTED.load(Ordering::Relaxed), 2);

        let once = typed_markers(&read, "logs once");
        assert_eq!(names(&once), ["unregistered"]);
        let markers = typed_markers(&read, "logs");
        let own = module_path!();
        assert_eq!(
            names(&markers),
            [
                "first", own, "long", "detail", "outer", "panics", "after", "by hand"
            ]
        );
        assert!(
            markers
                .iter()
                .all(|marker| marker.type_name == "Log" && marker.end_ms.is_none())
        );
        let level_and_message = |name| {
            (
                only(&markers, name).text("level"),
                only(&markers, name).text("message"),
            )
        };
        assert_eq!(level_and_message("first"), ("Error", "counted 1"));
        assert_eq!(level_and_message(own), ("Warning", "default target"));
        assert_eq!(
            level_and_message("long"),
            ("Info", "é".repeat(8 << 10).as_str()),
            "the first 16 KiB of the message"
        );
        assert_eq!(
            level_and_message("detail"),
            ("Debug", "only in the profile")
        );
        assert_eq!(level_and_message("outer"), ("Info", "endless"));
        assert_eq!(level_and_message("panics"), ("Info", "before (panicked)"));
        assert_eq!(level_and_message("after"), ("Info", ""));
        assert_eq!(level_and_message("by hand"), ("Verbose", "x"));
        let location = only(&markers, "detail").text("location");
        assert!(location.starts_with(concat!(file!(), ":")), "{location}");
        assert!(
            !only(&markers, "by hand").fields.contains_key("location"),
            "the record has no location"
        );
    });
}
