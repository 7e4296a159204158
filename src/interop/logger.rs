//! A logger that adds what is logged to the profile.

use log::{LevelFilter, Log, Metadata, Record, SetLoggerError};

use crate::api::{add_marker, records_markers_of_current_thread};
use crate::base::ProfilingCategoryPair;
use crate::interop::host_text::is_formatting;
use crate::interop::log_record::LogRecord;
use crate::markers::{MarkerOptions, MarkerStack};

/// A logger around the program's own: each record goes on to that, and is a marker of the thread that logs.
///
/// ```
/// # struct Stderr;
/// # impl log::Log for Stderr {
/// #     fn enabled(&self, _: &log::Metadata<'_>) -> bool { true }
/// #     fn log(&self, _: &log::Record<'_>) {}
/// #     fn flush(&self) {}
/// # }
/// // Standard error has what is `Info` or graver, as before; profiles have what is `Debug`, too.
/// gekkota::ProfilerLogger::new(Stderr).markers_up_to(log::LevelFilter::Debug).install(log::LevelFilter::Info)?;
/// log::warn!("disk is {} % full", 93);
/// # Ok::<(), log::SetLoggerError>(())
/// ```
///
/// Where the program has no logger of its own, `ProfilerLogger::new(log::logger())` does, made before it is installed.
///
/// The marker is of the viewer's type `Log`, with level, message, and file and line; its name is the record's target, which is
/// the module unless the program says otherwise. In the marker table it is among the others of its thread; and the viewer can write
/// all of them out as one log.
///
/// A message is in the profile up to 16 KiB, cut at a character. It is formatted once more than without this, and only if the
/// running session records markers of the thread; a message that panics thereby ends in “(panicked)” there, and does to the
/// program's logger what it did before. What a value logs while it is formatted for a marker goes on to the program's logger, and is
/// no marker.
///
/// From any thread; not in a signal handler, as no logger is. Cost: beside the program's logger one load while no profiler is
/// active; else that of a marker, some 50 ns, and of formatting the message. Memory is allocated for messages of more than 4 KiB;
/// for others a thread keeps it from one to the next. Idea: Gecko's `LogModule`, which adds markers where `MOZ_LOG` has
/// `profilermarkers`.
#[doc(alias = "LogMarker")]
#[derive(Debug)]
pub struct ProfilerLogger<L> {
    inner: L,
    /// What the inner one gets.
    inner_up_to: LevelFilter,
    /// `None`: whatever comes.
    markers_up_to: Option<LevelFilter>,
    category: ProfilingCategoryPair,
    stack: MarkerStack,
}

impl<L: Log> ProfilerLogger<L> {
    /// Around this one, which may be a `Box<dyn Log>`, or a reference. Markers are made of all records that come: those up to
    /// [`log::max_level`].
    pub const fn new(inner: L) -> Self {
        Self {
            inner,
            inner_up_to: LevelFilter::Trace,
            markers_up_to: None,
            category: ProfilingCategoryPair::Other(None),
            stack: MarkerStack::NoStack,
        }
    }

    /// Makes markers of records up to this level, whether the inner logger is interested in them or not.
    ///
    /// [`install`](Self::install) sees to it that they come. Without it they come up to [`log::max_level`], and not beyond what the
    /// crate `log` was compiled for (`release_max_level_…`). What comes costs a call, where it was a load.
    #[must_use]
    pub const fn markers_up_to(mut self, level: LevelFilter) -> Self {
        self.markers_up_to = Some(level);
        self
    }

    /// Makes markers of this category; of “Other” where it is not said.
    #[must_use]
    pub const fn with_category(mut self, category: ProfilingCategoryPair) -> Self {
        self.category = category;
        self
    }

    /// Makes markers with this stack: [`MarkerStack::Full`] tells who logged. None where it is not said.
    #[must_use]
    pub const fn with_stacks(mut self, stack: MarkerStack) -> Self {
        self.stack = stack;
        self
    }

    /// Whether a record of this level is a marker now.
    #[inline]
    fn records(&self, level: log::Level) -> bool {
        self.markers_up_to.is_none_or(|most| level <= most)
            && records_markers_of_current_thread()
            && !is_formatting()
    }
}

impl<L: Log + 'static> ProfilerLogger<L> {
    /// Makes this the program's logger, for records up to `max_level`.
    ///
    /// If markers are wanted beyond that, [`log::max_level`] is theirs, and the inner logger gets what it would have got without:
    /// records up to `max_level`, also when the program sets another later. Else the inner logger gets whatever comes.
    ///
    /// # Errors
    /// The program has a logger already, and keeps it.
    pub fn install(mut self, max_level: LevelFilter) -> Result<(), SetLoggerError> {
        let markers = self.markers_up_to.unwrap_or(LevelFilter::Off);
        if markers > max_level {
            self.inner_up_to = max_level;
        }
        log::set_boxed_logger(Box::new(self))?;
        log::set_max_level(max_level.max(markers));
        Ok(())
    }
}

impl<L: Log> Log for ProfilerLogger<L> {
    /// Whether the inner one is interested, or the record would be a marker now.
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        (metadata.level() <= self.inner_up_to && self.inner.enabled(metadata))
            || self.records(metadata.level())
    }

    fn log(&self, record: &Record<'_>) {
        // First, so that it has the time at which it was logged, and is there if the inner logger panics.
        if self.records(record.level()) {
            let options = MarkerOptions::from(self.stack);
            add_marker(
                record.target(),
                self.category,
                options,
                LogRecord::new(record),
            );
        }
        if record.level() <= self.inner_up_to {
            self.inner.log(record);
        }
    }

    fn flush(&self) {
        self.inner.flush();
    }
}
