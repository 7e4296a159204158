//! File operations are `FileIO` markers, on the track that the session's features choose.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{
    BufReader, ErrorKind, IoSlice, IoSliceMut, Read as _, Seek as _, SeekFrom, Write as _,
};
use std::path::{Path, PathBuf};

use crate::common::typed_markers::{TypedMarker, typed_markers};
use crate::common::{Read, in_forked_child, isolated, isolated_with};
use gekkota::file_io::{AutoProfilerFileIO, ProfiledFile, add_file_io_marker};
use gekkota::profile::Format;
use gekkota::thread::profiler_current_thread_id;
use gekkota::{
    Features, Profile, ProfilerSession, ProfilerTime, StartParams, auto_profiler_label,
    profiler_pause, profiler_resume,
};

/// A path in the folder for temporary files, at which the test leaves no file.
struct TestFile(PathBuf);

impl TestFile {
    fn new(name: &str) -> Self {
        let name = format!("gekkota-{name}-{}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        // It may not exist.
        _ = std::fs::remove_file(&self.0);
    }
}

fn params(features: Features) -> StartParams {
    StartParams::default().features(Features::STACK_WALK | features)
}

fn finish(session: ProfilerSession) -> (Profile, Read) {
    let profile = session.finish().expect("a profile");
    let read = Read::from_profile(&profile);
    (profile, read)
}

fn file_io(read: &Read, thread: &str) -> Vec<TypedMarker> {
    let markers = typed_markers(read, thread).into_iter();
    markers
        .filter(|marker| marker.type_name == "FileIO")
        .collect()
}

/// Returns the operations on a file, in their order.
fn operations(markers: &[TypedMarker], path: &Path) -> Vec<String> {
    let path = path.to_str().expect("UTF-8");
    let of_path = markers.iter().filter(|marker| {
        let filename = marker.fields.get("filename");
        filename.and_then(|filename| filename.as_str()) == Some(path)
    });
    of_path
        .map(|marker| marker.text("operation").to_owned())
        .collect()
}

/// Returns the frames of the stack of each `FileIO` marker of a thread, innermost first, by operation.
fn stacks(read: &Read, thread: &str) -> BTreeMap<String, Vec<String>> {
    let table = read.thread(thread);
    let frame_names = |mut next: Option<u64>| {
        let mut names = Vec::new();
        while let Some(at) = next {
            let stack = &table["stackTable"]["data"][at as usize];
            let frame = stack[1].as_u64().expect("a frame") as usize;
            let location = table["frameTable"]["data"][frame][0].as_u64();
            let name = &table["stringTable"][location.expect("a location") as usize];
            names.push(name.as_str().expect("a name").to_owned());
            next = stack[0].as_u64();
        }
        names
    };
    let markers = read.markers(thread).into_iter();
    let of_type = markers.filter(|marker| marker.5["type"] == "FileIO");
    of_type
        .map(|(.., data)| {
            let operation = data["operation"].as_str().expect("an operation").to_owned();
            let stack = data["stack"]["samples"]["data"][0][0].as_u64();
            (operation, frame_names(stack))
        })
        .collect()
}

#[inline(never)]
fn saves_settings(path: &Path) {
    auto_profiler_label!("around the write");
    let mut file = ProfiledFile::create(path).expect("a file");
    {
        auto_profiler_label!("inner");
        file.write_all(b"settings").expect("written");
    }
    std::hint::black_box(());
}

#[test]
fn every_operation_is_a_marker_and_does_what_the_file_does() {
    isolated(|| {
        let path = TestFile::new("every");
        let session = ProfilerSession::start(params(Features::FILE_IO)).expect("start");
        gekkota::register_thread("reads and writes");

        let mut file = ProfiledFile::create_new(&path.0).expect("a file");
        file.write_all(b"0123").expect("written");
        assert_eq!(file.write(b"45").expect("written"), 2);
        let slices = [IoSlice::new(b"6"), IoSlice::new(b"789")];
        assert_eq!(file.write_vectored(&slices).expect("written"), 4);
        write!(file, "{}", 10).expect("written");
        file.flush().expect("flushed");
        file.sync_data().expect("synced");
        file.sync_all().expect("synced");
        file.set_len(10).expect("cut");
        assert_eq!(file.metadata().expect("metadata").len(), 10);
        assert_eq!(file.seek(SeekFrom::Start(2)).expect("moved"), 2);
        assert_eq!(file.stream_position().expect("a position"), 2);
        let (mut one, mut two) = ([0; 1], [0; 2]);
        let mut slices = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
        assert_eq!(file.read_vectored(&mut slices).expect("read"), 3);
        assert_eq!((&one, &two), (b"2", b"34"));
        file.read_exact(&mut two).expect("read");
        assert_eq!(&two, b"56");
        file.rewind().expect("moved");
        let mut text = String::new();
        assert_eq!(file.read_to_string(&mut text).expect("read"), 10);
        assert_eq!((file.path(), &*text), (&*path.0, "0123456789"));
        let clone = file.try_clone().expect("a duplicate");
        (&clone).seek(SeekFrom::Start(8)).expect("moved");
        (&clone).write_all(b"xy").expect("written");
        (&clone).rewind().expect("moved");
        let mut bytes = Vec::new();
        (&clone).read_to_end(&mut bytes).expect("read");
        assert_eq!(bytes, b"01234567xy");
        drop(clone);
        // The inner value stays open, and is not recorded.
        let mut inner: File = file.into_inner();
        inner.rewind().expect("moved");

        let (_, read) = finish(session);
        let markers = file_io(&read, "reads and writes");
        assert_eq!(
            operations(&markers, &path.0),
            [
                "create/open",
                "write",
                "write",
                "write",
                "write",
                "flush",
                "fdatasync",
                "fsync",
                "truncate",
                "stat",
                "seek",
                "read",
                "read",
                "seek",
                "read",
                "seek",
                "write",
                "seek",
                "read",
                "close"
            ]
        );
        for marker in &markers {
            assert_eq!(
                (&*marker.name, marker.text("source")),
                ("FileIO", "ProfiledFile")
            );
            let end_ms = marker.end_ms.expect("an interval");
            assert!(end_ms >= marker.start_ms, "{marker:?}");
            assert!(!marker.fields.contains_key("threadId"), "{marker:?}");
        }
        let ends_before_next = |pair: &[TypedMarker]| pair[0].end_ms <= Some(pair[1].start_ms);
        assert!(markers.windows(2).all(ends_before_next), "{markers:#?}");
    });
}

#[test]
fn marker_has_the_stack_with_labels_unless_the_session_has_none() {
    isolated(|| {
        let path = TestFile::new("stacks");
        let stacks_with = |features| {
            let session = ProfilerSession::start(params(features)).expect("start");
            gekkota::register_thread("saves");
            saves_settings(&path.0);
            let (_, read) = finish(session);
            assert_eq!(
                operations(&file_io(&read, "saves"), &path.0),
                ["create/open", "write", "close"]
            );
            stacks(&read, "saves")
        };
        let found = stacks_with(Features::FILE_IO);
        for (operation, labels) in [
            ("create/open", &["around the write"][..]),
            ("write", &["inner", "around the write"]),
            ("close", &["around the write"]),
        ] {
            let stack = &found[operation];
            let place = |name: &str| stack.iter().position(|frame| frame.contains(name));
            let saves = place("::saves_settings (in");
            assert!(saves.is_some(), "{operation}: {stack:#?}");
            let found: Vec<&str> = stack
                .iter()
                .map(String::as_str)
                .filter(|frame| ["inner", "around the write"].contains(frame))
                .collect();
            assert_eq!(found, labels, "{operation}");
            assert!(place("around the write") > saves, "{operation}: {stack:#?}");
            assert_eq!(stack.last().map(String::as_str), Some("(root)"));
        }
        let none = stacks_with(Features::FILE_IO | Features::NO_MARKER_STACKS);
        assert!(none.values().all(Vec::is_empty), "{none:#?}");
    });
}

#[test]
fn errors_pass_through_and_are_recorded() {
    isolated(|| {
        let (missing, path) = (TestFile::new("missing"), TestFile::new("errors"));
        let expected = File::open(&missing.0).expect_err("it does not exist");
        let session = ProfilerSession::start(params(Features::FILE_IO)).expect("start");
        gekkota::register_thread("fails");
        let error = ProfiledFile::open(&missing.0).expect_err("it does not exist");
        assert_eq!(error.raw_os_error(), expected.raw_os_error());
        assert_eq!(error.to_string(), expected.to_string());
        let mut file = ProfiledFile::create(&path.0).expect("a file");
        let error = file.read(&mut [0]).expect_err("it is open for writing");
        assert_eq!(error.raw_os_error(), Some(nix::libc::EBADF));
        let error = file
            .seek(SeekFrom::Current(-1))
            .expect_err("before the file");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let error = ProfiledFile::create_new(&path.0).expect_err("it exists");
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        let append = ProfiledFile::open_with(OpenOptions::new().append(true), &path.0);
        let mut append = append.expect("it exists");
        let error = append
            .read_exact(&mut [0])
            .expect_err("it is open for writing");
        assert_eq!(error.raw_os_error(), Some(nix::libc::EBADF));
        drop((file, append));
        let (_, read) = finish(session);
        let markers = file_io(&read, "fails");
        assert_eq!(operations(&markers, &missing.0), ["create/open"]);
        let expected = [
            "create/open",
            "read",
            "seek",
            "create/open",
            "create/open",
            "read",
        ];
        let mut expected = expected.to_vec();
        expected.extend(["close", "close"]);
        assert_eq!(operations(&markers, &path.0), expected);
    });
}

/// Performs one operation on each of these threads: the main thread, a profiled one, a registered one
/// that the filters leave out, and one that has unregistered. Returns the id of each, and the profile.
fn operate_on_four_threads(features: Features) -> ([i32; 4], Read) {
    let filters = ["GeckoMain", "selected"];
    let session = ProfilerSession::start(params(features).filters(filters)).expect("start");
    let operate = |operation: &str| {
        drop(AutoProfilerFileIO::new(operation, "test", "a file"));
        profiler_current_thread_id().to_number()
    };
    let on_main = operate("on main");
    let on_other = |name, operation: &'static str, unregisters: bool| {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                gekkota::register_thread(name);
                if unregisters {
                    gekkota::unregister_thread();
                }
                operate(operation)
            });
            thread.join().expect("no panic")
        })
    };
    let ids = [
        on_main,
        on_other("selected", "on selected", false),
        on_other("left out", "on left out", false),
        on_other("gone", "on unregistered", true),
    ];
    (ids, finish(session).1)
}

