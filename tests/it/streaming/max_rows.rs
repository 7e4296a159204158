//! A profile with too many rows leaves out some of the rows in which threads slept, and reports how
//! many.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{
    Read, Sample, Sleeper, isolated, mark, samples_of, wait_until, work, work_for,
};
use gekkota::profile::{Format, SnapshotOptions, Symbolicate};
use gekkota::{Profile, ProfilerSession, StartParams};
use serde_json::Value;

const MARKERS: u64 = 50;
/// Minimum number of samples in the profile.
const ROWS: u64 = 1000;

static END: AtomicBool = AtomicBool::new(false);

fn busy() {
    gekkota::register_thread("busy");
    (0..MARKERS).for_each(|_| mark("M"));
    while !END.load(Ordering::Relaxed) {
        work_for(Duration::from_millis(30));
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Sleeps out of step with the sampler, and long enough for runs of idle rows.
fn restless() {
    gekkota::register_thread("restless");
    while !END.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(33));
        work(1000);
    }
}

fn written(profile: &Profile, max_rows: Option<u64>) -> Read {
    let options = SnapshotOptions::default().symbolicate(Symbolicate::No);
    let options = max_rows
        .into_iter()
        .fold(options, SnapshotOptions::max_rows);
    let mut text = Vec::new();
    profile
        .write_with(Format::Gecko, &mut text, &options)
        .expect("a vector never fails");
    Read::from_text(&text)
}

fn left_out(read: &Read) -> u64 {
    let log =
        &read.0["profilingLog"][std::process::id().to_string()]["buffer"]["left_out_idle_rows"];
    assert_eq!(&read.0["meta"]["losses"]["left_out_idle_rows"], log);
    log.as_u64().expect("a number")
}

fn rows(read: &Read, table: &str) -> u64 {
    let rows = |thread: &Value| thread[table]["data"].as_array().expect("rows").len() as u64;
    read.threads().iter().map(rows).sum()
}

/// Returns the number of rows in which the busy thread ran.
fn running(read: &Read) -> usize {
    read.samples("busy")
        .iter()
        .filter(|row| row.cpu_ns > Some(0))
        .count()
}

fn is_same(one: &Sample, other: &Sample) -> bool {
    (one.time_ms, one.cpu_ns, &one.stack) == (other.time_ms, other.cpu_ns, &other.stack)
}

/// Checks the rows that a thread keeps, and returns the maximum number of consecutive rows that are
/// left out.
fn longest_gap(name: &str, all: &[Sample], left: &[Sample]) -> u64 {
    let mut all = all.iter();
    let mut longest = 0;
    let mut before: Option<&Sample> = None;
    for kept in left {
        let mut gap = 0;
        loop {
            let next = all
                .next()
                .unwrap_or_else(|| panic!("{name}: {kept:?} is not in the whole profile"));
            if is_same(next, kept) {
                break;
            }
            // The thread ran neither between the previous row and this one nor until the next.
            let before = before.unwrap_or_else(|| panic!("{name}: its first row is missing"));
            assert_eq!(
                (next.cpu_ns, kept.cpu_ns),
                (Some(0), Some(0)),
                "{name}: {next:?} before {kept:?}"
            );
            assert!(
                next.stack == before.stack && next.stack == kept.stack,
                "{name}: {next:?}"
            );
            assert!(
                before.time_ms <= next.time_ms && next.time_ms <= kept.time_ms,
                "{name}: {next:?}"
            );
            gap += 1;
        }
        longest = longest.max(gap);
        before = Some(kept);
    }
    assert!(all.next().is_none(), "{name}: its last row is missing");
    longest
}

#[test]
fn idle_rows_beyond_max_rows_are_left_out_and_counted() {
    isolated(|| {
        let session =
            ProfilerSession::start(StartParams::default().interval(Duration::from_micros(500)));
        let session = session.expect("start");
        let sleepers = ["sleeper 1", "sleeper 2", "sleeper 3"].map(Sleeper::start);
        let threads = [busy, restless].map(std::thread::spawn);
        let mut enough = None;
        wait_until(
            "there are enough rows, and enough idle ones among them",
            || {
                std::thread::sleep(Duration::from_millis(1200));
                let profile = session.snapshot().expect("active");
                let whole = written(&profile, None);
                let all = rows(&whole, "samples");
                let idle = left_out(&written(&profile, Some(0)));
                let is_enough = all > ROWS
                    && running(&whole) > 50
                    && rows(&whole, "markers") == MARKERS
                    && all - idle < all / 10 * 9;
                enough = is_enough.then_some(profile);
                is_enough
            },
        );
        let profile = enough.expect("a profile with enough rows");
        END.store(true, Ordering::Relaxed);
        threads
            .into_iter()
            .for_each(|thread| thread.join().expect("thread"));
        drop(session);
        drop(sleepers);

        let whole = written(&profile, None);
        let all = rows(&whole, "samples");
        assert_eq!((left_out(&whole), rows(&whole, "markers")), (0, MARKERS));
        for limit in [u64::MAX, all + MARKERS] {
            assert_eq!(
                written(&profile, Some(limit)).0["threads"],
                whole.0["threads"],
                "{limit}"
            );
        }
        // All rows that can be left out are left out.
        let least = all - left_out(&written(&profile, Some(0)));
        println!("{all} rows, at least {least} of them are kept");
        assert!(least < all / 10 * 9, "{least} of {all}");

        let spare = all - least;
        for limit in [
            0,
            least,
            least + 1,
            least + spare / 10,
            least + spare / 3,
            all - 1,
        ] {
            let read = written(&profile, Some(limit + MARKERS));
            let left = rows(&read, "samples");
            assert_eq!(
                (left + left_out(&read), rows(&read, "markers")),
                (all, MARKERS),
                "{limit}"
            );
            assert!(left <= limit.max(least), "{left} rows for {limit}");
            assert_eq!(read.threads().len(), whole.threads().len());
            let mut gap = 0;
            for (of_whole, of_read) in whole.threads().iter().zip(read.threads()) {
                assert_eq!(of_whole["tid"], of_read["tid"]);
                let name = of_read["name"].as_str().expect("a name");
                gap = gap.max(longest_gap(
                    name,
                    &samples_of(of_whole),
                    &samples_of(of_read),
                ));
            }
            // The rows that are kept are evenly spaced.
            if let Some(most) = limit
                .checked_sub(least)
                .filter(|&spare| spare > 0)
                .map(|spare| all.div_ceil(spare))
            {
                assert!(
                    (1..most).contains(&gap),
                    "{gap} consecutive rows are missing, expected fewer than {most}"
                );
            }
        }
        assert_eq!(running(&written(&profile, Some(0))), running(&whole));
    });
}
