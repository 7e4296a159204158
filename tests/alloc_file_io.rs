//! A file's operations allocate nothing in a session without the features for file I/O, and without
//! a session.
#![cfg(has_profiler)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{IoSlice, Read, Seek, SeekFrom, Write};

use gekkota::file_io::{AutoProfilerFileIO, ProfiledFile, add_file_io_marker};
use gekkota::{Features, ProfilerSession, ProfilerTime, StartParams};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

// SAFETY: every method delegates to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller upholds the contract of this method.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller upholds the contract of this method.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the number of calls of the allocator by file operations, on this thread.
fn allocations_of_operations(file: &mut ProfiledFile) -> u64 {
    let before = ALLOCATIONS.get();
    let mut buffer = [0; 4];
    for _ in 0..100 {
        file.write_all(b"some").expect("written");
        let slices = [IoSlice::new(b"te"), IoSlice::new(b"xt")];
        assert_eq!(file.write_vectored(&slices).expect("written"), 4);
        file.flush().expect("flushed");
        file.seek(SeekFrom::Start(0)).expect("moved");
        file.read_exact(&mut buffer).expect("read");
        assert_eq!(file.metadata().expect("metadata").len(), 8);
        file.set_len(0).expect("cut");
        file.rewind().expect("moved");
        file.record("ask", |file| assert!(file.metadata().is_ok()));
        drop(AutoProfilerFileIO::new("read", "test", "a file"));
        let now = ProfilerTime::now();
        add_file_io_marker("read", "test", "a file", now, now);
    }
    ALLOCATIONS.get() - before
}

#[test]
fn operations_that_are_not_recorded_do_not_allocate() {
    let path = std::env::temp_dir().join(format!("gekkota-alloc-{}", std::process::id()));
    let mut file = ProfiledFile::create_new(&path).expect("a file");
    std::fs::remove_file(&path).expect("removed");
    assert_eq!(allocations_of_operations(&mut file), 0);

    let start = |features| {
        let params = StartParams::default().features(features);
        ProfilerSession::start(params).expect("start")
    };
    let session = start(Features::default_set());
    assert_eq!(allocations_of_operations(&mut file), 0);
    drop(session);

    // The first operations register the thread.
    let session = start(Features::FILE_IO);
    assert!(allocations_of_operations(&mut file) > 0);
    drop(session);
}
