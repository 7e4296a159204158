//! Writes the whole profile, in Gecko's order, with the options of such a job.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use crate::counters::CounterReading;
use crate::json::JsonWriter;
use crate::model::{Shown, show_threads};
use crate::platform::ProcessStart;
use crate::state::ChildProfile;
use crate::stream::decode::{
    GatherRequest, Gathering, GatheringLog, ProcessStreamingContext, ProfileSource,
    ThreadStreamingContext, decode_newest,
};
use crate::stream::memory::check_memory;
use crate::stream::resolve::{MarkerTypes, NamedStacks, ResolvedThread, ThreadMaps, write_libs};
use crate::stream::schema::write_table;
use crate::stream::write::marker_rows::MarkerContext;
use crate::stream::write::meta::{buffer_counts, buffer_losses, write_meta, write_pages};
use crate::stream::write::thread_tables::{
    write_placeholder_main_thread, write_thread, write_waiting_tasks,
};
use crate::stream::write::warnings::warnings_about;
use crate::symbols::{OpenModules, UnreadFile};
use crate::threads::MAIN_THREAD_NAME;
use crate::types::{
    DEFAULT_CHILD_TIMEOUT, DEFAULT_MAX_ROWS, DEFAULT_NAME_CACHE_BYTES, NameOptions, ProfilerTime,
    Symbolicate, TimeStamp, Warning,
};
use crate::util::{FailureLatch, ProgressLocation, ProgressLogger, SharedProgress};

/// The options of a job that writes a profile. Dropping them reports the job as done to the
/// observer of its progress.
#[derive(Debug)]
pub(crate) struct StreamOptions {
    pub(crate) names: NameOptions,
    /// Looks up the names, if it is given.
    pub(crate) open_modules: Option<Arc<OpenModules>>,
    /// Earlier data is left out.
    pub(crate) since: Option<TimeStamp>,
    /// Maximum number of rows of samples and markers in all threads together.
    pub(crate) max_rows: u64,
    /// A running child process that makes no progress for this long is left out.
    pub(crate) child_timeout: Duration,
    /// Whether a file in Gecko's format shows threads that sleep alike as one track. If a program reads
    /// the file to write another format, it needs all of them.
    pub(crate) merges_alike: bool,
    pub(crate) progress: ProgressLogger,
}

impl StreamOptions {
    pub(crate) fn new(
        names: NameOptions,
        since: Option<ProfilerTime>,
        max_rows: u64,
        progress: Option<&SharedProgress>,
    ) -> Self {
        let since = since.map(ProfilerTime::timestamp);
        Self {
            names,
            open_modules: None,
            since,
            max_rows,
            child_timeout: DEFAULT_CHILD_TIMEOUT,
            merges_alike: true,
            progress: ProgressLogger::for_job(progress),
        }
    }

    /// Sets the time without progress after which a running child process is left out.
    pub(crate) fn child_timeout(mut self, timeout: Duration) -> Self {
        self.child_timeout = timeout;
        self
    }

    /// Returns what these options say about the profiles of running children. `clock` is that of this
    /// process.
    pub(crate) fn gather_request(&self, clock: ProcessStart) -> GatherRequest {
        GatherRequest {
            since: self.since,
            max_rows: self.max_rows,
            symbolicate: self.names.symbolicate,
            child_timeout: self.child_timeout,
            merges_alike: self.merges_alike,
            clock,
        }
    }

    /// Returns the options for a whole profile without a progress observer.
    pub(crate) fn whole(symbolicate: Symbolicate) -> Self {
        let names = NameOptions {
            symbolicate,
            max_cache_bytes: DEFAULT_NAME_CACHE_BYTES,
            max_threads: None,
        };
        Self::new(names, None, DEFAULT_MAX_ROWS, None)
    }
}

/// What the writer of a profile has found that the user should know.
#[derive(Debug, Default)]
pub(crate) struct FoundProblems {
    /// The files of modules that provided no names.
    pub(crate) unread_files: Vec<UnreadFile>,
    pub(crate) warnings: Vec<Warning>,
    /// Size of the oldest chunks of the buffer that were left out for lack of memory.
    pub(crate) left_out_bytes: u64,
}

/// Progress at the end of each part of the job, from 0 to 1. A job without names skips their part.
const ENTRIES_END: f32 = 0.15;
const OVERHEADS_BEGIN: f32 = 0.16;
const COUNTERS_BEGIN: f32 = 0.17;
const NAMES_END: f32 = 0.50;
const THREADS_END: f32 = 0.96;
const CHILD_PROFILES_END: f32 = 0.99;

