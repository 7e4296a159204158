//! Generated code that a runtime lists for `perf` in `/tmp/perf-PID.map` is followed and named, without a call to us.

use std::time::Duration;

use crate::common::{Read, generated_call, isolated, work_for_cpu};
use gekkota::{ProfilerSession, StartParams};

extern "C" fn works_below_generated_code() {
    work_for_cpu(Duration::from_millis(800));
    std::hint::black_box(());
}

/// Removes the file also when the test fails.
struct MapFile(String);

impl Drop for MapFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn code_of_the_perf_map_has_its_callers_and_its_name() {
    isolated(|| {
        let (memory, call) = generated_call();
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        // Written while the session runs, as runtimes do.
        let file = MapFile(format!("/tmp/perf-{}.map", std::process::id()));
        let line = format!(
            "not a line\n{:x} {:x} LazyCompile:~f a.js:1\n",
            memory.as_ptr() as usize,
            memory.len()
        );
        std::fs::write(&file.0, line).expect("write");
        std::thread::spawn(move || {
            gekkota::register_thread("runtime");
            call(works_below_generated_code);
            std::hint::black_box(());
        })
        .join()
        .expect("thread");
        let read = Read::from_profile(&session.finish().expect("profile"));

        let (mut followed, mut others) = (0, 0);
        for sample in read.samples("runtime") {
            let below = |name: &String| name.contains("works_below_generated_code (in");
            let Some(at) = sample.stack.iter().position(below) else {
                continue;
            };
            if sample.stack[at - 1] == "LazyCompile:~f a.js:1 (in [jit])"
                && sample.stack[0] != "(truncated)"
            {
                assert!(
                    sample.stack[at - 2].contains("code_of_the_perf_map"),
                    "{:#?}",
                    sample.stack
                );
                followed += 1;
            } else {
                assert!(sample.stack[0] == "(truncated)", "{:#?}", sample.stack);
                others += 1;
            }
        }
        println!("{followed} samples are followed, {others} are not");
        // The file is looked at ten times a second.
        assert!(
            followed > 200 && others * 4 < followed,
            "{followed} are followed, {others} are not"
        );
    });
}
