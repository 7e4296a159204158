//! Threads that sleep in `poll`, `futex`, `nanosleep` and `read`, in equal parts.

use std::fs::read_to_string;
use std::io::{PipeReader, PipeWriter, pipe};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;

use crate::raw::thread_id;
use crate::raw_threads::EndlessCall;
use crate::study::Fallible;

const STACK_BYTES: usize = 128 << 10;

/// Threads in endless calls. They are never joined: they end with the process.
pub(crate) struct Sleepers {
    ids: Vec<i32>,
    interrupted: Arc<AtomicU64>,
    /// Kept open so that the threads keep sleeping.
    _pipe: (Arc<PipeReader>, PipeWriter),
}

impl Sleepers {
    /// Starts `count` threads that each call `first` and then sleep. Returns when all are about to
    /// sleep.
    pub(crate) fn start(count: usize, first: fn()) -> Fallible<Self> {
        let (reader, writer) = pipe()?;
        let reader = Arc::new(reader);
        let interrupted = Arc::new(AtomicU64::new(0));
        let (ready, is_ready) = channel();
        for number in 0..count {
            let (reader, interrupted) = (Arc::clone(&reader), Arc::clone(&interrupted));
            let ready = ready.clone();
            let call = EndlessCall::ALL[number % EndlessCall::ALL.len()];
            let builder = std::thread::Builder::new().name("sleeper".to_owned());
            builder.stack_size(STACK_BYTES).spawn(move || {
                first();
                // The receiver lives until it has received this.
                let _ = ready.send(thread_id());
                drop(ready);
                while call.make(reader.as_fd()) {
                    interrupted.fetch_add(1, Ordering::Relaxed);
                }
            })?;
        }
        drop(ready);
        let ids: Vec<i32> = is_ready.iter().take(count).collect();
        if ids.len() < count {
            return Err("a thread panicked".into());
        }
        Ok(Self {
            ids,
            interrupted,
            _pipe: (reader, writer),
        })
    }

    /// Returns the number of context switches of all threads.
    pub(crate) fn switches(&self) -> Fallible<u64> {
        let mut sum = 0;
        for id in &self.ids {
            let path = format!("/proc/self/task/{id}/status");
            let switches = switches_in(&read_to_string(&path)?);
            sum += switches.ok_or_else(|| format!("{path} has no context switches"))?;
        }
        Ok(sum)
    }

    /// Returns the number of calls that a signal interrupted.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_in_sums_both_kinds() {
        let status = "Name:\ta\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n";
        assert_eq!(switches_in(status), Some(15));
        assert_eq!(switches_in("Name:\ta\n"), None);
    }
}
