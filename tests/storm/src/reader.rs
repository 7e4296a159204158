//! Takes snapshots while another thread starts and stops the profiler.

use std::io::{self, Write};
use std::time::Duration;

use gekkota::StreamError;
use gekkota::profile::{SnapshotOptions, Symbolicate};

use crate::crew::Context;
use crate::tally;

/// A writer that counts the bytes.
struct Counting(u64);

impl Write for Counting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Streams the running session's profile to nowhere. Returns false if no session is running.
pub fn stream_to_nowhere() -> bool {
    let mut out = Counting(0);
    let options = SnapshotOptions::default().symbolicate(Symbolicate::No);
    match gekkota::profiler_stream_json(&mut out, &options) {
        Ok(()) => {
            tally::SNAPSHOTS.one();
            tally::SNAPSHOT_BYTES.add(out.0);
            true
        }
        Err(StreamError::Inactive) => false,
        Err(error) => panic!("cannot write a snapshot: {error}"),
    }
}

pub fn reader_worker(context: &mut Context) {
    while context.goes_on() {
        stream_to_nowhere();
        std::thread::sleep(Duration::from_millis(1 + context.random.below(40)));
    }
}
