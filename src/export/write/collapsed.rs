//! Collapsed stacks: a line for each call path, with the number of its samples.

use std::io::{self, BufWriter, Write};

use crate::export::options::ExportOptions;
use crate::export::write::flame_tree::{FlameTree, UNNAMED};
use crate::model::ProfileModel;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::options::SampleWeight;
    use crate::export::sample_profile::{ProfileBuilder, two_threads};

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
}
