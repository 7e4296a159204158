//! The seeds of the fuzzers: files below `tests/fuzz/seeds`, which the tests also check.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::buffer::EntryWriter;
use crate::family::{Hello, LAST_PROFILE, NumberedOrder, Order, Report, TextPart};
use crate::fuzzing::crash_files::CrashCase;
use crate::fuzzing::decoder::DecoderCase;
use crate::fuzzing::family_messages::TOKEN;
use crate::fuzzing::inputs::{decoded, random_bytes, scripted_chunks};
use crate::fuzzing::scripted_source::{PROCESS_START, SERIALS};
use crate::markers::{MarkerTiming, MarkerType, NewMarker, Tracing};
use crate::record::MarkerPayload;
use crate::session;
use crate::state::{
    CategoryFact, CodeFact, CounterFact, Fact, FactBytes, ModuleFact, PageFact, ProcessFact,
    ScriptFact, SessionFact, ThreadFact, TypeFact, core_buffer,
};
use crate::types::{
    ProfilingCategoryPair, ScriptDescription, StackFeatures, StartParams, ThreadId,
};
use crate::{labels, record};

fn fuzz_package() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz")
}

/// Returns the seeds of a target, with their paths. In the published crate, which does not contain
/// the fuzz package, returns no seeds.
pub(crate) fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = fuzz_package().join("seeds").join(target);
    let Ok(files) = fs::read_dir(&folder) else {
        assert!(!fuzz_package().exists(), "no seeds in {}", folder.display());
        return Vec::new();
    };
    let mut seeds: Vec<_> = files
        .map(|file| {
            let path = file.expect("a file").path();
            (
                path.display().to_string(),
                fs::read(path).expect("a readable file"),
            )
        })
        .collect();
    seeds.sort();
    seeds
}

/// Environment variable that makes the test rewrite all seeds:
/// `GEKKOTA_WRITE_SEEDS=1 cargo test --lib seed_files_match`.
const WRITE_SEEDS: &str = "GEKKOTA_WRITE_SEEDS";

fn write_seed(target: &str, name: &str, bytes: &[u8]) {
    let folder = fuzz_package().join("seeds").join(target);
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join(name), bytes).expect("a file");
}

/// Checks that the file of a reproducible seed is up to date, or writes it.
fn keep_seed(target: &str, name: &str, bytes: &[u8]) {
    if std::env::var_os(WRITE_SEEDS).is_some() {
        return write_seed(target, name, bytes);
    }
    let path = fuzz_package().join("seeds").join(target).join(name);
    if fuzz_package().exists() {
        assert_eq!(
            fs::read(&path).ok().as_deref(),
            Some(bytes),
            "{}",
            path.display()
        );
    }
}

/// Writes the seeds that come from a real session. Must run alone in its process, so that the
/// serial numbers of the threads equal those of the scripted threads.
fn write_session_seeds() {
    let session = session_chunks();
    let of_session: Vec<&[u8]> = session.iter().map(Vec::as_slice).take(3).collect();
    let of_session = [0, 1, 2].map(|chunk| of_session.get(chunk).copied().unwrap_or_default());
    let read = decoded(&of_session);
    assert!(
        read.malformed_entries == 0 && read.threads[..2].iter().all(|(_, rows)| rows.len() > 1)
    );
    let all = DecoderCase::IS_CUT | DecoderCase::BY_DURATION | DecoderCase::HAS_CODE;
    write_seed(
        "decoder",
        "session",
        &DecoderCase::bytes(0, 4, 0, of_session),
    );
    write_seed(
        "decoder",
        "session_cut",
        &DecoderCase::bytes(all, 2, 60_000_000, of_session),
    );
}

