//! A logger that adds records of the `log` crate to the profile, as markers.

use log::{LevelFilter, Log, Metadata, Record, SetLoggerError};

use crate::api::{add_marker, records_markers_of_current_thread};
use crate::integrations::application_text::{PooledBytes, append_str, append_text, is_formatting};
use crate::integrations::viewer_log;
use crate::markers::{
    JSONWriter, MarkerOptions, MarkerSchema, MarkerStack, ProfilerMarker, serde_as_tuple,
};
use crate::types::ProfilingCategoryPair;

/// Maximum length of a message, in bytes; a longer one is truncated. Messages above 4 KiB allocate
/// memory each time.
const MAX_MESSAGE_BYTES: usize = 16 << 10;
const MAX_FILE_BYTES: usize = 512;

/// A wrapper around the application's logger, which also records each log record as a marker of the
/// thread that logs.
///
/// ```
/// # struct Stderr;
/// # impl log::Log for Stderr {
/// #     fn enabled(&self, _: &log::Metadata<'_>) -> bool { true }
/// #     fn log(&self, _: &log::Record<'_>) {}
/// #     fn flush(&self) {}
/// # }
/// // Standard error has records up to `Info`, as before; profiles have records up to `Debug`.
/// gekkota::ProfilerLogger::new(Stderr)
///     .markers_up_to(log::LevelFilter::Debug)
///     .install(log::LevelFilter::Info)?;
/// log::warn!("disk is {} % full", 93);
/// # Ok::<(), log::SetLoggerError>(())
/// ```
///
/// If the application has no logger, install `ProfilerLogger::new(log::logger())`: until a logger
/// is installed, `log::logger()` returns one that does nothing.
///
/// The marker has the viewer's type `Log`, with level, message, file and line. Its name is the
/// record's target, which by default is the module. The marker table shows it among the thread's
/// other markers, and the viewer can export all of them as one log.
///
/// Messages are truncated to 16 KiB, at a character boundary. A message is formatted a second time
/// for the marker, but only if the running session records markers of the thread. If a value panics
/// while it is formatted for the marker, the marker's message ends in “(panicked)”. The
/// application's logger formats the message itself, and sees the same panic as without this
/// wrapper. If a value logs while it is formatted for a marker, the record goes to the
/// application's logger, and is not a marker.
///
/// Like every logger, it may be called on any thread, but not in a signal handler.
///
/// Cost, in addition to the application's logger: one load while the profiler is inactive;
/// otherwise about 50 ns for the marker, and the time to format the message. Messages of more than
/// 4 KiB allocate memory; for others, each thread reuses its buffers.
/// Idea: Gecko's `LogModule`, which adds markers if `MOZ_LOG` contains `profilermarkers`.
#[doc(alias = "LogMarker")]
#[derive(Debug)]
pub struct ProfilerLogger<L> {
    inner: L,
    /// Maximum level passed to the inner logger.
    inner_max_level: LevelFilter,
    /// Maximum level recorded as markers; `None` means all records that arrive.
    markers_up_to: Option<LevelFilter>,
    category: ProfilingCategoryPair,
    stack: MarkerStack,
}

impl<L: Log> ProfilerLogger<L> {
    /// Wraps a logger, which may be a `Box<dyn Log>` or a reference. All records that arrive, those
    /// up to [`log::max_level`], become markers.
    pub const fn new(inner: L) -> Self {
        Self {
            inner,
            inner_max_level: LevelFilter::Trace,
            markers_up_to: None,
            category: ProfilingCategoryPair::Other(None),
            stack: MarkerStack::NoStack,
        }
    }

    /// Records markers up to this level, whether or not the inner logger is interested in them.
    ///
    /// [`install`](Self::install) raises [`log::max_level`] so that these records arrive. If you do
    /// not use it, records arrive up to [`log::max_level`]. In both cases the compile-time maximum
    /// of the `log` crate (`release_max_level_…`) applies. A record that arrives costs a function
    /// call, where a disabled one costs a load.
    #[must_use]
    pub const fn markers_up_to(mut self, level: LevelFilter) -> Self {
        self.markers_up_to = Some(level);
        self
    }

