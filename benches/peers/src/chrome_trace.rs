//! Records `tracing` spans with `tracing-chrome`, as a trace for Chrome, and counts the output
//! instead of writing it to a file.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tracing_chrome::{ChromeLayer, ChromeLayerBuilder, FlushGuard};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::{LookupSpan, Registry};

/// A running recorder. Dropping it ends its writer thread.
pub(crate) struct ChromeTrace {
    guard: FlushGuard,
    written: Arc<Written>,
}

/// Counts of what was written in place of a file.
#[derive(Default)]
struct Written {
    lines: AtomicU64,
    flushes: AtomicU64,
}

struct Counting(Arc<Written>);

impl io::Write for Counting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
        self.0.lines.fetch_add(lines as u64, Ordering::Relaxed);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flushes.fetch_add(1, Ordering::Release);
        Ok(())
    }
}

impl ChromeTrace {
    /// Starts recording on all threads, including the fields of spans and events. Call it once per
    /// process.
    pub(crate) fn start() -> Result<Self, tracing::subscriber::SetGlobalDefaultError> {
        let (layer, trace) = Self::layer();
        tracing::subscriber::set_global_default(Registry::default().with(layer))?;
        Ok(trace)
    }

    fn layer<S>() -> (ChromeLayer<S>, Self)
    where
        S: tracing::Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
    {
        let written = Arc::new(Written::default());
        let writer = Counting(Arc::clone(&written));
        let (layer, guard) = ChromeLayerBuilder::new()
            .writer(writer)
            .include_args(true)
            .build();
        (layer, Self { guard, written })
    }

    /// Waits until everything recorded has been written: the channel is unbounded, and the writer
    /// thread is slower than the recording threads.
    pub(crate) fn wait_until_written(&self) {
        let before = self.written.flushes.load(Ordering::Acquire);
        self.guard.flush();
        while self.written.flushes.load(Ordering::Acquire) == before {
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Returns the number of written entries; a span has two. The count of newlines is the count of
    /// entries: the first line has no entry, and each entry starts a new line.
    pub(crate) fn entries(&self) -> u64 {
        self.wait_until_written();
        self.written.lines.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_counts_everything_recorded() {
        let (layer, trace) = ChromeTrace::layer();
        tracing::subscriber::with_default(Registry::default().with(layer), || {
            for number in 0..500u64 {
                let _entered = tracing::info_span!("a span", number).entered();
            }
        });
        assert_eq!(
            trace.entries(),
            1_001,
            "two per span, and one for the thread's name"
        );
    }
}
