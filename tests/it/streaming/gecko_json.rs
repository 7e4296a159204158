//! The profile follows every rule that Firefox Profiler's loader relies on. Breaking one would make
//! the loader fail or lose data silently.

use std::io::Write;
use std::time::Duration;

use crate::common::{Read, isolated, samples_of, wait_until, work_for_cpu};
use gekkota::profile::{Format, SnapshotOptions, Symbolicate};
use gekkota::{MarkerOptions, ProfilerSession, StartParams, StreamError};
use serde_json::Value;

const WORKER: &str = "worker \"quoted\"";
/// Minimum CPU time of the worker.
const CPU_TIME: Duration = Duration::from_millis(200);
/// Memory that the test writes at the end.
const MEMORY_BYTES: usize = 64 << 20;

/// Records a session whose worker has a sample within its label, and whose counters have at least
/// `CPU_TIME` and half of `MEMORY_BYTES`. The profiler may release memory during the session.
fn profile() -> gekkota::Profile {
    let session = ProfilerSession::start(StartParams::default()).expect("start");
    let worker = std::thread::spawn(|| {
        gekkota::register_thread(WORKER);
        let category = gekkota::gecko_profiler_category!(Network);
        gekkota::add_untyped_marker("Untyped", category, MarkerOptions::default());
        gekkota::add_text_marker(
            "Text",
            category,
            MarkerOptions::default(),
            "a text\nof two lines",
        );
        gekkota::auto_profiler_label!("0xlabel", JavaScript, Parsing);
        work_for_cpu(CPU_TIME);
        wait_until("the label is sampled", || {
            work_for_cpu(Duration::from_millis(5));
            let samples = Read::of_running().samples(WORKER);
            let mut frames = samples.iter().flat_map(|sample| &sample.stack);
            frames.any(|frame| frame.ends_with("0xlabel"))
        });
    });
    worker.join().expect("thread");
    // The sampler may start late, and counts from then on.
    wait_until("the counter has that much CPU time", || {
        work_for_cpu(Duration::from_millis(5));
        let read = Read::of_running();
        let rows = read.0["counters"][0]["samples"]["data"].as_array();
        rows.is_some_and(|rows| counted_cpu(rows) >= CPU_TIME)
    });
    let memory = vec![1u8; MEMORY_BYTES];
    wait_until("the counter has that much memory", || {
        std::hint::black_box(&memory);
        let read = Read::of_running();
        let rows = read.0["counters"][1]["samples"]["data"].as_array();
        // The first row has the memory at the beginning.
        let growth = rows.into_iter().flatten().skip(1);
        let growth: i64 = growth.filter_map(|row| row[1].as_i64()).sum();
        growth >= MEMORY_BYTES as i64 / 2
    });
    session.finish().expect("profile")
}

/// Returns the sum of a CPU time counter's rows.
fn counted_cpu(rows: &[Value]) -> Duration {
    let growth = rows.iter().map(|row| row[1].as_u64().expect("count"));
    Duration::from_nanos(growth.sum())
}

/// Returns the CPU time of the process.
fn process_cpu() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel fills a local.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn schema_has(table: &Value, columns: &[&str]) {
    for column in columns {
        assert!(
            table["schema"][column].is_u64(),
            "{column} is not in {}",
            table["schema"]
        );
    }
}

fn index_below(value: &Value, limit: usize) -> usize {
    let index = value.as_u64().expect("an index") as usize;
    assert!(index < limit, "{index} is not below {limit}");
    index
}

