//! Finds a leak: parses large documents, and keeps a little of each.
//!
//! ```text
//! cargo run --release --example heap [-- FILE]
//! ```
//!
//! A thread parses JSON documents of 6 MB with `serde_json`. It frees them, but a cache in
//! `remember_answer` is never emptied. In the viewer, select the main thread and choose “Retained
//! memory” above the call tree: `remember_answer` has nearly all retained memory. It allocates only
//! a small part of what the parser allocates (“Allocated memory”). The track “malloc” shows how the
//! memory grows.

use std::collections::HashMap;
use std::error::Error;
use std::fmt::Write;
use std::path::PathBuf;
use std::thread;

use gekkota::memory::ProfilerAllocator;
use gekkota::{AutoProfilerInit, Features, ProfilerSession, StartParams};
use serde_json::Value;

#[global_allocator]
static ALLOCATOR: ProfilerAllocator = ProfilerAllocator::system();

const DOCUMENTS: usize = 20;
const ANSWERS_PER_DOCUMENT: usize = 40_000;

/// Answers by their ids, which never come again.
type Cache = HashMap<String, Vec<String>>;

fn document(number: usize) -> Result<String, std::fmt::Error> {
    let mut text = String::from("[");
    for answer in 0..ANSWERS_PER_DOCUMENT {
        let separator = if answer == 0 { "" } else { "," };
        write!(
            text,
            "{separator}{{\"id\":\"{number}-{answer}\",\"took_ms\":{answer},\"status\":{{\"code\":200,\"text\":\"fine\"}},\
             \"words\":[\"alpha\",\"beta\",\"gamma\",\"delta\"],\"path\":[\"api\",\"v1\",\"users\",\"{answer}\"]}}"
        )?;
    }
    text.push(']');
    Ok(text)
}

/// Returns the time that all answers of a document took.
#[inline(never)]
fn parse_and_sum(text: &str, cache: &mut Cache) -> Result<u64, serde_json::Error> {
    let answers: Vec<Value> = serde_json::from_str(text)?;
    let mut sum = 0;
    for answer in &answers {
        sum += answer["took_ms"].as_u64().unwrap_or(0);
        remember_answer(answer, cache);
    }
    Ok(sum)
}

#[inline(never)]
fn remember_answer(answer: &Value, cache: &mut Cache) {
    let texts = |list: &Value| -> Vec<String> {
        let items = list.as_array().into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    if let Some(id) = answer["id"].as_str() {
        cache.insert(id.to_owned(), texts(&answer["path"]));
    }
}

fn work() -> Result<(u64, Cache), Box<dyn Error + Send + Sync>> {
    let mut cache = Cache::new();
    let mut sum = 0;
    for number in 0..DOCUMENTS {
        let text = document(number)?;
        sum += parse_and_sum(&text, &mut cache)?;
    }
    Ok((sum, cache))
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let _profiler = AutoProfilerInit::new();
    let file = std::env::args_os()
        .nth(1)
        .map_or_else(|| "heap.profile.json".into(), PathBuf::from);
    let features = Features::MEMORY | Features::NATIVE_ALLOCATIONS;
    let params = StartParams::default().features(Features::default_set() | features);
    let session = ProfilerSession::start(params)?;

    let parser = thread::Builder::new()
        .name("parser".to_owned())
        .spawn(work)?;
    let (sum, cache) = parser.join().map_err(|_| "the parser panicked")??;
    // The cache is still alive here, as in a program that leaks.
    let profile = session.finish()?;
    println!(
        "{sum} ms in {} answers, which are all still in the cache",
        cache.len()
    );

    profile.save(&file)?;
    println!(
        "{} saved: open it at https://profiler.firefox.com",
        file.display()
    );
    Ok(())
}
