//! Windows of a session: its samples, each of them in one window.
//!
//! A window ends with a snapshot, and holds the entries that the snapshot before did not have. So a
//! sample that the sampler writes late, because its thread answered late or was idle, is in the
//! next window: no sample is lost between two windows, and none is in both.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::buffer::SnapshotEnds;
use crate::export::write_profile;
#[cfg(feature = "otlp-unstable")]
use crate::export::{OtlpResource, write_otlp};
use crate::session::env::wants_names;
use crate::session::life_cycle::clients::{SessionClient, join_session};
use crate::session::running::running_generation;
use crate::session::saving::frozen_profile::TextInMemory;
use crate::session::saving::snapshot::{FrozenProfile, freeze_process};
use crate::stream::{StreamOptions, check_memory};
use crate::symbols::OpenModules;
use crate::types::{
    DEFAULT_MAX_ROWS, DEFAULT_NAME_CACHE_BYTES, ExportOptions, Format, Generation, NameOptions,
    ProfilerTime, StartError, StartParams, Symbolicate, TimeStamp,
};

/// Cuts the session into windows, and keeps it running.
#[derive(Debug)]
pub(crate) struct WindowCutter {
    session: Generation,
    /// `None` after it has left, when only the last window is to be written.
    client: Option<SessionClient>,
    /// When the cutter joined. It gets no sample from before.
    since: ProfilerTime,
    /// Time of the last cut.
    from: TimeStamp,
    /// What the windows before had.
    seen: Arc<SnapshotEnds>,
    /// `None` if no names are wanted, or if the system refuses the thread.
    open_modules: Option<Arc<OpenModules>>,
}

/// The end of a window.
#[derive(Debug)]
pub(crate) struct FrozenWindow {
    session: Generation,
    frozen: FrozenProfile,
}

/// How a window is written.
#[derive(Clone, Debug)]
pub(crate) enum WindowFormat {
    /// Compressed.
    Pprof,
    #[cfg(feature = "otlp-unstable")]
    Otlp(OtlpResource),
}

/// A window in a format.
#[derive(Debug)]
pub(crate) struct WrittenWindow {
    /// Start and end, in ns since 1970. The end is the start of the next window.
    pub(crate) from_ns: u64,
    pub(crate) until_ns: u64,
    /// Interval between two samples of a thread.
    pub(crate) interval: Duration,
    /// Whether the buffer had space for the whole window, and the process had memory to write it.
    pub(crate) is_complete: bool,
    pub(crate) content: Vec<u8>,
}

/// Takes a snapshot of the running session, for a cutter of that session. Calls no state-change
/// callback.
pub(crate) fn freeze_window() -> Option<FrozenWindow> {
    let session = running_generation()?;
    let frozen = freeze_process(session)?;
    Some(FrozenWindow { session, frozen })
}

impl WindowCutter {
    /// Uses the running session from now on. Starts a session with these parameters if none runs.
    ///
    /// # Errors
    /// Those of `profiler_start`.
    pub(crate) fn join(params: &StartParams) -> Result<Self, StartError> {
        let client = join_session(params)?;
        Ok(Self {
            session: client.session,
            since: client.since(),
            from: client.since().timestamp(),
            client: Some(client),
            seen: Arc::default(),
            open_modules: wants_names()
                .then(|| OpenModules::start().ok().map(Arc::new))
                .flatten(),
        })
    }

    /// Returns whether the session still runs.
    pub(crate) fn is_running(&self) -> bool {
        self.client.as_ref().is_some_and(SessionClient::is_running)
    }

    /// Ends the session if it has no other client. Returns whether it did, and the window up to
    /// just before the end. The state-change callbacks run during this call.
    pub(crate) fn leave_if_alone(&mut self) -> (bool, Option<FrozenWindow>) {
        let alone = self.client.take_if(|client| client.close_if_alone());
        let last = alone.as_ref().and_then(|_| freeze_window());
        drop(alone);
        (self.client.is_none(), last)
    }

    /// Ends the current window, and writes it in this format. Returns `None` if the snapshot is that
    /// of another session, or older than the last one.
    ///
    /// # Errors
    /// Memory for the window is lacking. Then the next window has its samples, too.
    pub(crate) fn write(
        &mut self,
        window: FrozenWindow,
        format: &WindowFormat,
    ) -> io::Result<Option<WrittenWindow>> {
        let FrozenWindow {
            session,
            mut frozen,
        } = window;
        let source = &mut frozen.source;
        let until = source.taken_at;
        if session != self.session || until <= self.from {
            return Ok(None);
        }
        let ends = source.buffer.ends();
        source.buffer.mark_seen(Arc::clone(&self.seen));
        let lost = source.buffer.complete_since;
        let is_complete = lost.is_none_or(|since| since <= self.from);
        let interval = source.session.settings.interval;
        let epoch_ms = source.process_start.epoch_ms;
        let times = [self.from, until].map(|time| source.ns_since_start(time));
        let (mut model, had_memory) = frozen.to_own_model(&self.options())?;
        drop(frozen);
        let [from_ns, until_ns] = times;
        let signed = |ns| i64::try_from(ns).unwrap_or(i64::MAX);
        model.meta.session_ns = Some((signed(from_ns), signed(until_ns)));
        check_memory(model.bytes())?;
        let mut text = TextInMemory(Vec::new());
        let export = ExportOptions {
            is_without_allocations: true,
            ..ExportOptions::default()
        };
        match format {
            WindowFormat::Pprof => {
                write_profile(&model, Format::Pprof, &export, &mut text)?;
            }
            #[cfg(feature = "otlp-unstable")]
            WindowFormat::Otlp(resource) => {
                write_otlp(&model, &export, resource, &mut text)?;
            }
        }
        (self.from, self.seen) = (until, Arc::new(ends));
        // Rounded once, so that the windows join.
        let epoch_ns = (epoch_ms * 1e6) as u64;
        Ok(Some(WrittenWindow {
            from_ns: epoch_ns.saturating_add(from_ns),
            until_ns: epoch_ns.saturating_add(until_ns),
            interval,
            is_complete: is_complete && had_memory,
            content: text.0,
        }))
    }

    fn options(&self) -> StreamOptions {
        let names = NameOptions {
            symbolicate: match wants_names() {
                true => Symbolicate::Full,
                false => Symbolicate::No,
            },
            max_cache_bytes: DEFAULT_NAME_CACHE_BYTES,
            max_threads: Some(1),
        };
        // Not since the last cut: a sample that was written late may be older.
        let mut options = StreamOptions::new(names, Some(self.since), DEFAULT_MAX_ROWS, None);
        options.open_modules = self.open_modules.clone();
        options
    }
}