/// Writes a profile in the Gecko format, version 36. All profiles go through this function.
/// After decoding, it releases the chunks without markers, unless the source is shared. It flushes
/// the parts before the threads to `out` before it looks up names, so that a failure of `out` shows
/// before the longest part.
///
/// Without memory for the whole, leaves out names, or the oldest entries, and says so in the
/// profile.
///
/// Returns what the user should know, which the profile says, too.
///
/// # Errors
/// Returns the first failure of the job: a failure of `out`, or too little memory even for a small
/// part.
#[doc(alias = "profiler_stream_json_for_this_process")]
pub(crate) fn stream_gecko_json(
    mut source: ProfileSource,
    options: &StreamOptions,
    latch: FailureLatch,
    out: &mut dyn Write,
) -> io::Result<FoundProblems> {
    source.since = options.since;
    let progress = &options.progress;
    // The children write their profiles while this process writes its own.
    let children = source.children.take();
    let mut gathering =
        children.map(|children| children.gather(&options.gather_request(source.process_start)));
    let decoding = progress.sub_logger(0.0, ENTRIES_END, ProgressLocation::Entries);
    let mut process = decode_newest(&mut source, &decoding)?;
    drop(decoding);
    source.children_times = gathering.as_mut().and_then(|gathering| gathering.times());
    // From here on, only markers are read from the chunks.
    source
        .buffer
        .retain_chunks(process.chunks_with_markers.iter().copied());
    let source = &source;
    process.thin_idle_rows(options.max_rows);
    let has_memory_for_names = process.has_memory_for_names();
    let wants_names = options.names.symbolicate != Symbolicate::No;
    let types = MarkerTypes::of_profile(source, &process);
    let mut json = JsonWriter::for_job(out, latch);
    let mut unread_files = Vec::new();
    let warnings = warnings_about(source, &process, wants_names, has_memory_for_names);
    json.object(|json| {
        progress.set_local_progress(ENTRIES_END, ProgressLocation::Meta);
        write_libs(json.key("libs"), &process.modules);
        write_meta(
            json.key("meta"),
            source,
            &process,
            &types,
            wants_names && has_memory_for_names,
            &warnings,
        );
        json.key("pages")
            .array(|json| write_pages(json, &source.pages));
        // A parent gives up a child that shows no progress for a second.
        progress.set_local_progress(OVERHEADS_BEGIN, ProgressLocation::Meta);
        process.overheads.write(json.key("profilerOverhead"));
        progress.set_local_progress(COUNTERS_BEGIN, ProgressLocation::Meta);
        write_counters(json.key("counters"), source, &process);
        let columns = &["id", "filename", "startLine", "startColumn", "sourceMapURL"];
        write_table(json.key("sources"), columns, |_| {});
        let named = name_frames(json, source, &process, has_memory_for_names, options);
        let threads = progress.sub_logger(NAMES_END, THREADS_END, ProgressLocation::Frames);
        json.key("threads")
            .array(|json| write_threads(json, source, &process, &types, &named, options, &threads));
        drop(threads);
        process.paused_ranges.write(json.key("pausedRanges"));
        unread_files = named.unread_files.clone();
        write_log(
            json.key("profilingLog"),
            source,
            &process,
            &unread_files,
            named.unnamed_for_memory,
        );
        let children = progress.sub_logger(
            THREADS_END,
            CHILD_PROFILES_END,
            ProgressLocation::ChildProfiles,
        );
        json.key("processes").array(|json| {
            for profile in &source.exit_profiles {
                splice_child(json, profile);
            }
            if let Some(gathering) = &mut gathering {
                splice_running_children(json, &mut **gathering, &children);
            }
        });
        drop(children);
        if let Some(gathering) = &mut gathering {
            let log = gathering.take_log();
            write_gathering_log(json.key("profileGatheringLog"), source, &log);
        }
    });
    json.finish().map(|()| FoundProblems {
        unread_files,
        warnings,
        left_out_bytes: source.buffer.left_out_bytes,
    })
}

fn splice_child(json: &mut JsonWriter<'_>, profile: &ChildProfile) {
    profile.for_each_piece(|begins_process, piece| match begins_process {
        true => json.splice(piece),
        false => json.splice_more(piece),
    });
}

/// Writes the profiles of the running children, in the order of their arrival.
fn splice_running_children(
    json: &mut JsonWriter<'_>,
    gathering: &mut dyn Gathering,
    progress: &ProgressLogger,
) {
    while !json.failed()
        && let Some(profile) = gathering.next_profile()
    {
        progress.set_local_progress(gathering.proportion(), ProgressLocation::ChildProfiles);
        splice_child(json, &profile);
    }
}

