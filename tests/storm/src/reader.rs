//! Takes snapshots beside the thread that starts and stops, whatever state the profiler is in.

use std::io::{self, Write};
use std::time::Duration;

use gekkota::StreamError;
use gekkota::profile::{SnapshotOptions, Symbolicate};

use crate::crew::Context;
use crate::tally;

/// Counts what is written to it.
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

/// Streams what the running session has, to nowhere; false when there is none.
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
        Err(error) => panic!("a snapshot could not be written: {error}"),
    }
}

pub fn reader_worker(context: &mut Context) {
    while context.goes_on() {
        stream_to_nowhere();
        std::thread::sleep(Duration::from_millis(1 + context.random.below(40)));
    }
}
