//! Writes the processed format of the Firefox Profiler.
//!
//! A frame of this format has its function, library, file, line, address, inline depth and native
//! symbol together, so the source view, the assembly view and the badges of inlined calls work. The
//! text of a source file is in `sources.content`, so the source view needs no server.
//!
//! The crate `fxprof-processed-profile` is not used: its release writes version 55, which has no
//! texts of source files and no descriptions of counters. It also holds the whole profile a second
//! time before it writes.
//!
//! The version is 70. A reader upgrades an older version than its own, but refuses a newer one. The
//! page of August 2026 reads up to 70; `profiler-cli` 0.10.0 reads up to 75. The later versions
//! mostly pack columns into flags.
//!
//! The profile streams to the output, one column after another. In memory are only numbers: which
//! rows of the model are written, and where each of its texts is in `stringArray`.

mod allocations;
mod categories;
mod columns;
mod context;
mod counters;
mod firefox_payloads;
mod libs;
mod markers;
mod meta;
mod resources;
mod schemas;
mod strings;
mod tables;
mod threads;
mod used_rows;

use std::io::{self, Write};

use crate::export::options::ExportOptions;
use crate::json::JsonWriter;
use crate::model::ProfileModel;
use crate::util::{FailureLatch, ProgressLocation, ProgressLogger};

use context::Context;
use strings::Strings;

/// Progress at the end of `threads`, from 0 to 1. The shared tables are the rest.
const THREADS_END: f32 = 0.80;

/// Writes a profile in the processed format.
///
/// # Errors
/// Returns the first failure of `out`.
pub(crate) fn write_processed(
    profile: &ProfileModel,
    options: &ExportOptions,
    out: &mut dyn Write,
    progress: &ProgressLogger,
) -> io::Result<()> {
    let context = Context::new(profile, options);
    let mut strings = Strings::new(profile);
    let mut json = JsonWriter::for_job(out, FailureLatch::fallible());
    json.object(|json| {
        progress.set_local_progress(0.0, ProgressLocation::Meta);
        meta::write_meta(json.key("meta"), &context);
        context.libs.write(json.key("libs"), profile);
        meta::write_process_facts(json, profile);
        counters::write_counters(json.key("counters"), &context);
        let share = progress.sub_logger(0.0, THREADS_END, ProgressLocation::Frames);
        json.key("threads").array(|json| {
            let threads = context.threads.iter();
            for (progress, &index) in share.loop_sub_loggers(threads, ProgressLocation::Samples) {
                if json.failed() {
                    return;
                }
                progress.set_local_progress(0.0, ProgressLocation::Samples);
                threads::write_thread(json, &context, &mut strings, &profile.threads[index]);
            }
        });
        drop(share);
        json.key("shared").object(|json| {
            progress.set_local_progress(THREADS_END, ProgressLocation::Tables);
            tables::write_stack_table(json.key("stackTable"), &context);
            tables::write_frame_table(json.key("frameTable"), &context);
            tables::write_functions(json, &context, &mut strings);
            tables::write_native_symbols(json.key("nativeSymbols"), &context, &mut strings);
            // The last table: all others add to it.
            strings.write(json.key("stringArray"));
        });
    });
    json.finish()
}

#[cfg(test)]
mod fact_tests;
#[cfg(test)]
mod sample_model;
#[cfg(test)]
mod tests;