/// Returns name, operation and thread id of the markers.
fn described(markers: &[TypedMarker]) -> Vec<(String, String, Option<i64>)> {
    let describe = |marker: &TypedMarker| {
        let thread_id = marker.fields.get("threadId");
        let thread_id = thread_id.map(|id| {
            let text = id.as_str().map(str::to_owned);
            let text = text.unwrap_or_else(|| id.to_string());
            text.parse().expect("a number")
        });
        let operation = marker.text("operation").to_owned();
        (marker.name.clone(), operation, thread_id)
    };
    markers.iter().map(describe).collect()
}

/// Runs in a forked child, whose main thread is the thread that forks.
#[test]
fn features_choose_threads_and_tracks() {
    isolated(|| {
        let found = in_forked_child(|| {
            gekkota::profiler_init();
            let main = ("FileIO".to_owned(), "on main".to_owned(), None);
            let selected = ("FileIO".to_owned(), "on selected".to_owned(), None);
            for features in [
                Features::NONE,
                Features::MAIN_THREAD_IO,
                Features::FILE_IO,
                Features::FILE_IO_ALL,
            ] {
                let (ids, read) = operate_on_four_threads(features);
                let mut on_main = Vec::new();
                if features != Features::NONE {
                    on_main.push(main.clone());
                }
                if features == Features::FILE_IO_ALL {
                    let other = |name: &str, operation: &str, id: i32| {
                        (name.to_owned(), operation.to_owned(), Some(id.into()))
                    };
                    let (left_out, gone) = (ids[2], ids[3]);
                    on_main.extend([
                        other("FileIO (non-profiled thread)", "on left out", left_out),
                        other("FileIO (unregistered thread)", "on unregistered", gone),
                    ]);
                }
                let has_selected =
                    features == Features::FILE_IO || features == Features::FILE_IO_ALL;
                let on_selected = Vec::from_iter(has_selected.then(|| selected.clone()));
                let found = described(&file_io(&read, "GeckoMain"));
                assert_eq!(found, on_main, "{features:?}");
                let found = described(&file_io(&read, "selected"));
                assert_eq!(found, on_selected, "{features:?}");
                // The stack is that of the thread that does the I/O.
                let is_worker = |(operation, stack): &(String, Vec<String>)| {
                    stack
                        .iter()
                        .any(|frame| frame.contains("operate_on_four_threads"))
                        && (stack.iter().any(|frame| frame.contains("std::thread"))
                            || operation == "on main")
                };
                let stacks: Vec<_> = stacks(&read, "GeckoMain").into_iter().collect();
                assert!(stacks.iter().all(is_worker), "{features:?}: {stacks:#?}");
                let recorded = &read.0["meta"]["configuration"]["features"];
                let has = |name: &str| {
                    recorded
                        .as_array()
                        .expect("names")
                        .iter()
                        .any(|one| one == name)
                };
                assert_eq!(has("mainthreadio"), features != Features::NONE);
                assert_eq!(has("fileio"), has_selected);
            }
            "all".to_owned()
        });
        assert_eq!(found, "all");
    });
}

