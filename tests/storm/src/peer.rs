//! Another profiler in the same process: pprof-rs, as its documentation advises to run it.

use crate::tally;

const FREQUENCY_HZ: i32 = 250;
/// Libraries in which its handler does not unwind.
const BLOCKLIST: [&str; 5] = ["libc", "libgcc", "pthread", "vdso", "ld-linux"];

/// It runs until this is dropped.
pub struct Peer(pprof::ProfilerGuard<'static>);

impl Peer {
    pub fn start() -> Self {
        let builder = pprof::ProfilerGuardBuilder::default().frequency(FREQUENCY_HZ).blocklist(&BLOCKLIST);
        tally::PEER_RUNS.one();
        Self(builder.build().unwrap_or_else(|error| panic!("pprof: {error}")))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if let Ok(report) = self.0.report().build_unresolved() {
            let samples: isize = report.data.values().sum();
            tally::PEER_SAMPLES.add(samples.unsigned_abs() as u64);
        }
    }
}
