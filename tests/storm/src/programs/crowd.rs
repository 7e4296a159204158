//! One session that lasts for the whole storm, in a process of its own, in which short threads come
//! and go. What the session keeps of these threads is bounded.

use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gekkota::profile::Symbolicate;
use gekkota::{ProfilerSession, StartParams};

use super::profiled::save_and_read;
use super::{Orders, choose_code, command};
use crate::random::Random;
use crate::steadiness::Steadiness;
use crate::{children, resources, swarm};

/// Threads that start others, and how many each starts at once.
const STARTERS: usize = 3;
const AT_ONCE: u64 = 16;
const MEASURE_EVERY: Duration = Duration::from_secs(5);
const CAPACITY_BYTES: u64 = 4 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

static NUMBER: AtomicU64 = AtomicU64::new(0);

pub fn main(_: &mut Orders) -> Result<(), String> {
    resources::share_heaps();
    gekkota::register_thread("main");
    let params = StartParams::default().capacity_bytes(CAPACITY_BYTES);
    let session = ProfilerSession::start(params).map_err(|error| error.to_string())?;
    let mut steadiness = Steadiness::begin();
    while !input_has_ended() {
        let end = Instant::now() + MEASURE_EVERY;
        let starters: Vec<_> = (0..STARTERS)
            .map(|_| std::thread::spawn(move || start_until(end)))
            .collect();
        for starter in starters {
            starter.join().map_err(|_| "a starter has panicked")?;
        }
        save_and_read(&session, Symbolicate::No)?;
        steadiness.measure();
    }
    let threads = NUMBER.load(Ordering::Relaxed);
    println!("one session with {threads} short threads");
    match steadiness.judge("one session") {
        Some(problem) => Err(problem),
        None => Ok(()),
    }
}

/// Starts threads and joins them, until the time is over or the storm ends.
fn start_until(end: Instant) {
    gekkota::register_thread("starter");
    while Instant::now() < end && !input_has_ended() {
        let first = NUMBER.fetch_add(AT_ONCE, Ordering::Relaxed);
        swarm::start_and_join("crowd", first..first + AT_ONCE);
    }
}

/// Returns whether the storm has closed this program's standard input.
fn input_has_ended() -> bool {
    let mut polled = libc::pollfd {
        fd: 0,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: the array of one descriptor is a local.
    unsafe { libc::poll(&mut polled, 1, 0) > 0 }
}

/// The program that runs during the whole storm.
pub struct Companion {
    child: Child,
    code: u8,
}

impl Companion {
    pub fn start() -> Result<Self, String> {
        let code = choose_code(&mut Random::new(u64::from(std::process::id())));
        let mut command = command("crowd", 0, code);
        command.stdin(Stdio::piped()).stdout(Stdio::inherit());
        let child = command.spawn();
        let child = child.map_err(|error| format!("cannot start the program crowd: {error}"))?;
        Ok(Self { child, code })
    }

    /// Ends the program, and returns its problem.
    pub fn end(mut self) -> Option<String> {
        drop(self.child.stdin.take());
        let what = "the program crowd";
        let status = children::wait(self.child.id() as libc::pid_t, what, PATIENCE, || {});
        (status != i32::from(self.code) << 8).then(|| {
            format!(
                "{what}: its status is {status}, expected exit code {}",
                self.code
            )
        })
    }
}