#[test]
fn profile_follows_the_loaders_rules() {
    isolated(|| {
        let profile = profile();
        let mut text = Vec::new();
        profile
            .write(Format::Gecko, &mut text)
            .expect("a vector never fails");
        let compact = serde_json::to_vec(&serde_json::from_slice::<Value>(&text).expect("JSON"))
            .expect("JSON");
        assert!(
            text.len() <= compact.len() + 200,
            "white space in the profile: {} bytes, compact {}",
            text.len(),
            compact.len()
        );

        let read = Read::from_text(&text);
        let root = &read.0;
        check_meta(&root["meta"]);
        check_libraries(root["libs"].as_array().expect("libs"));
        schema_has(
            &root["sources"],
            &["id", "filename", "startLine", "startColumn", "sourceMapURL"],
        );
        for key in ["pages", "pausedRanges", "processes"] {
            assert_eq!(root[key].as_array().map(Vec::len), Some(0), "{key}");
        }
        let log = root["profilingLog"].as_object().expect("profilingLog");
        assert_eq!(
            log.keys().collect::<Vec<_>>(),
            [&std::process::id().to_string()]
        );
        check_cpu_counter(root);

        assert_eq!(read.threads()[0]["name"], "GeckoMain");
        for thread in read.threads() {
            check_tables(thread, root);
        }
        let worker = read.thread(WORKER);
        let label = "\u{a0}0xlabel";
        assert!(
            samples_of(worker)
                .iter()
                .any(|sample| sample.stack.iter().any(|frame| frame == label))
        );
        let texts = read.markers(WORKER);
        assert_eq!(
            texts
                .iter()
                .map(|marker| marker.0.as_str())
                .collect::<Vec<_>>(),
            ["Untyped", "Text"]
        );
        assert_eq!((texts[0].4, &texts[0].5), (6, &Value::Null));
        assert_eq!(texts[1].5["name"], "a text\nof two lines");
    });
}

fn check_meta(meta: &Value) {
    assert_eq!(meta["version"], 36);
    assert_eq!(meta["presymbolicated"], true);
    assert_eq!(meta["sampleUnits"]["threadCPUDelta"], "ns");
    for key in [
        "startTime",
        "interval",
        "profilingStartTime",
        "profilingEndTime",
        "logicalCPUs",
    ] {
        assert!(
            meta[key].as_f64().is_some_and(|number| number > 0.0),
            "{key}: {}",
            meta[key]
        );
    }
    for key in ["product", "platform", "oscpu", "abi"] {
        assert!(
            meta[key].as_str().is_some_and(|text| !text.is_empty()),
            "{key}: {}",
            meta[key]
        );
    }
    for key in ["features", "threads"] {
        assert!(
            meta["configuration"][key]
                .as_array()
                .is_some_and(|list| !list.is_empty()),
            "{key}"
        );
    }
    for category in meta["categories"].as_array().expect("categories") {
        assert!(
            category["color"].is_string() && category["subcategories"][0].is_string(),
            "{category}"
        );
    }
    let schemas = meta["markerSchema"].as_array().expect("markerSchema");
    assert_eq!(schemas.len(), 1);
    assert_eq!(schemas[0]["name"], "Text");
    assert!(schemas[0]["display"].is_array() && schemas[0]["data"].is_array());
}

fn check_libraries(libs: &[Value]) {
    assert!(
        libs.len() >= 3,
        "expected this program, the C library and the vDSO: {libs:?}"
    );
    let mut end = 0;
    for lib in libs {
        assert!(
            lib["start"].as_u64().expect("start") >= end,
            "overlaps or precedes the previous library: {lib}"
        );
        end = lib["end"].as_u64().expect("end");
        assert_eq!(lib["offset"], 0);
        assert!(
            !lib["name"].as_str().expect("name").contains(['(', ')']),
            "{lib}"
        );
        let breakpad_id = lib["breakpadId"].as_str().expect("breakpadId");
        assert!(breakpad_id.is_empty() || breakpad_id.len() == 33, "{lib}");
    }
    let own = std::env::current_exe().expect("path");
    let own = libs
        .iter()
        .find(|lib| lib["path"] == own.to_str().expect("UTF-8"))
        .expect("this program");
    assert!(
        own["codeId"].as_str().is_some_and(|id| id.len() >= 32),
        "{own}"
    );
}

