//! With `MOZ_PROFILER_STARTUP_DURATION` the profiler keeps the data of the last seconds, and
//! releases older data while the program runs.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::left_behind::status_kib;
use crate::common::{LONGEST_WAIT, Read, isolated};
use gekkota::{
    BufferInfo, MarkerOptions, ProfilerTime, gecko_profiler_category, profiler_get_buffer_info,
};

const ROLE: &str = "GEKKOTA_TEST_ROLE";
/// Size of the data that is not released yet, in bytes, above which the child stops adding markers.
/// The buffer has space for more, so no data is released for lack of space.
const MAX_UNRELEASED: u64 = 32 << 20;
const DURATION: Duration = Duration::from_secs(1);
const MARKERS_OF_BATCH: usize = 50;

/// Adds markers with successive numbers.
#[derive(Default)]
struct Flood {
    /// Start of each batch of [`MARKERS_OF_BATCH`] markers.
    batches: Vec<ProfilerTime>,
}

impl Flood {
    fn markers(&self) -> usize {
        self.batches.len() * MARKERS_OF_BATCH
    }

    /// Adds markers for 100 ms, at some megabytes per second.
    fn add_markers(&mut self) {
        let end = Instant::now() + Duration::from_millis(100);
        while Instant::now() < end {
            let first = self.markers();
            self.batches.push(ProfilerTime::now());
            for number in first..first + MARKERS_OF_BATCH {
                let text = format!("{number} {}", "x".repeat(100));
                gekkota::add_text_marker(
                    "M",
                    gecko_profiler_category!(Other),
                    MarkerOptions::default(),
                    &text,
                );
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Returns the state of the buffer, and the resident memory of the process in bytes.
fn memory() -> (BufferInfo, u64) {
    let info = profiler_get_buffer_info().expect("active");
    assert!(info.capacity_bytes >= 2 * MAX_UNRELEASED, "{info:?}");
    (info, status_kib("VmRSS:") as u64 * 1024)
}

/// Adds markers until at least a third of the data has been released, and less than half of its
/// size is resident.
#[test]
#[ignore = "runs only as a child of another test"]
fn role_of_the_flooding_child() {
    if std::env::var(ROLE).is_ok_and(|role| role == "flooding") {
        let profiler = gekkota::AutoProfilerInit::new();
        gekkota::register_thread("floods");
        let (_, before) = memory();
        let deadline = Instant::now() + 4 * LONGEST_WAIT;
        let mut flood = Flood::default();
        loop {
            let (info, resident) = memory();
            let taken = resident.saturating_sub(before);
            if info.recycled_bytes > info.range_end / 3 && taken * 2 < info.range_end {
                println!(
                    "{} of {} bytes were released, {taken} are resident",
                    info.recycled_bytes, info.range_end
                );
                break;
            }
            assert!(
                Instant::now() < deadline,
                "{taken} bytes are resident: {info:?}"
            );
            // Waits for a sampler that does not run, so that the buffer does not fill.
            if info.range_end - info.recycled_bytes < MAX_UNRELEASED {
                flood.add_markers();
            } else {
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        flood.add_markers();
        println!("markers: {}", flood.markers());
        drop(profiler);
        // The profile ends before `saved`, so it contains all that happened after this time.
        let saved = ProfilerTime::now();
        let is_recent = |start: &&ProfilerTime| saved.duration_since(**start) < DURATION;
        let recent = flood.batches.iter().filter(is_recent).count();
        println!("recent markers: {}", recent * MARKERS_OF_BATCH);
    }
}

#[test]
fn older_data_is_released_and_the_last_second_is_complete() {
    isolated(|| {
        let file =
            std::env::temp_dir().join(format!("gekkota-duration-{}.json", std::process::id()));
        let mut command = Command::new(std::env::current_exe().expect("path"));
        command
            .args([
                "environment::startup_duration::role_of_the_flooding_child",
                "--exact",
                "--include-ignored",
                "--nocapture",
            ])
            .env(ROLE, "flooding")
            .envs([
                ("MOZ_PROFILER_STARTUP", "1"),
                ("MOZ_PROFILER_STARTUP_DURATION", "1"),
                ("MOZ_PROFILER_SYMBOLICATE", "0"),
                ("MOZ_PROFILER_SHUTDOWN", file.to_str().expect("UTF-8")),
            ]);
        let output = command.output().expect("the child");
        let stdout = String::from_utf8_lossy(&output.stdout);
        println!("{stdout}");
        assert!(output.status.success(), "{output:?}");
        let count = |name: &str| -> usize {
            let value = stdout.lines().find_map(|line| line.strip_prefix(name));
            value.expect("a line").parse().expect("a number")
        };
        let (total, recent) = (count("markers: "), count("recent markers: "));
        let read = Read::from_text(&std::fs::read(&file).expect("the profile"));
        std::fs::remove_file(file).expect("removed");

        let meta = &read.0["meta"];
        let time = |name: &str| {
            meta[name]
                .as_f64()
                .unwrap_or_else(|| panic!("{name} in {meta}"))
        };
        let (cut, end) = (time("contentEarliestTime"), time("profilingEndTime"));
        let duration_ms = DURATION.as_secs_f64() * 1e3;
        assert!(
            (end - cut - duration_ms).abs() < 0.001,
            "from {cut} to {end}"
        );
        let losses = &meta["losses"];
        assert!(
            losses["recycled_chunks"].as_u64() > Some(2) && losses["dropped_entries"] == 0,
            "{losses}"
        );
        let markers = read.markers("floods");
        let number = |data: &serde_json::Value| {
            let text = data["name"].as_str().expect("a text");
            text.split(' ')
                .next()
                .and_then(|number| number.parse::<usize>().ok())
                .expect("a number")
        };
        let numbers: Vec<_> = markers.iter().map(|marker| number(&marker.5)).collect();
        // On a busy machine, the last second may have no markers.
        let first = numbers.first().copied().unwrap_or(total);
        assert!(
            first > 0 && numbers == (first..total).collect::<Vec<_>>(),
            "{first} to {total}"
        );
        assert!(
            first <= total - recent,
            "the first marker is {first}, but the last {recent} of {total} are recent"
        );
        assert!(
            markers.iter().all(|marker| marker.1 >= cut),
            "markers from before {cut}"
        );
        let samples = read.samples("floods");
        assert!(
            samples
                .iter()
                .all(|sample| (cut..=end).contains(&sample.time_ms)),
            "samples outside of {cut} to {end}"
        );
        println!("{} samples, {recent} recent markers", samples.len());
    });
}