    /// Sets the category of the markers; “Other” by default.
    #[must_use]
    pub const fn with_category(mut self, category: ProfilingCategoryPair) -> Self {
        self.category = category;
        self
    }

    /// Sets the stack of the markers; none by default. [`MarkerStack::Full`] shows which code
    /// logged.
    #[must_use]
    pub const fn with_stacks(mut self, stack: MarkerStack) -> Self {
        self.stack = stack;
        self
    }

    /// Returns whether a record of this level would become a marker now.
    #[inline]
    fn is_recorded(&self, level: log::Level) -> bool {
        self.markers_up_to.is_none_or(|max| level <= max)
            && records_markers_of_current_thread()
            && !is_formatting()
    }
}

impl<L: Log + 'static> ProfilerLogger<L> {
    /// Installs this as the application's logger, for records up to `max_level`.
    ///
    /// If [`markers_up_to`](Self::markers_up_to) exceeds `max_level`, [`log::max_level`] is set to
    /// the former. The inner logger still gets only records up to `max_level`, even if the
    /// application sets another maximum later. Otherwise, the inner logger gets all records that
    /// arrive.
    ///
    /// # Errors
    /// Fails if the application has installed a logger already, which stays installed.
    pub fn install(mut self, max_level: LevelFilter) -> Result<(), SetLoggerError> {
        let markers = self.markers_up_to.unwrap_or(LevelFilter::Off);
        if markers > max_level {
            self.inner_max_level = max_level;
        }
        log::set_boxed_logger(Box::new(self))?;
        log::set_max_level(max_level.max(markers));
        Ok(())
    }
}

impl<L: Log> Log for ProfilerLogger<L> {
    /// Returns whether the inner logger is interested in such a record, or the record would become
    /// a marker now.
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        (metadata.level() <= self.inner_max_level && self.inner.enabled(metadata))
            || self.is_recorded(metadata.level())
    }

    fn log(&self, record: &Record<'_>) {
        // The marker comes first: its time is then accurate, and it is recorded even if the inner
        // logger panics.
        if self.is_recorded(record.level()) {
            let options = MarkerOptions::from(self.stack);
            add_marker(
                record.target(),
                self.category,
                options,
                LogRecord::new(record),
            );
        }
        if record.level() <= self.inner_max_level {
            self.inner.log(record);
        }
    }

    fn flush(&self) {
        self.inner.flush();
    }
}

/// A log record.
#[derive(Debug)]
struct LogRecord {
    /// Index of the level in [`viewer_log::LEVELS`].
    level: u8,
    line: Option<u32>,
    message_bytes: u32,
    /// The message, followed by the name of the source file, if it is known.
    texts: PooledBytes,
}

serde_as_tuple!(LogRecord {
    level: u8,
    line: Option<u32>,
    message_bytes: u32,
    texts: PooledBytes
});

impl LogRecord {
    /// Formats the record, which runs code of the application.
    fn new(record: &Record<'_>) -> Self {
        let mut texts = PooledBytes::new();
        let bytes = texts.bytes_mut();
        append_text(bytes, *record.args(), MAX_MESSAGE_BYTES);
        let message_bytes = bytes.len() as u32;
        append_str(bytes, record.file().unwrap_or_default(), MAX_FILE_BYTES);
        Self {
            level: record.level() as u8 - 1,
            line: record.line(),
            message_bytes,
            texts,
        }
    }
}

impl ProfilerMarker for LogRecord {
    fn marker_type_name() -> &'static str {
        viewer_log::name()
    }

    fn marker_type_display() -> MarkerSchema {
        viewer_log::schema()
    }

    fn stream_json_marker_data(&self, json: &mut JSONWriter<'_>) {
        let bytes = self.texts.bytes();
        let (message, file) = bytes.split_at(bytes.len().min(self.message_bytes as usize));
        viewer_log::write_fields(json, self.level, &String::from_utf8_lossy(message));
        let file = String::from_utf8_lossy(file);
        viewer_log::write_location(
            json,
            Some(&*file).filter(|file| !file.is_empty()),
            self.line,
        );
    }
}