#[test]
fn first_operation_of_an_unregistered_thread_is_on_its_own_track() {
    isolated(|| {
        let session = ProfilerSession::start(params(Features::FILE_IO_ALL)).expect("start");
        let body = || {
            drop(AutoProfilerFileIO::new("stat", "test", "a file"));
            profiler_current_thread_id()
        };
        let thread = std::thread::Builder::new().name("never registers".to_owned());
        thread
            .spawn(body)
            .expect("a thread")
            .join()
            .expect("no panic");
        let (_, read) = finish(session);
        let own = described(&file_io(&read, "never registers"));
        assert_eq!(own, [("FileIO".to_owned(), "stat".to_owned(), None)]);
        assert!(file_io(&read, "GeckoMain").is_empty());
    });
}

#[test]
fn guard_and_function_record_what_the_application_names() {
    isolated(|| {
        let session = ProfilerSession::start(params(Features::FILE_IO)).expect("start");
        gekkota::register_thread("hosts");
        let start = ProfilerTime::now();
        {
            let _io = AutoProfilerFileIO::new("rename", "Store", Path::new("from → to"));
        }
        add_file_io_marker("pread", "Store", "", start, ProfilerTime::now());
        profiler_pause();
        drop(AutoProfilerFileIO::new("while paused", "Store", ""));
        let begun = AutoProfilerFileIO::new("across a pause", "Store", "");
        profiler_resume();
        drop(begun);
        let outlasts = AutoProfilerFileIO::new("outlasts", "Store", "");
        assert!(outlasts.is_some());
        let (profile, read) = finish(session);
        let next = ProfilerSession::start(params(Features::FILE_IO)).expect("start");
        drop(outlasts);
        let (_, read_next) = finish(next);
        assert!(file_io(&read_next, "hosts").is_empty());

        let markers = file_io(&read, "hosts");
        let [rename, pread, across] = &markers[..] else {
            panic!("{markers:#?}")
        };
        assert_eq!(rename.text("operation"), "rename");
        assert_eq!(
            (rename.text("source"), rename.text("filename")),
            ("Store", "from → to")
        );
        assert_eq!(pread.text("operation"), "pread");
        assert!(!pread.fields.contains_key("filename"), "{pread:?}");
        assert!(pread.start_ms <= rename.start_ms && pread.end_ms >= rename.end_ms);
        assert_eq!(across.text("operation"), "across a pause");

        let has_place = |schemas: &serde_json::Value| {
            let schemas = schemas.as_array().expect("schemas").iter();
            let schema = schemas.clone().find(|schema| schema["name"] == "FileIO");
            let display = schema.expect("the schema of the type")["display"].clone();
            display
                .as_array()
                .expect("places")
                .contains(&"timeline-fileio".into())
        };
        assert!(has_place(&read.0["meta"]["markerSchema"]));
        let mut text = Vec::new();
        profile
            .write(Format::Processed, &mut text)
            .expect("a vector never fails");
        let processed: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        assert!(has_place(&processed["meta"]["markerSchema"]));
        let text = String::from_utf8(text).expect("UTF-8");
        assert!(
            text.contains(r#""operation":"rename""#),
            "the processed format has the marker"
        );
    });
}

#[test]
fn start_by_variables_records_operations_of_all_threads() {
    isolated_with(&[("MOZ_PROFILER_STARTUP", "1")], || {
        gekkota::profiler_init();
        let features = gekkota::profiler_features_if_active().expect("the variable starts it");
        let io = Features::FILE_IO_ALL | Features::FILE_IO | Features::MAIN_THREAD_IO;
        assert!(features.contains(io), "{features:?}");
        gekkota::register_thread("started");
        drop(AutoProfilerFileIO::new("stat", "test", "a file"));
        let markers = file_io(&Read::of_running(), "started");
        assert_eq!(operations(&markers, Path::new("a file")), ["stat"]);
    });
}

/// A reader that panics.
struct Panics;

impl std::io::Read for Panics {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        panic!("the reader panics, as the test wants")
    }
}