#[test]
fn seed_files_match_the_generated_seeds() {
    if std::env::var_os(WRITE_SEEDS).is_some() {
        write_session_seeds();
    }
    let scripted = scripted_chunks();
    let scripted = [0, 1, 2].map(|chunk| scripted.get(chunk).map_or(&[][..], Vec::as_slice));
    keep_seed(
        "decoder",
        "scripted",
        &DecoderCase::bytes(DecoderCase::IS_CUT, 3, 5_000, scripted),
    );
    keep_seed(
        "decoder",
        "malformed",
        &DecoderCase::bytes(0, 0, 0, [b"\x02\x01\x01", b"\xff\xff", b"\x00"]),
    );
    // Inputs for which fuzzing found a defect.
    for (name, content) in [
        ("found_return_address_0", &b"\x07\x01\x01\0\0\0\x01\x01"[..]),
        (
            "found_category_of_label",
            b"\x0b\x01\x01\0\0\0\x01\x03\x01\x09\0\0",
        ),
        (
            "found_time_before_probe",
            b"\x04\x06\x01\x32\0\x07\x01\x01\xc8\x01\0\0\0\x05\x02\x01\xc7\x01\0",
        ),
        (
            "found_runs_longer_than_time",
            b"\x11\x01\x01\0\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x09\0\0\
              \x0f\x02\x01\0\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x09\
              \x0f\x02\x01\0\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x09",
        ),
    ] {
        keep_seed(
            "decoder",
            name,
            &DecoderCase::bytes(0, 4, 0, [content, &[], &[]]),
        );
    }
    keep_seed(
        "crash_file",
        "scripted",
        &CrashCase::bytes(&facts(), scripted[0]),
    );
    keep_seed(
        "crash_file",
        "no_session",
        &CrashCase::bytes(&facts()[..1], scripted[1]),
    );
    keep_seed(
        "crash_file",
        "another_file",
        b"\0a whole file that is something else",
    );
    for (target, lengths) in [("json", [40, 400, 2000]), ("samples", [100, 800, 3000])] {
        for (name, length) in ["short", "middle", "long"].into_iter().zip(lengths) {
            keep_seed(
                target,
                name,
                &random_bytes(length as u64).take(length).collect::<Vec<_>>(),
            );
        }
    }
    for (name, messages) in family_messages() {
        keep_seed("family_messages", name, &messages);
    }
    let numbers = [0, 1, 127, 128, 16_383, 16_384, u64::MAX >> 1, u64::MAX];
    let mut coded = crate::buffer::EntryWriter::default();
    numbers.iter().for_each(|&number| _ = coded.number(number));
    keep_seed("leb128", "numbers", coded.bytes());
    keep_seed(
        "leb128",
        "too_large",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",
    );
    keep_seed("leb128", "longer_than_needed", b"\x80\x80\x00\x01\x81\x80");
}