/// Writes `profileGatheringLog`: what happened while the profiles of the children were gathered,
/// under the id of the process.
fn write_gathering_log(json: &mut JsonWriter<'_>, source: &ProfileSource, log: &GatheringLog) {
    json.object(|json| {
        json.key(&source.process.to_number().to_string())
            .object(|json| {
                json.key("profileGatheringLogBegin_TSms")
                    .time_ms(source.ns_since_start(log.begun));
                json.key("events").array(|json| {
                    for (time, event) in &log.events {
                        write_event(json, source, *time, event);
                    }
                });
                json.key("profileGatheringLogEnd_TSms")
                    .time_ms(source.ns_since_start(log.ended));
            });
    });
}

fn name_frames(
    json: &mut JsonWriter<'_>,
    source: &ProfileSource,
    process: &ProcessStreamingContext,
    has_memory: bool,
    options: &StreamOptions,
) -> NamedStacks {
    json.flush_buffer();
    let progress = options
        .progress
        .sub_logger(COUNTERS_BEGIN, NAMES_END, ProgressLocation::Names);
    if options.names.symbolicate == Symbolicate::No || json.failed() {
        NamedStacks::without_names(source, process, 0)
    } else if has_memory {
        NamedStacks::with_names(source, process, options.names, &progress)
    } else {
        NamedStacks::without_names(source, process, process.count_addresses())
    }
}

/// Number of threads that are written between two checks of the memory.
const THREADS_BETWEEN_CHECKS: usize = 64;

fn write_threads(
    json: &mut JsonWriter<'_>,
    source: &ProfileSource,
    process: &ProcessStreamingContext,
    types: &MarkerTypes,
    named: &NamedStacks,
    options: &StreamOptions,
    progress: &ProgressLogger,
) {
    let name_of = |context: &ThreadStreamingContext| {
        context.thread.unlocked_const_reader_and_atomic_rw().name()
    };
    let names: Vec<String> = process.threads.iter().map(name_of).collect();
    let places = process.threads.iter().map(|context| context.asleep_at);
    let shown = show_threads(names.iter().zip(places).map(|(name, place)| {
        let place = place.filter(|_| options.merges_alike)?;
        Some((name.as_str(), place))
    }));
    let threads = process.threads.iter().zip(names).zip(shown);
    let threads = threads.filter(|(_, shown)| *shown != Shown::ByAnother);
    let threads = threads.map(|((context, name), shown)| (context, shown.name(&name)));
    // The viewer uses the first thread as the process's main thread.
    let (main, others): (Vec<_>, Vec<_>) =
        threads.partition(|(context, _)| context.thread.unlocked_const_reader().info().is_main);
    let has_main_thread = process.threads.iter().any(|context| {
        let thread = context.thread.unlocked_const_reader_and_atomic_rw();
        thread.name() == MAIN_THREAD_NAME
    });
    // The image that replaces this one has the main thread of the process.
    let mut maps = ThreadMaps::default();
    if !has_main_thread && !source.is_replaced {
        write_placeholder_main_thread(json, source, ResolvedThread::new(named, &mut maps));
    }
    let in_order: Vec<_> = main.into_iter().chain(others).collect();
    let markers = MarkerContext {
        source,
        process,
        types,
    };
    let threads = in_order.iter().enumerate();
    let threads = progress.loop_sub_loggers(threads, ProgressLocation::Frames);
    for (progress, (index, (context, name))) in threads {
        // Checked every 64 threads: later threads reuse the memory of earlier ones.
        if index % THREADS_BETWEEN_CHECKS == 0
            && let Err(error) = check_memory(ResolvedThread::max_bytes(named))
        {
            json.fail(error);
        }
        if json.failed() {
            return;
        }
        write_thread(
            json,
            &markers,
            (context, name),
            !options.merges_alike,
            ResolvedThread::new(named, &mut maps),
            &progress,
        );
    }
    if !process.task_waits.is_empty() && !json.failed() {
        let thread = ResolvedThread::new(named, &mut maps);
        write_waiting_tasks(json, &markers, thread);
    }
}

/// Writes the counters that have values. A run of rows without growth is written as its first and
/// its last row.
fn write_counters(
    json: &mut JsonWriter<'_>,
    source: &ProfileSource,
    process: &ProcessStreamingContext,
) {
    json.array(|json| {
        for (counter, rows) in process.counters.iter().filter(|(_, rows)| !rows.is_empty()) {
            json.object(|json| {
                json.key("name").string(&counter.name);
                json.key("category").string(&counter.category);
                json.key("description").string(&counter.description);
                let columns: &[_] = match counter.counts_operations {
                    true => &["time", "count", "number"],
                    false => &["time", "count"],
                };
                write_table(json.key("samples"), columns, |json| {
                    let rows = source.counter_rows(counter, rows);
                    write_counter_rows(json, counter.counts_operations, rows);
                });
            });
        }
    });
}

