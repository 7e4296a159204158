//! In a group of processes with a memory limit, such as a container, the buffer takes a share of what
//! is left, and gives memory back when the application needs it. Beyond the limit, the kernel would
//! kill the process.

use std::fs;
use std::path::{Path, PathBuf};

use super::{MIB, add_markers, buffer_info, held_bytes};
use crate::common::{Read, isolated, wait_until};
use gekkota::{ProfilerSession, StartParams};

const LIMIT: u64 = 96 * MIB;
/// Size of a marker's text, in bytes.
const TEXT_BYTES: usize = 1000;
/// Number of markers, 190 MiB of them.
const MARKERS: usize = 200_000;

/// A control group with a limit of memory, which this process has entered.
struct Group {
    folder: PathBuf,
    /// The `cgroup.procs` file of the process's earlier group.
    before: PathBuf,
}

impl Group {
    /// Enters a new group. Returns `None`, and says that the test is skipped, if this user may not make
    /// one.
    fn enter() -> Option<Self> {
        let first_version = ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", ":memory:");
        let second_version = ("/sys/fs/cgroup", "memory.max", "0::");
        let entered =
            [first_version, second_version]
                .into_iter()
                .find_map(|(root, limit, mark)| {
                    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
                    let own = groups.lines().find_map(|line| line.split_once(mark))?.1;
                    let root = Path::new(root);
                    let before = root.join(own.trim_start_matches('/')).join("cgroup.procs");
                    let folder = root.join(format!("gekkota-test-{}", std::process::id()));
                    fs::create_dir(&folder).ok()?;
                    let group = Self { folder, before };
                    fs::write(group.folder.join(limit), LIMIT.to_string()).ok()?;
                    fs::write(group.folder.join("cgroup.procs"), "0").ok()?;
                    Some(group)
                });
        if entered.is_none() {
            eprintln!("skipped: this user may not make a control group with a memory limit");
        }
        entered
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::write(&self.before, "0");
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Saves the session's profile, and returns it with the text of its warning about memory.
fn saved(session: ProfilerSession) -> (Read, String) {
    let name = format!("gekkota-container-{}.json", std::process::id());
    let path = std::env::temp_dir().join(name);
    let profile = session.finish().expect("a profile");
    profile.save(&path).expect("there is memory for it");
    let read = Read::from_text(&fs::read(&path).expect("the profile"));
    fs::remove_file(&path).expect("the profile");
    let warnings = read.0["meta"]["warnings"].as_array().expect("a list");
    println!("{warnings:?}, {}", read.0["meta"]["losses"]);
    let about_memory = warnings.iter().find(|warning| warning["name"] == "memory");
    let text = about_memory.and_then(|warning| warning["text"].as_str());
    let text = text.expect("a warning").to_owned();
    (read, text)
}

#[test]
fn buffer_of_a_process_in_a_container_is_a_share_of_the_memory_that_is_left() {
    isolated(|| {
        let Some(_group) = Group::enter() else { return };
        let application = vec![1_u8; 24 << 20];
        let params = StartParams::default().capacity_bytes(512 * MIB);
        let session = ProfilerSession::start(params.clone()).expect("start");
        let in_use = gekkota::profiler_get_start_params().expect("active");
        assert!(in_use.capacity_bytes < LIMIT / 8, "{in_use:?}");
        gekkota::register_thread("writer");
        add_markers(0..MARKERS, TEXT_BYTES);
        let held = held_bytes();
        assert!(held < LIMIT / 4, "{:?}", buffer_info());
        gekkota::profiler_ensure_started(params).expect("the session has that capacity");
        assert!(held_bytes() >= held, "another session has begun");
        let (read, warning) = saved(session);
        let markers = read.markers("writer");
        assert!(markers.len() > 1000 && markers.len() < MARKERS / 2);
        let expected = ["MiB less than its capacity", "addresses have no names"];
        assert!(
            expected.iter().all(|text| warning.contains(text)),
            "{warning}"
        );
        drop(application);
    });
}

#[test]
fn buffer_shrinks_when_the_application_in_a_container_grows() {
    isolated(|| {
        let Some(_group) = Group::enter() else { return };
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        gekkota::register_thread("writer");
        add_markers(0..MARKERS, TEXT_BYTES);
        let before = held_bytes();
        assert!(before > LIMIT / 16, "{:?}", buffer_info());
        let application = vec![1_u8; 64 << 20];
        wait_until("the buffer has shrunk", || held_bytes() < before / 2);
        add_markers(MARKERS..2 * MARKERS, TEXT_BYTES);
        assert!(held_bytes() < before / 2, "{:?}", buffer_info());
        let (read, _) = saved(session);
        let last = format!("marker {:9} ", 2 * MARKERS - 1);
        let markers = read.markers("writer");
        let text = markers.last().expect("a marker").5["name"].as_str();
        assert!(text.expect("a text").starts_with(&last), "{text:?}");
        drop(application);
    });
}
