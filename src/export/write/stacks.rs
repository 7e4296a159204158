//! The last stack of each thread, as text.

use std::io::{self, BufWriter, Write};

use crate::export::options::ExportOptions;
use crate::export::write::visible_frames::visible_frames;
use crate::model::{Frame, FunctionKind, ProfileModel, Sample, Thread};

/// Writes a paragraph for each thread: what it was doing at its last sample, and its stack, the
/// innermost function first. A label is in brackets.
pub(crate) fn write_stacks(
    profile: &ProfileModel,
    options: &ExportOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    let end_ns = profile.meta.session_ns.map(|(_, end)| end);
    for index in options.threads(profile) {
        let thread = &profile.threads[index];
        let samples = &thread.samples;
        // The sample at a thread's end has no stack.
        let has_stack = |sample: &Sample| sample.stack != Some(ProfileModel::RAN_BETWEEN_SAMPLES);
        let last = (0..samples.len())
            .rev()
            .map(|index| samples.get(index))
            .find(has_stack);
        write_head(profile, thread, last, end_ns, &mut out)?;
        let stack = last.and_then(|last| last.stack);
        for (number, (_, frame)) in visible_frames(profile, options, stack).enumerate() {
            write_frame(profile, number, profile.frame(frame), &mut out)?;
        }
        writeln!(out)?;
    }
    out.flush()
}

fn write_head(
    profile: &ProfileModel,
    thread: &Thread,
    last: Option<Sample>,
    end_ns: Option<i64>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let process = profile.process_of(thread);
    write!(out, "thread {} {:?}", thread.tid, thread.name)?;
    if profile.processes.len() > 1 {
        write!(out, " of process {} {:?}", process.pid, process.name)?;
    }
    let Some(last) = last else {
        return writeln!(out, ": no sample");
    };
    let state = state_of(profile, last);
    match end_ns.map(|end| end.saturating_sub(last.time_ns).max(0)) {
        Some(age_ns) => writeln!(out, ": {state}, {:.1} ms ago", age_ns as f64 / 1e6),
        None => writeln!(out, ": {state}"),
    }
}

/// Returns what a thread was doing in a sample.
fn state_of(profile: &ProfileModel, sample: Sample) -> String {
    let Some(stack) = sample.stack else {
        return "no stack".to_owned();
    };
    if !profile.is_idle_stack(stack) {
        return "running".to_owned();
    }
    let (_, leaf) = profile.stack(stack);
    let reason = profile.frame(leaf).category.and_then(|pair| {
        let category = profile.categories.get(usize::from(pair.category))?;
        category.subcategories.get(usize::from(pair.subcategory))
    });
    match reason.filter(|reason| *reason != "Other") {
        Some(reason) => format!("waiting: {reason}"),
        None => "waiting".to_owned(),
    }
}

fn write_frame(
    profile: &ProfileModel,
    number: usize,
    frame: &Frame,
    out: &mut dyn Write,
) -> io::Result<()> {
    let function = profile.function(frame.function);
    let name = profile.text(function.name);
    match function.kind {
        FunctionKind::Label => write!(out, "{number:4}: [{name}]")?,
        _ => write!(out, "{number:4}: {name}")?,
    }
    let file = function.file.map(|file| profile.text(file));
    match (file, frame.line) {
        (Some(file), Some(line)) => writeln!(out, "  {file}:{line}"),
        (Some(file), None) => writeln!(out, "  {file}"),
        (None, _) => match function.module {
            Some(module) if function.kind == FunctionKind::Native => {
                writeln!(out, "  in {}", profile.module(module).name)
            }
            _ => writeln!(out),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::sample_profile::{ProfileBuilder, WAIT};

    #[test]
    fn last_stack_of_each_thread_is_written() {
        let mut builder = ProfileBuilder::new();
        let main = builder.thread("main");
        builder.sample(main, 0, &["run", "work"]);
        builder.sample(main, 1, &["run", WAIT]);
        let other = builder.thread("other");
        builder.sample(other, 0, &["run", "work"]);
        builder.thread("third");
        let mut out = Vec::new();
        write_stacks(&builder.profile, &ExportOptions::default(), &mut out)
            .expect("a vector takes all");
        let text = String::from_utf8(out).expect("UTF-8");
        let paragraphs: Vec<_> = text.split("\n\n").collect();
        assert!(paragraphs[0].contains("\"main\": waiting"), "{text}");
        assert!(paragraphs[0].contains("\n   0: wait\n   1: run"), "{text}");
        assert!(paragraphs[1].contains("\"other\": running"), "{text}");
        assert!(paragraphs[1].contains("\n   0: work"), "{text}");
        assert!(paragraphs[2].ends_with("\"third\": no sample"), "{text}");
    }
}
