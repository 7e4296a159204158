//! What a session keeps of ended threads is bounded, and the profile says what was dropped.

use crate::common::{Read, isolated, mark, one_loop};
use gekkota::profile::{SnapshotOptions, Symbolicate};
use gekkota::{
    Features, ProfilerTime, StartParams, profiler_pause_sampling, profiler_resume_sampling,
    profiler_start, profiler_stop, profiler_stream_json, register_thread,
};

/// Starts a session that records no samples, so that only markers are in the buffer.
fn start_without_samples(capacity_bytes: u64) {
    let params = StartParams::default()
        .capacity_bytes(capacity_bytes)
        .features(Features::NO_STACK_SAMPLING);
    profiler_start(params).expect("start");
    profiler_pause_sampling();
}

/// Runs a thread to its end.
fn run_thread<T: Send + 'static>(name: String, body: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::spawn(move || {
        register_thread(&name);
        body()
    });
    thread.join().expect("thread")
}

/// Returns the profile after the sampler has seen all ended threads.
fn read_after_sampler() -> Read {
    one_loop();
    one_loop();
    Read::of_running()
}

/// Returns the numbers of the threads whose names begin with `prefix`, in the profile's order.
fn numbers(read: &Read, prefix: &str) -> Vec<usize> {
    read.threads()
        .iter()
        .filter_map(|thread| thread["name"].as_str()?.strip_prefix(prefix)?.parse().ok())
        .collect()
}

fn loss(read: &Read, name: &str) -> u64 {
    let losses = &read.0["meta"]["losses"];
    losses[name]
        .as_u64()
        .unwrap_or_else(|| panic!("no {name} in {losses}"))
}

#[test]
fn ended_threads_without_entries_leave_the_newest_thousand() {
    const THREADS: usize = 3000;
    const KEPT: usize = 1000;
    isolated(|| {
        start_without_samples(128 << 20);
        for number in 0..10 {
            run_thread(format!("marked {number}"), || mark("here"));
        }
        for number in 0..THREADS {
            run_thread(format!("empty {number}"), || ());
        }
        let read = read_after_sampler();
        let expected: Vec<_> = (THREADS - KEPT..THREADS).collect();
        let empty = numbers(&read, "empty ");
        assert!(
            empty == expected,
            "{} threads are left, the first {:?}",
            empty.len(),
            empty.first()
        );
        assert_eq!(
            loss(&read, "dropped_empty_threads"),
            (THREADS - KEPT) as u64
        );
        // Threads with entries stay, and no entry is missing.
        assert_eq!(numbers(&read, "marked "), (0..10).collect::<Vec<_>>());
        assert_eq!(loss(&read, "dropped_ended_threads"), 0);
        assert_eq!(loss(&read, "entries_without_thread"), 0);
        assert!(read.0["meta"]["contentEarliestTime"].is_null());
        profiler_stop();
    });
}

#[test]
fn ended_threads_beyond_their_share_are_dropped_and_counted() {
    const THREADS: usize = 500;
    isolated(|| {
        // The share is 32 KiB.
        start_without_samples(256 << 10);
        let times: Vec<_> = (0..THREADS)
            .map(|number| {
                run_thread(format!("marked {number}"), || {
                    mark("here");
                    ProfilerTime::now()
                })
            })
            .collect();
        let read = read_after_sampler();
        let kept = numbers(&read, "marked ");
        let dropped = THREADS - kept.len();
        assert!(kept.len() > 20 && dropped > 20, "{} are left", kept.len());
        assert_eq!(kept, (dropped..THREADS).collect::<Vec<_>>());
        assert_eq!(loss(&read, "dropped_ended_threads"), dropped as u64);
        // The buffer has not discarded anything, so the markers of these threads are counted.
        assert_eq!(loss(&read, "recycled_chunks"), 0);
        assert_eq!(loss(&read, "entries_without_thread"), dropped as u64);
        let oldest = read.thread(&format!("marked {dropped}"));
        let earliest = read.0["meta"]["contentEarliestTime"]
            .as_f64()
            .expect("entries are missing");
        let oldest_registered = oldest["registerTime"].as_f64().expect("a time");
        let oldest_marked = oldest["markers"]["data"][0][1].as_f64().expect("a time");
        let since_last_missing = times[dropped].duration_since(times[dropped - 1]);
        // A thread reads the time after its marker and before its end, so this is too early rather
        // than too late.
        let last_missing = oldest_marked - since_last_missing.as_secs_f64() * 1e3;
        assert!(earliest <= oldest_registered, "{earliest}");
        assert!(
            last_missing <= earliest + 1e-3,
            "complete since {earliest}, but the marker at {last_missing} is missing"
        );
        let log = &read.0["profilingLog"][std::process::id().to_string()]["buffer"];
        assert!(
            log["kept_bytes"]
                .as_u64()
                .is_some_and(|bytes| bytes > 16 << 10 && bytes <= 32 << 10),
            "{log}"
        );
        profiler_stop();
    });
}

/// What the profiler holds of ended threads.
#[derive(Clone, Copy, Debug)]
struct Held {
    threads: usize,
    profile_bytes: usize,
    resident_bytes: usize,
}

impl Held {
    fn now(prefix: &str) -> Self {
        let options = SnapshotOptions::default().symbolicate(Symbolicate::No);
        let mut text = Vec::new();
        profiler_stream_json(&mut text, &options).expect("active");
        let threads = numbers(&Read::from_text(&text), prefix).len();
        let profile_bytes = text.len();
        drop(text);
        let pages = std::fs::read_to_string("/proc/self/statm").expect("statm");
        let pages = pages.split(' ').nth(1).and_then(|pages| pages.parse().ok());
        Self {
            threads,
            profile_bytes,
            resident_bytes: pages.map_or(0, |pages: usize| pages * 4096),
        }
    }
}

#[test]
fn memory_and_profile_do_not_grow_with_the_number_of_ended_threads() {
    const FEW: usize = 3_000;
    const MANY: usize = 20_000;
    const CAPACITY_BYTES: usize = 2 << 20;
    isolated(|| {
        let params = StartParams::default().capacity_bytes(CAPACITY_BYTES as u64);
        profiler_start(params).expect("start");
        profiler_pause_sampling();
        let run_threads = |range: std::ops::Range<usize>| {
            for number in range {
                let is_sampled = number % 100 == 0;
                if is_sampled {
                    profiler_resume_sampling();
                }
                run_thread(format!("short {number}"), move || {
                    mark("here");
                    if is_sampled {
                        one_loop();
                    }
                });
                if is_sampled {
                    profiler_pause_sampling();
                }
            }
        };
        run_threads(0..FEW);
        let few = Held::now("short ");
        run_threads(FEW..MANY);
        let many = Held::now("short ");
        // Each thread takes 200 bytes or more of the share, an eighth of the capacity.
        let most = CAPACITY_BYTES / 8 / 200;
        assert!(few.threads > 100, "{few:?}");
        assert!(many.threads <= most, "{few:?}, then {many:?}");
        assert!(
            many.profile_bytes < 4 * few.profile_bytes,
            "{few:?}, then {many:?}"
        );
        let grown = many.resident_bytes.saturating_sub(few.resident_bytes);
        assert!(
            grown < CAPACITY_BYTES + (MANY - FEW) * 100,
            "{few:?}, then {many:?}"
        );
        println!("{few:?}, then {many:?}");
        profiler_stop();
    });
}
