//! Stacks are whole while another thread loads and unloads libraries all the time: their frames are
//! in the program and in libraries that it needs, which stay.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Read, isolated};
use crate::sampling::places::Place;
use crate::unwinding::accuracy::c_code;
use gekkota::{ProfilerSession, StartParams};

const THREAD: &str = "works";
/// Number of samples to see.
const SAMPLES: usize = 500;

static WORKING: Place = Place::new("working");
static ENDS: AtomicBool = AtomicBool::new(false);

#[test]
fn stacks_are_whole_beside_constant_dlopen() {
    isolated(|| {
        let folder = c_code::Folder::new();
        let path = c_code::compile(&folder, "plugin", "int function(void) { return 3; }", &[]);
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let loader = std::thread::spawn(move || {
            let mut loads = 0u64;
            while !ENDS.load(Ordering::Relaxed) {
                c_code::Library::load(&path).close();
                loads += 1;
            }
            loads
        });
        let worker = std::thread::spawn(|| {
            gekkota::register_thread(THREAD);
            WORKING.work();
        });
        WORKING.release_after(THREAD, SAMPLES);
        worker.join().expect("thread");
        ENDS.store(true, Ordering::Relaxed);
        let loads = loader.join().expect("thread");
        let read = Read::from_profile(&session.finish().expect("profile"));
        let samples = read.samples(THREAD);
        let is_at_work = |frame: &String| frame == "working";
        let at_work: Vec<_> = samples
            .iter()
            .filter(|sample| sample.stack.iter().any(is_at_work))
            .collect();
        println!("{} samples beside {loads} loads", at_work.len());
        assert!(at_work.len() >= SAMPLES && loads > 0);
        let cut = at_work
            .iter()
            .filter(|sample| sample.stack[0] == "(truncated)");
        assert_eq!(cut.count(), 0);
    });
}
