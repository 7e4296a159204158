//! The application replaces the descriptor of a file while the profile is saved there. The rest of
//! the profile is not written to the application's file.

use std::fs::File;
use std::os::fd::{AsRawFd as _, RawFd};
use std::path::PathBuf;
use std::sync::Mutex;

use crate::common::isolated;
use gekkota::schema::{Deserialize, JSONWriter, MarkerSchema, Serialize};
use gekkota::{ProfilerMarker, ProfilerSession, StartParams, add_marker};

/// The application's file, and the number that it has taken from the profiler.
static HOST_FILE: Mutex<Option<(File, RawFd)>> = Mutex::new(None);

/// A marker that replaces the descriptor when it is written.
#[derive(Serialize, Deserialize, Debug)]
struct Replaces;

impl ProfilerMarker for Replaces {
    fn marker_type_name() -> &'static str {
        "Replaces"
    }

    fn marker_type_display() -> MarkerSchema {
        MarkerSchema::new(&[])
    }

    fn stream_json_marker_data(&self, _: &mut JSONWriter<'_>) {
        let entries = std::fs::read_dir("/proc/self/fd").expect("descriptors");
        let is_saved = |entry: &std::fs::DirEntry| {
            let target = std::fs::read_link(entry.path()).unwrap_or_default();
            // A file without a name, in the folder of the path.
            target.starts_with(std::env::temp_dir()) && target.to_string_lossy().contains("/#")
        };
        let saved = entries.filter_map(Result::ok).find(is_saved);
        let number = saved.and_then(|entry| entry.file_name().to_str()?.parse().ok());
        let number: RawFd = number.expect("the file that is being written");
        let path = std::env::temp_dir().join(format!("gekkota-hosts-{}", std::process::id()));
        let file = File::create_new(&path).expect("a file");
        std::fs::remove_file(&path).expect("removed");
        // SAFETY: the profiler expects that the application replaces descriptors.
        assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), number) }, number);
        *HOST_FILE.lock().expect("no panic") = Some((file, number));
    }
}

fn path_of_profile() -> PathBuf {
    let name = format!("gekkota-replaced-while-saved-{}", std::process::id());
    std::env::temp_dir().join(name)
}

#[test]
fn descriptor_replaced_during_a_save_is_neither_written_nor_closed() {
    isolated(|| {
        gekkota::register_thread("marks");
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let category = gekkota::gecko_profiler_category!(Other);
        add_marker("replaces", category, Default::default(), Replaces);
        let profile = session.finish().expect("profile");
        let error = profile
            .save(path_of_profile())
            .expect_err("the file is gone");
        let text = error.to_string();
        assert!(text.contains("has closed the file's descriptor"), "{text}");
        assert!(!path_of_profile().exists());
        let (file, number) = HOST_FILE
            .lock()
            .expect("no panic")
            .take()
            .expect("replaced");
        assert_eq!(file.metadata().expect("a status").len(), 0);
        // SAFETY: the call accesses no memory of the process.
        assert!(unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0, "closed");
    });
}
