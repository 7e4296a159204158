//! What the programs have in common: a session, threads to sample, and a saved profile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gekkota::profile::{SnapshotOptions, Symbolicate};
use gekkota::{MarkerOptions, ProfilerSession, StartParams, ThreadGuard, gecko_profiler_category};

use crate::control::captured;
use crate::random::Random;
use crate::work::{mix_deep, spend_cpu};
use crate::{folder, saver};

/// Maximum time until a session has the samples that a program waits for.
const PATIENCE: Duration = Duration::from_secs(40);

/// Starts a session with the default signal.
pub fn start_session(random: &mut Random) -> Result<ProfilerSession, String> {
    let interval = [100, 1000][random.below(2) as usize];
    let params = StartParams::default()
        .interval(Duration::from_micros(interval))
        .capacity_bytes(8 << 20);
    ProfilerSession::start(params).map_err(|error| error.to_string())
}

/// Registered threads that work and sleep in turn. They are stopped on drop.
pub struct Workers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    pub fn start(count: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..count).map(|number| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || work_until(&stop, number as u64))
        });
        Self {
            threads: threads.collect(),
            stop,
        }
    }

    /// Stops the threads and waits for them.
    pub fn end(self) {
        drop(self);
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                eprintln!("storm: a worker has panicked");
                std::process::abort();
            }
        }
    }
}

fn work_until(stop: &AtomicBool, number: u64) {
    let _registered = ThreadGuard::register(&format!("worker-{number}"));
    let expected = mix_deep(number, 20_000, 12);
    while !stop.load(Ordering::Relaxed) {
        assert_eq!(
            mix_deep(number, 20_000, 12),
            expected,
            "one computation, two results"
        );
        mark();
        if number % 2 == 1 {
            std::thread::sleep(Duration::from_micros(500));
        }
    }
}

/// Adds a marker.
pub fn mark() {
    let category = gecko_profiler_category!(Other);
    gekkota::add_text_marker("program", category, MarkerOptions::default(), "text");
}

/// Waits until the session has some more samples from signal handlers. The calling thread works
/// meanwhile.
pub fn wait_for_samples(session: &ProfilerSession, more: u64) -> Result<(), String> {
    let count = || {
        let profile = session.snapshot().map_err(|error| error.to_string())?;
        Ok::<_, String>(captured(&profile))
    };
    let before = count()?;
    let start = Instant::now();
    while count()? < before + more {
        if start.elapsed() > PATIENCE {
            return Err(format!("no {more} more samples within {PATIENCE:?}"));
        }
        spend_cpu(Duration::from_millis(3));
    }
    Ok(())
}

/// Chooses how to save. Names take a second of a processor, so they are rare.
pub fn choose_names(random: &mut Random) -> Symbolicate {
    if random.once_in(16) {
        Symbolicate::Full
    } else {
        Symbolicate::No
    }
}

/// Saves the session's profile to a file, reads it and removes it.
pub fn save_and_read(session: &ProfilerSession, names: Symbolicate) -> Result<(), String> {
    let path = folder::path().join(format!("program-{}.json", std::process::id()));
    let profile = session.snapshot().map_err(|error| error.to_string())?;
    let options = SnapshotOptions::default().symbolicate(names);
    let saved = profile.save_with(&path, &options);
    saved.map_err(|error| error.to_string())?;
    let text = std::fs::read(&path).map_err(|error| format!("cannot read the profile: {error}"))?;
    std::fs::remove_file(&path).map_err(|error| format!("cannot remove the profile: {error}"))?;
    saver::check(&text).map_err(|problem| format!("the saved profile: {problem}"))
}
