//! Writes the parts of a profile in the order of the format.

use std::io::{self, Write};

use crate::export::options::ExportOptions;
use crate::export::write::processed::{counters, meta, tables, threads};
use crate::json::JsonWriter;
use crate::model::ProfileModel;
use crate::util::FailureLatch;

use crate::export::write::processed::context::Context;
use crate::export::write::processed::strings::Strings;

/// Writes a profile in the processed format.
///
/// # Errors
/// Returns the first failure of `out`.
pub(crate) fn write_processed(
    profile: &ProfileModel,
    options: &ExportOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let context = Context::new(profile, options);
    let mut strings = Strings::new(profile);
    let mut json = JsonWriter::for_job(out, FailureLatch::fallible());
    json.object(|json| {
        meta::write_meta(json.key("meta"), &context);
        context.libs.write(json.key("libs"), profile);
        meta::write_process_facts(json, profile);
        counters::write_counters(json.key("counters"), &context);
        json.key("threads").array(|json| {
            for &index in &context.threads {
                if json.failed() {
                    return;
                }
                threads::write_thread(json, &context, &mut strings, index);
            }
        });
        json.key("shared").object(|json| {
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
