//! Threads that sleep in `poll`, `futex`, `nanosleep` and `read`, in equal parts.

use std::error::Error;
use std::fs::read_to_string;
use std::io::{PipeReader, PipeWriter, pipe};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;

use crate::memory::resident_bytes;
use crate::raw::thread_id;
use crate::raw_threads::EndlessCall;

pub(crate) const STACK_BYTES: usize = 128 << 10;

/// Threads in endless calls. They are never joined: they end with the process.
pub(crate) struct Sleepers {
    ids: Vec<i32>,
    pub(crate) bytes_before_registering: u64,
    interrupted: Arc<AtomicU64>,
    /// Kept open so that the threads keep sleeping.
    _pipe: (Arc<PipeReader>, PipeWriter),
}

impl Sleepers {
    /// Starts `count` threads that each call `first` and then sleep. Returns when all are about to
    /// sleep.
    pub(crate) fn start(count: usize, first: fn()) -> Result<Self, Box<dyn Error>> {
        let (reader, writer) = pipe()?;
        let reader = Arc::new(reader);
        let interrupted = Arc::new(AtomicU64::new(0));
        let may_continue = Arc::new(AtomicBool::new(false));
        let (made, is_made) = channel();
        let (ready, is_ready) = channel();
        let mut handles = Vec::with_capacity(count);
        for number in 0..count {
            let (reader, interrupted) = (Arc::clone(&reader), Arc::clone(&interrupted));
            let (may_continue, made, ready) =
                (Arc::clone(&may_continue), made.clone(), ready.clone());
            let call = EndlessCall::ALL[number % EndlessCall::ALL.len()];
            let builder = std::thread::Builder::new()
                .name("sleeper".to_owned())
                .stack_size(STACK_BYTES);
            handles.push(builder.spawn(move || {
                // The receivers live until they have received these.
                let _ = made.send(());
                while !may_continue.load(Ordering::Acquire) {
                    std::thread::park();
                }
                first();
                let _ = ready.send(thread_id());
                drop((made, ready));
                while call.make(reader.as_fd()) {
                    interrupted.fetch_add(1, Ordering::Relaxed);
                }
            })?);
        }
        drop((made, ready));
        is_made.iter().take(count).for_each(drop);
        let bytes_before_registering = resident_bytes();
        may_continue.store(true, Ordering::Release);
        handles.iter().for_each(|handle| handle.thread().unpark());
        let ids: Vec<i32> = is_ready.iter().take(count).collect();
        if ids.len() < count {
            return Err("a thread panicked".into());
        }
        Ok(Self {
            ids,
            bytes_before_registering,
            interrupted,
            _pipe: (reader, writer),
        })
    }

    /// Returns the number of context switches of each thread.
    pub(crate) fn switches(&self) -> Result<Vec<u64>, Box<dyn Error>> {
        let read = |id: &i32| {
            let path = format!("/proc/self/task/{id}/status");
            switches_in(&read_to_string(&path)?)
                .ok_or_else(|| format!("{path} has no context switches").into())
        };
        self.ids.iter().map(read).collect()
    }

    pub(crate) fn interrupted(&self) -> u64 {
        self.interrupted.load(Ordering::Relaxed)
    }
}

/// Returns the voluntary and involuntary context switches in a thread's `status` file.
fn switches_in(status: &str) -> Option<u64> {
    let number_of = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name))?;
        line[name.len()..].trim().parse::<u64>().ok()
    };
    Some(number_of("voluntary_ctxt_switches:")? + number_of("nonvoluntary_ctxt_switches:")?)
}

/// Wake-ups between two readings.
pub(crate) struct Wakes {
    pub(crate) switches: u64,
    /// Number of threads with at least one switch.
    pub(crate) threads: usize,
}

impl Wakes {
    pub(crate) fn between(before: &[u64], after: &[u64]) -> Self {
        let woken = before
            .iter()
            .zip(after)
            .map(|(before, after)| after - before)
            .filter(|&count| count > 0);
        woken.fold(
            Self {
                switches: 0,
                threads: 0,
            },
            |sum, count| Self {
                switches: sum.switches + count,
                threads: sum.threads + 1,
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_in_sums_both_kinds() {
        let status = "Name:\ta\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n";
        assert_eq!(switches_in(status), Some(15));
        assert_eq!(switches_in("Name:\ta\n"), None);
    }

    #[test]
    fn wakes_between_counts_switches_and_threads() {
        let Wakes { switches, threads } = Wakes::between(&[1, 5, 7], &[1, 6, 10]);
        assert_eq!((switches, threads), (4, 2));
    }
}
