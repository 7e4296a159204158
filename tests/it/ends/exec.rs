//! A program that replaces itself by `exec` and hands its profile over.

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::common::{Read, isolated, wait_until};
use gekkota::process::profiler_prepare_exec;
use gekkota::{
    StartParams, add_untyped_marker, profiler_init, profiler_is_active, profiler_start,
    profiler_stop, register_thread,
};

/// Set in the image that follows, to the number of images before it.
const IMAGE: &str = "GEKKOTA_TEST_IMAGE";

fn add(name: &str) {
    add_untyped_marker(
        name,
        gekkota::ProfilingCategoryPair::Other(None),
        Default::default(),
    );
}

/// Returns the names of the markers of a process, in all of its threads.
fn markers(process: &Read) -> Vec<String> {
    let threads = process.0["threads"].as_array().expect("threads").iter();
    let names = threads.flat_map(|thread| {
        let thread = thread["name"].as_str().expect("a name").to_owned();
        let markers = process.markers(&thread);
        markers
            .into_iter()
            .map(|marker| marker.0)
            .collect::<Vec<_>>()
    });
    names.filter(|name| name.starts_with("image ")).collect()
}

#[test]
fn profile_goes_on_across_exec() {
    isolated(|| {
        let image: u32 = std::env::var(IMAGE).map_or(0, |image| image.parse().expect("a number"));
        profiler_init();
        register_thread("caller");
        if image == 0 {
            profiler_start(StartParams::default().interval(std::time::Duration::from_millis(3)))
                .expect("start");
        }
        assert!(profiler_is_active(), "image {image}");
        add(&format!("image {image}"));
        wait_until("the thread has samples", || {
            Read::of_running().samples("caller").len() > 1
        });
        if image < 2 {
            let mut command = Command::new(std::env::current_exe().expect("this program"));
            command.args(std::env::args_os().skip(1));
            command.env(IMAGE, (image + 1).to_string());
            let _handover = profiler_prepare_exec(&mut command).expect("prepared");
            panic!("cannot replace the program: {}", command.exec());
        }
        // For a developer who wants to open the profile in Firefox Profiler.
        if let Some(path) = std::env::var_os("GEKKOTA_TEST_KEEP") {
            gekkota::profiler_save_profile_to_file(path).expect("kept");
        }
        let read = Read::of_running();
        assert_eq!(read.0["meta"]["interval"], 3.0);
        assert_eq!(markers(&read), ["image 2"]);
        let earlier = read.0["processes"].as_array().expect("processes");
        let earlier: Vec<_> = earlier
            .iter()
            .map(|process| Read(process.clone()))
            .collect();
        let mut names: Vec<_> = earlier.iter().flat_map(markers).collect();
        names.sort();
        assert_eq!(names, ["image 0", "image 1"]);
        for process in &earlier {
            assert!(process.samples("caller").len() > 1);
            // The viewer shows no data from before this time.
            let start = |read: &Read| {
                let time = |key: &str| read.0["meta"][key].as_f64().expect("a time");
                time("startTime") + time("profilingStartTime")
            };
            assert!(start(process) >= start(&read) - 1.0);
            assert_eq!(
                process.thread("caller")["pid"],
                read.thread("caller")["pid"]
            );
            let threads = process.0["threads"].as_array().expect("threads");
            assert!(threads.iter().all(|thread| thread["name"] != "GeckoMain"));
            process.thread("main thread before exec");
        }
        profiler_stop();
    });
}

#[test]
fn session_goes_on_if_exec_fails() {
    isolated(|| {
        register_thread("caller");
        profiler_start(StartParams::default()).expect("start");
        let descriptors = || {
            std::fs::read_dir("/proc/self/fd")
                .expect("descriptors")
                .count()
        };
        let before = descriptors();
        let mut command = Command::new("/nonexistent/program");
        let handover = profiler_prepare_exec(&mut command).expect("prepared");
        assert!(gekkota::profiler_is_sampling_paused());
        assert_eq!(command.exec().kind(), std::io::ErrorKind::NotFound);
        drop(handover);
        assert!(!gekkota::profiler_is_sampling_paused());
        assert_eq!(descriptors(), before);
        let samples = || Read::of_running().samples("caller").len();
        let taken = samples();
        wait_until("the thread is sampled again", || samples() > taken);
        profiler_stop();
    });
}

#[test]
fn command_without_a_session_stays_as_it_is() {
    isolated(|| {
        let mut command = Command::new("/bin/true");
        let _handover = profiler_prepare_exec(&mut command).expect("nothing to do");
        assert_eq!(command.get_envs().count(), 0);
    });
}
