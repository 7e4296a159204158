//! `tracing`'s spans on their way into a trace that Chrome opens, as `tracing-chrome` writes it, of which the bytes are counted and
//! dropped.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tracing_chrome::{ChromeLayer, ChromeLayerBuilder, FlushGuard};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::{LookupSpan, Registry};

/// The thread that writes. It ends when this is dropped.
pub(crate) struct ChromeTrace {
    guard: FlushGuard,
    written: Arc<Written>,
}

/// What came to the place where a file would be.
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
    /// Records from now on, on all threads, with what spans and events carry. Once in a process.
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

    /// Waits until all that was recorded is written: its channel has no bound, and its thread takes longer than who records.
    pub(crate) fn wait_until_written(&self) {
        let before = self.written.flushes.load(Ordering::Acquire);
        self.guard.flush();
        while self.written.flushes.load(Ordering::Acquire) == before {
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// How many entries were written, a span being two. The first line has none, and each next is behind one.
    pub(crate) fn entries(&self) -> u64 {
        self.wait_until_written();
        self.written.lines.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_recorded_is_counted_once_it_is_written() {
        let (layer, trace) = ChromeTrace::layer();
        tracing::subscriber::with_default(Registry::default().with(layer), || {
            for number in 0..500u64 {
                let _entered = tracing::info_span!("a span", number).entered();
            }
        });
        assert_eq!(trace.entries(), 1_001, "the thread's name, too");
    }
}