#[test]
fn any_reader_and_writer_can_be_wrapped() {
    isolated(|| {
        let session = ProfilerSession::start(params(Features::FILE_IO)).expect("start");
        gekkota::register_thread("wraps");
        let mut bytes = ProfiledFile::new(Vec::new(), "memory");
        bytes.write_all(b"text").expect("a vector never fails");
        assert_eq!(bytes.get_ref(), b"text");
        bytes.get_mut().push(b'!');
        assert_eq!(bytes.into_inner(), b"text!");
        let mut reader = BufReader::new(ProfiledFile::new(&b"a\nb"[..], "slice"));
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("UTF-8");
        assert_eq!(text, "a\nb");
        drop(reader);
        let panics = || ProfiledFile::new(Panics, "panics").read(&mut [0]);
        assert!(std::panic::catch_unwind(panics).is_err());
        let (_, read) = finish(session);
        let markers = file_io(&read, "wraps");
        assert_eq!(operations(&markers, Path::new("memory")), ["write"]);
        let of_slice = operations(&markers, Path::new("slice"));
        assert!(of_slice.starts_with(&["read".to_owned()]), "{of_slice:?}");
        assert_eq!(of_slice.last().map(String::as_str), Some("close"));
        assert_eq!(operations(&markers, Path::new("panics")), ["read", "close"]);
    });
}