fn check_cpu_counter(root: &Value) {
    let counters = root["counters"].as_array().expect("counters");
    let names = counters.iter().map(|counter| {
        schema_has(&counter["samples"], &["time", "count"]);
        [&counter["category"], &counter["name"]]
    });
    // The viewer hides a counter of category `CPU` that is named `processCPU`.
    assert_eq!(
        names.collect::<Vec<_>>(),
        [["CPU", "Process CPU"], ["Memory", "Resident memory"]]
    );
    let rows = counters[0]["samples"]["data"].as_array().expect("rows");
    let times: Vec<f64> = rows
        .iter()
        .map(|row| row[0].as_f64().expect("time"))
        .collect();
    assert!(times.is_sorted(), "{times:?}");
    let (counted, total) = (counted_cpu(rows), process_cpu());
    assert!(
        counted >= CPU_TIME && counted <= total,
        "counted {counted:?}, worked {CPU_TIME:?}, the process has used {total:?}"
    );
}

fn check_tables(thread: &Value, root: &Value) {
    schema_has(
        &thread["markers"],
        &["name", "startTime", "endTime", "phase", "category", "data"],
    );
    schema_has(
        &thread["samples"],
        &["stack", "time", "eventDelay", "threadCPUDelta"],
    );
    schema_has(
        &thread["frameTable"],
        &[
            "location",
            "relevantForJS",
            "innerWindowID",
            "line",
            "column",
            "category",
            "subcategory",
        ],
    );
    schema_has(&thread["stackTable"], &["prefix", "frame"]);
    for key in ["tid", "pid"] {
        assert!(thread[key].is_i64(), "{key}");
    }
    assert!(thread["registerTime"].is_number());
    assert!(thread.get("unregisterTime").is_some());

    let rows = |table: &str| thread[table]["data"].as_array().expect("rows").clone();
    let strings = thread["stringTable"].as_array().expect("strings").len();
    let (frames, stacks) = (rows("frameTable"), rows("stackTable"));
    for frame in &frames {
        index_below(&frame[0], strings);
        if let Some(category) = frame.get(6) {
            let categories = root["meta"]["categories"].as_array().expect("categories");
            let category = &categories[index_below(category, categories.len())];
            index_below(
                &frame[7],
                category["subcategories"]
                    .as_array()
                    .expect("subcategories")
                    .len(),
            );
        }
    }
    for (index, stack) in stacks.iter().enumerate() {
        index_below(&stack[1], frames.len());
        assert!(
            stack[0].is_null() || index_below(&stack[0], index) < index,
            "the prefix of stack {index} does not precede it"
        );
    }
    let span = ["profilingStartTime", "profilingEndTime"]
        .map(|key| root["meta"][key].as_f64().expect("time"));
    let mut time = span[0];
    for sample in rows("samples") {
        index_below(&sample[0], stacks.len());
        let next = sample[1].as_f64().expect("time");
        assert!(
            time <= next && next <= span[1],
            "{next} is not between {time} and {}",
            span[1]
        );
        time = next;
    }
    for marker in rows("markers") {
        index_below(&marker[0], strings);
        assert!(!(marker[1].is_null() && marker[2].is_null()), "{marker}");
    }
}

#[test]
fn profile_without_names_has_addresses() {
    isolated(|| {
        let profile = profile();
        let mut text = Vec::new();
        let options = SnapshotOptions::default().symbolicate(Symbolicate::No);
        profile
            .write_with(Format::Gecko, &mut text, &options)
            .expect("a vector never fails");
        let read = Read::from_text(&text);
        assert_eq!(read.0["meta"]["presymbolicated"], false);
        let samples = read.samples(WORKER);
        let leaf = samples[samples.len() / 2]
            .stack
            .last()
            .expect("a leaf")
            .clone();
        let address = u64::from_str_radix(leaf.strip_prefix("0x").expect("an address"), 16)
            .expect("hexadecimal");
        let libs = read.0["libs"].as_array().expect("libs");
        let inside =
            |lib: &Value| (lib["start"].as_u64()..lib["end"].as_u64()).contains(&Some(address));
        assert!(libs.iter().any(inside), "{leaf} is in no library");
    });
}

#[test]
fn failing_writer_returns_its_error() {
    isolated(|| {
        let profile = profile();
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(std::io::Error::other("the disk is full"))
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let error = profile.write(Format::Gecko, &mut Full).unwrap_err();
        assert!(
            matches!(error, StreamError::Io(_)) && error.to_string().contains("the disk is full"),
            "{error}"
        );
    });
}