fn write_counter_rows(
    json: &mut JsonWriter<'_>,
    counts_operations: bool,
    rows: impl Iterator<Item = (u64, CounterReading)>,
) {
    let none = CounterReading::default();
    let mut write = |time_ns, growth: CounterReading| {
        json.row(|json| {
            json.time_ms(time_ns);
            json.signed(growth.count);
            if counts_operations {
                json.unsigned(growth.operations);
            }
        });
    };
    let mut skipped = None;
    let mut last = None;
    for (time_ns, growth) in rows {
        if growth == none && last == Some(none) {
            skipped = Some(time_ns);
            continue;
        }
        if let Some(skipped) = skipped.take() {
            write(skipped, none);
        }
        write(time_ns, growth);
        last = Some(growth);
    }
    if let Some(skipped) = skipped {
        write(skipped, none);
    }
}

/// Writes `profilingLog`: what the profiler did, lost and cost, under the id of the process.
pub(crate) fn write_log(
    json: &mut JsonWriter<'_>,
    source: &ProfileSource,
    process: &ProcessStreamingContext,
    unread_files: &[UnreadFile],
    unnamed_for_memory: u64,
) {
    json.object(|json| {
        json.key(&source.process.to_number().to_string())
            .object(|json| {
                json.key("profilingLogBegin_TSms")
                    .time_ms(source.ns_since_start(source.session.started_at));
                json.key("samplerNice")
                    .signed(source.session.sampler_nice().into());
                if !source.unmatched_filters.is_empty() {
                    json.key("filtersWithoutThread").array(|json| {
                        for filter in &source.unmatched_filters {
                            json.string(filter);
                        }
                    });
                }
                let unavailable = &source.session.unavailable_features;
                if !unavailable.is_empty() {
                    json.key("unavailableFeatures").object(|json| {
                        for feature in unavailable {
                            json.key(feature.name()).string(&feature.reason);
                        }
                    });
                }
                // Functions in these have no names, except in the module's separate debug file.
                json.key("modulesWithoutNames").array(|json| {
                    for UnreadFile { path, reason, .. } in unread_files {
                        json.string(&format!("{}: {reason}", path.display()));
                    }
                });
                // Addresses without a name because the memory did not suffice to look them up.
                json.key("addresses_without_memory_for_names")
                    .unsigned(unnamed_for_memory);
                json.key("sampler").object(|json| {
                    for (name, count) in &source.counts {
                        json.key(name).unsigned(*count);
                    }
                });
                json.key("buffer").object(|json| {
                    for (name, count) in buffer_counts(source)
                        .into_iter()
                        .chain(buffer_losses(source, process))
                    {
                        json.key(name).unsigned(count);
                    }
                    let memory = source.buffer.chunk_memory;
                    json.key("lanes").unsigned(source.buffer.statistics.lanes);
                    json.key("unreleased_chunk_bytes")
                        .unsigned(memory.unreleased_bytes);
                    json.key("released_chunk_bytes")
                        .unsigned(memory.released_bytes);
                    // Ended threads, pages and code, and exit profiles.
                    json.key("kept_bytes")
                        .unsigned(source.buffer.statistics.kept_bytes);
                    if let Some(done) = memory.oldest_done {
                        json.key("oldestChunkDone_TSms")
                            .time_ms(source.ns_since_start(done));
                    }
                    // Memory that only this profile keeps alive.
                    json.key("given_up_while_read_bytes")
                        .unsigned(source.buffer.discarded_bytes());
                    process.entry_counts.write(json.key("entries"));
                    json.key("spoiled_payloads")
                        .unsigned(process.spoiled_payloads.get());
                });
                write_events(json, source);
                json.key("profilingLogEnd_TSms")
                    .time_ms(source.ns_since_start(source.taken_at));
            });
    });
}

fn write_event(json: &mut JsonWriter<'_>, source: &ProfileSource, time: TimeStamp, event: &str) {
    json.object(|json| {
        json.key("at_TSms").time_ms(source.ns_since_start(time));
        json.key("event").string(event);
    });
}

/// Writes what happened during the session, until the profile was taken.
fn write_events(json: &mut JsonWriter<'_>, source: &ProfileSource) {
    let log = source.session.log.all();
    json.key("events").array(|json| {
        let until_taken = log
            .events
            .iter()
            .filter(|(time, _)| *time <= source.taken_at);
        for (time, event) in until_taken {
            write_event(json, source, *time, event);
        }
    });
    json.key("dropped_events").unsigned(log.dropped);
}
