//! With `MOZ_PROFILER_STARTUP_DURATION` a program keeps its last seconds: what is older is given back while it runs.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::left_behind::status_kib;
use crate::common::{Read, isolated};
use gekkota::{BufferInfo, MarkerOptions, gecko_profiler_category, profiler_get_buffer_info};

const ROLE: &str = "GEKKOTA_TEST_ROLE";
/// So much is there room for, so that nothing is given back for want of it.
const CAPACITY: u64 = 128 << 20;
const DURATION_MS: f64 = 1000.0;

/// Adds some megabytes of markers a second, and gives the number of the next one.
fn add_markers(from: usize) -> usize {
    let end = Instant::now() + Duration::from_millis(100);
    let mut number = from;
    while Instant::now() < end {
        for _ in 0..50 {
            let text = format!("{number} {}", "x".repeat(100));
            gekkota::add_text_marker(
                "M",
                gecko_profiler_category!(Other),
                MarkerOptions::default(),
                &text,
            );
            number += 1;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    number
}

fn info() -> (BufferInfo, u64) {
    let info = profiler_get_buffer_info().expect("active");
    assert!(
        info.range_end < CAPACITY,
        "there is room for everything: {info:?}"
    );
    (info, status_kib("VmRSS:") as u64 * 1024)
}

/// Until there was twice as much as there is.
#[test]
fn role_of_the_flooded() {
    if std::env::var(ROLE).is_ok_and(|role| role == "flooded") {
        let _profiler = gekkota::AutoProfilerInit::new();
        gekkota::register_thread("floods");
        let (_, before) = info();
        let deadline = Instant::now() + Duration::from_secs(600);
        let mut number = 0;
        loop {
            number = add_markers(number);
            let (info, resident) = info();
            let taken = resident.saturating_sub(before);
            if info.recycled_bytes > info.range_end / 3 && taken * 2 < info.range_end {
                println!(
                    "{} of {} bytes were given back, {taken} are taken",
                    info.recycled_bytes, info.range_end
                );
                break;
            }
            assert!(
                Instant::now() < deadline,
                "{taken} bytes are taken, of {info:?}"
            );
        }
        println!("markers: {number}");
    }
}

#[test]
fn what_is_older_is_given_back_and_the_last_second_is_whole() {
    isolated(|| {
        let file =
            std::env::temp_dir().join(format!("gekkota-duration-{}.json", std::process::id()));
        let mut command = Command::new(std::env::current_exe().expect("path"));
        command
            .args([
                "environment::startup_duration::role_of_the_flooded",
                "--exact",
                "--nocapture",
            ])
            .env(ROLE, "flooded")
            .envs([
                ("MOZ_PROFILER_STARTUP", "1"),
                ("MOZ_PROFILER_STARTUP_DURATION", "1"),
                ("MOZ_PROFILER_SYMBOLICATE", "0"),
                ("MOZ_PROFILER_SHUTDOWN", file.to_str().expect("UTF-8")),
            ]);
        let output = command.output().expect("the child");
        let told = String::from_utf8_lossy(&output.stdout);
        println!("{told}");
        assert!(output.status.success(), "{output:?}");
        let line = told
            .lines()
            .find_map(|line| line.split_once("markers: "))
            .expect("a line");
        let total: usize = line.1.parse().expect("a number");
        let read = Read::from_text(&std::fs::read(&file).expect("the profile"));
        std::fs::remove_file(file).expect("removed");

        let meta = &read.0["meta"];
        let time = |name: &str| {
            meta[name]
                .as_f64()
                .unwrap_or_else(|| panic!("{name} in {meta}"))
        };
        let (cut, end) = (time("contentEarliestTime"), time("profilingEndTime"));
        assert!(
            (end - cut - DURATION_MS).abs() < 0.001,
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
        let first = *numbers.first().expect("markers");
        assert!(
            first > 0 && numbers == (first..total).collect::<Vec<_>>(),
            "{first} to {total}"
        );
        let first_ms = markers[0].1;
        assert!(
            first_ms >= cut && first_ms < cut + DURATION_MS * 0.9,
            "{first_ms}, cut at {cut}"
        );
        let samples = read.samples("floods");
        assert!(
            samples
                .iter()
                .all(|sample| (cut..=end).contains(&sample.time_ms))
                && !samples.is_empty()
        );
    });
}
