//! Four programs whose threads are made by libraries: rayon, Tokio, a C library, and the `ignore`
//! crate. They know nothing of the profiler.
//!
//! **Contract** (cited below):
//! - *workers*: `native/workers.c` may be called from any thread, but from one at a time, and keeps
//!   nothing of its caller. Its workers end before `peers_end_workers` returns.
#![allow(unsafe_code, reason = "a C library is called")]

use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use flate2::Compression;
use flate2::write::GzEncoder;
use ignore::{WalkBuilder, WalkState};
use rayon::prelude::*;
use regex::bytes::Regex;

use crate::busy::work;
use crate::random::Random;
use crate::temporary::Temporary;

/// Number of threads that a library makes, where it does not choose one itself.
const THREADS: usize = 4;

/// What a program returns, so that its work is done.
type Result = std::result::Result<u64, Box<dyn Error>>;

/// Runs until this time. Only the last program needs files.
type Program = fn(&Tree, Instant) -> Result;

/// The programs by their names.
pub(crate) const PROGRAMS: [(&str, Program); 4] = [
    ("rayon", |_, end| Ok(run_rayon(end))),
    ("tokio", |_, end| run_tokio(end)),
    ("c_library", |_, end| run_c_library(end)),
    ("ignore", run_ignore),
];

/// Computes and sorts on rayon's global pool.
fn run_rayon(end: Instant) -> u64 {
    let mut sum = 0u64;
    while Instant::now() < end {
        let hash = |seed: u64| work(seed, &mut [0; 512]);
        let mut hashes: Vec<u64> = (0..20_000u64).into_par_iter().map(hash).collect();
        hashes.par_sort_unstable();
        sum = sum.wrapping_add(hashes[hashes.len() / 2]);
    }
    sum
}

/// Compresses on the blocking threads of a Tokio runtime, and computes in tasks.
fn run_tokio(end: Instant) -> Result {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(THREADS)
        .build()?;
    runtime.block_on(async {
        let mut sum = 0u64;
        while Instant::now() < end {
            let blocking: Vec<_> = (0..16)
                .map(|seed| tokio::task::spawn_blocking(move || compress(seed)))
                .collect();
            let tasks: Vec<_> = (0..16).map(|seed| tokio::spawn(compute(seed))).collect();
            for answer in blocking {
                sum = sum.wrapping_add(answer.await?);
            }
            for answer in tasks {
                sum = sum.wrapping_add(answer.await?);
            }
        }
        Ok(sum)
    })
}

fn compress(seed: u64) -> u64 {
    let mut bytes = text(seed, 128 << 10);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    // Writing to memory does not fail.
    let _ = std::io::Write::write_all(&mut encoder, &bytes);
    bytes = encoder.finish().unwrap_or_default();
    bytes.len() as u64
}

async fn compute(seed: u64) -> u64 {
    let mut hash = seed;
    for _ in 0..50 {
        hash = work(hash, &mut [0; 512]);
        tokio::task::yield_now().await;
    }
    hash
}

#[link(name = "peers_workers", kind = "static")]
unsafe extern "C" {
    fn peers_start_workers(count: usize) -> i32;
    fn peers_end_workers() -> u64;
}

fn run_c_library(end: Instant) -> Result {
    // SAFETY: *workers*.
    let error = unsafe { peers_start_workers(THREADS) };
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
    // SAFETY: *workers*.
    let result = unsafe { peers_end_workers() };
    match error {
        0 => Ok(result),
        error => Err(std::io::Error::from_raw_os_error(error).into()),
    }
}

/// Searches a tree of files again and again, each time with new threads, as a search tool does.
fn run_ignore(tree: &Tree, end: Instant) -> Result {
    let pattern = Regex::new(r"[a-f]{2}[0-9]+z")?;
    let found = AtomicU64::new(0);
    while Instant::now() < end {
        let walk = WalkBuilder::new(&*tree.0).threads(THREADS).build_parallel();
        walk.run(|| {
            Box::new(|entry| {
                if let Ok(entry) = entry
                    && entry.file_type().is_some_and(|kind| kind.is_file())
                {
                    found.fetch_add(search(&pattern, entry.path()), Ordering::Relaxed);
                }
                WalkState::Continue
            })
        });
    }
    match found.into_inner() {
        0 => Err("cannot search: found nothing, expected lines of every file".into()),
        found => Ok(found),
    }
}

fn search(pattern: &Regex, path: &Path) -> u64 {
    let bytes = fs::read(path).unwrap_or_default();
    pattern.find_iter(&bytes).count() as u64
}

/// A temporary folder with files of text. Dropping it removes the folder.
pub(crate) struct Tree(Temporary);

impl Tree {
    pub(crate) fn create() -> std::io::Result<Self> {
        const FOLDERS: u64 = 20;
        const FILES_PER_FOLDER: u64 = 20;
        let tree = Self(Temporary::folder("-tree")?);
        for folder in 0..FOLDERS {
            let path = tree.0.join(folder.to_string());
            fs::create_dir_all(&path)?;
            for file in 0..FILES_PER_FOLDER {
                let seed = folder * FILES_PER_FOLDER + file;
                fs::write(path.join(file.to_string()), text(seed, 64 << 10))?;
            }
        }
        Ok(tree)
    }
}

/// Returns letters and digits that depend on the seed.
fn text(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut next = || b"0123456789abcdefxyz \n"[(random.next() >> 32) as usize % 21];
    std::iter::repeat_with(&mut next).take(bytes).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_program_works() {
        let tree = Tree::create().expect("files");
        for (name, program) in PROGRAMS {
            let result = program(&tree, Instant::now() + Duration::from_millis(50));
            assert!(result.expect(name) > 0, "{name}");
        }
    }
}
