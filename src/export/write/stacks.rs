//! Stacks as lines of text: collapsed stacks, which have a line for each call path with the number
//! of its samples, and the last stack of each thread.

use std::io::{self, BufWriter, Write};

use crate::export::options::ExportOptions;
use crate::export::run_loops::{folded_runtime, frames_inside};
use crate::export::write::flame_tree::{FlameTree, UNNAMED};
use crate::model::{Frame, FunctionKind, ProfileModel, Sample, Thread};

/// Writes lines of the form `thread;outer function;inner function COUNT`, in a stable order.
///
/// Counts are numbers of samples, because readers such as the Firefox Profiler make one sample of
/// each. With [`SampleWeight::Cpu`](crate::export::options::SampleWeight::Cpu), a count is CPU time
/// in multiples of the interval.
pub(crate) fn write_collapsed(
    profile: &ProfileModel,
    options: &ExportOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let tree = FlameTree::of(profile, options);
    let mut out = BufWriter::new(out);
    let mut path = String::new();
    // The end of each depth's name in the path.
    let mut ends: Vec<usize> = Vec::new();
    for node in &tree.nodes {
        ends.truncate(node.depth);
        path.truncate(ends.last().copied().unwrap_or(0));
        if node.depth > 0 {
            path.push(';');
        }
        push_frame(&mut path, tree.name(node.label));
        ends.push(path.len());
        if node.own > 0 {
            writeln!(out, "{path} {}", node.own)?;
        }
    }
    out.flush()
}

/// Appends a name without the characters that separate frames and lines.
fn push_frame(path: &mut String, name: &str) {
    let name = match name.trim() {
        "" => UNNAMED,
        name => name,
    };
    let is_plain = |byte: &u8| (b' '..0x7f).contains(byte) && *byte != b';';
    if name.as_bytes().iter().all(is_plain) {
        path.push_str(name);
        return;
    }
    path.extend(name.chars().map(|character| match character {
        ';' => ':',
        // Some readers end a line at these two, too.
        '\u{2028}' | '\u{2029}' => ' ',
        character if character.is_control() => ' ',
        character => character,
    }));
}

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
        let runtime = folded_runtime(profile, options.folds_runtime, stack);
        for (number, (_, frame)) in frames_inside(profile, stack, runtime).enumerate() {
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
    write!(out, ": {}", state_of(profile, last))?;
    if let Some(end_ns) = end_ns {
        let age_ns = end_ns.saturating_sub(last.time_ns).max(0);
        write!(out, ", {:.1} ms ago", age_ns as f64 / 1e6)?;
    }
    writeln!(out)
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
    use crate::export::options::SampleWeight;
    use crate::export::test_profile::{ProfileBuilder, WAIT, two_threads};

    fn collapsed(profile: &ProfileModel, options: &ExportOptions) -> String {
        let mut out = Vec::new();
        write_collapsed(profile, options, &mut out).expect("a vector takes all");
        String::from_utf8(out).expect("lines are UTF-8")
    }

    #[test]
    fn collapsed_counts_samples_by_path() {
        let text = collapsed(&two_threads(), &ExportOptions::default());
        let expected = "main 1\nmain;run;parse 2\nmain;run;parse;alloc 1\nmain;run;wait 3\n\
                        worker;wait 2\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn collapsed_of_cpu_time_counts_intervals() {
        let options = ExportOptions {
            weight: SampleWeight::Cpu,
            ..ExportOptions::default()
        };
        // 0.4 + 2.9 intervals on the main thread, none while threads wait.
        let text = collapsed(&two_threads(), &options);
        assert_eq!(text, "main;run;parse 3\n");
    }

    #[test]
    fn collapsed_replaces_separators_in_names() {
        let mut builder = ProfileBuilder::new();
        let thread = builder.thread("a;b");
        builder.sample(thread, 0, &["[u8; 4]\n", ""]);
        let text = collapsed(&builder.profile, &ExportOptions::default());
        assert_eq!(text, "a:b;[u8: 4];(unnamed) 1\n");
    }

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