/// Returns what a child, a stranger and a parent may send.
fn family_messages() -> [(&'static str, Vec<u8>); 3] {
    let hello = |token: &str| {
        Report::Hello(Hello {
            version: 1,
            process: 7,
            token: token.to_owned(),
            name: "worker".to_owned(),
        })
        .encode()
    };
    let last = |part| {
        let id = LAST_PROFILE;
        Report::Text { id, part }.encode()
    };
    let child = [
        hello(TOKEN),
        Report::Done {
            id: 1,
            failure: None,
        }
        .encode(),
        last(TextPart::Begins),
        last(TextPart::Data(b"{\"meta\": {}, \"threads\": []}")),
        last(TextPart::Ends),
    ];
    let orders = [Order::Welcome, Order::Stop, Order::Freeze, Order::Release];
    let orders = (1..).zip(orders).map(|(id, order)| {
        let order = NumberedOrder { id, order };
        order.encode().expect("short")
    });
    let parent: Vec<Vec<u8>> = orders.collect();
    [
        ("child", [&[0, 6][..], &child.concat()].concat()),
        ("stranger", [&[0, 200][..], &hello("x")].concat()),
        ("parent", [&[1, 9][..], &parent.concat()].concat()),
    ]
}

/// Returns facts of each kind, about the threads of the scripted chunks.
fn facts() -> Vec<Vec<u8>> {
    let threads = SERIALS.map(|serial| {
        Fact::from(ThreadFact {
            serial,
            tid: serial as i32,
            name: format!("thread {serial}"),
            is_main: serial == 1,
            registered_ns: 0,
            ended_ns: (serial == 3).then_some(5000),
        })
    });
    let others = [
        ProcessFact {
            pid: 7,
            product: "fuzzed".to_owned(),
            start_ns: PROCESS_START.0,
            start_epoch_ms: 1.7e12,
            ..ProcessFact::default()
        }
        .into(),
        SessionFact {
            started_ns: PROCESS_START.0,
            capacity_bytes: 1 << 20,
            interval_ns: 1_000_000,
            count_names: vec!["ticks".to_owned()],
            ..SessionFact::default()
        }
        .into(),
        CategoryFact {
            number: 25,
            label: "Category".to_owned(),
            color: "red".to_owned(),
            subcategories: vec!["Other".to_owned()],
        }
        .into(),
        CounterFact {
            id: 1,
            name: "counter".to_owned(),
            ..CounterFact::default()
        }
        .into(),
        ModuleFact {
            start: 0x1000,
            end: 0x9000,
            from_list: 1,
            until_list: Some(2),
            ..ModuleFact::default()
        }
        .into(),
        PageFact {
            inner_window_id: 3,
            url: "page".to_owned(),
            ..PageFact::default()
        }
        .into(),
        ScriptFact {
            number: 2,
            name: "f".to_owned(),
            file: "a.lua".to_owned(),
            line: 3,
            ..ScriptFact::default()
        }
        .into(),
        CodeFact {
            start: 0x20_000,
            end: 0x21_000,
            name: "code".to_owned(),
            script: Some(2),
        }
        .into(),
    ];
    MarkerType::number_of::<Tracing>();
    let of_tracing = MarkerType::all()[&1].describe().expect("a description");
    let tracing = TypeFact {
        number: 1,
        name: of_tracing.name,
        schema: of_tracing.schema,
        payload: FactBytes(of_tracing.payload),
    };
    let all = others.into_iter().chain(threads).chain([tracing.into()]);
    let encoded = |fact: Fact| {
        let mut out = EntryWriter::default();
        fact.encode(&mut out);
        out.bytes().to_vec()
    };
    all.map(encoded).collect()
}

/// Runs a short session and returns its chunks, largest first. Two threads work and sleep, with
/// labels, script frames, markers and a pause.
fn session_chunks() -> Vec<Vec<u8>> {
    let params = StartParams {
        interval: Duration::from_millis(4),
        ..StartParams::default()
    };
    session::start(&params).expect("a session");
    record::register_thread("first");
    let other = std::thread::spawn(|| {
        record::register_thread("second");
        work();
        std::thread::sleep(Duration::from_millis(20));
    });
    work();
    session::pause();
    session::resume();
    other.join().expect("no panic");
    session::freeze(None).expect("a session");
    let mut chunks: Vec<Vec<u8>> = core_buffer()
        .snapshot()
        .bytes_of_chunks()
        .map(<[u8]>::to_vec)
        .collect();
    session::stop();
    chunks.sort_by_key(|chunk| std::cmp::Reverse(chunk.len()));
    chunks
}

fn work() {
    let category = ProfilingCategoryPair::Other(None);
    let label = labels::push_label_with_text(
        record::stack_pointer(),
        "work",
        category,
        crate::types::FrameFlags::NONE,
        "some µ",
    );
    labels::register_script_function(ScriptDescription::new("f", "a.lua", 3, 1));
    let add = |name, stack: StackFeatures| {
        let destination =
            record::marker_destination(None, ThreadId::UNSPECIFIED).expect("it is recorded");
        let stack = record::record_own_stack(&destination, stack);
        let marker = NewMarker {
            name,
            category: category.indices().0,
            timing: &MarkerTiming::instant_now(),
            stack,
        };
        Some("text").put(&destination, &marker);
    };
    add("begun", StackFeatures::FULL);
    let end = Instant::now() + Duration::from_millis(40);
    while Instant::now() < end {
        std::hint::black_box(std::fs::read_to_string("/proc/self/stat").ok());
    }
    add("done", StackFeatures::LABELS);
    labels::pop_labels(&label);
}
