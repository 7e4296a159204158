//! A summary of a profile as text, for people and for programs.
//!
//! A plain text has at most [`MAX_BYTES`] bytes, and its last section says what was cut. Each section
//! begins with a line that begins with `#`. Columns are separated by two spaces or more, and a
//! number with its unit is one word. Rows of equal time are in the order of their names, so two
//! summaries of one profile are equal.
//!
//! In a terminal, the same sections have its width and colors, and bars if there is space.

mod facts;
mod tables;
mod text_columns;

use std::io::{self, Write};

use crate::export::function_names::cut_middle;
use crate::export::options::{ExportOptions, Look};
use crate::export::summary::facts::{Facts, process_cpu_ns};
use crate::export::summary::tables::{
    MIN_NAME_CHARS, Section, functions, functions_by_thread, losses, markers, own_functions,
    threads,
};
use crate::export::summary::text_columns::{
    Layout, TITLE, WARNING, bytes_text, point_text, share_text, styled, wrapped,
};
use crate::model::{FunctionKind, ProfileModel};
use crate::types::{Uncovered, low_coverage, missed_ticks};

pub(crate) use facts::meta_field;
pub(crate) use text_columns::{ColumnKind, Columns, time_text};

/// Maximum length of a plain text: 2,000 tokens of a language model, at four bytes a token.
const MAX_BYTES: usize = 8_000;
/// Space for the last section.
const CUT_BYTES: usize = 700;
/// Lengths to which names are shortened, one after the other, until a plain text has at most
/// [`MAX_BYTES`] bytes. Rows are left out afterwards.
const NAME_CHARS: [usize; 6] = [usize::MAX, 200, 150, 120, 90, MIN_NAME_CHARS];
/// Width of the keys in the first section.
const KEY_CHARS: usize = 8;

/// Writes the summary of the threads that the options choose.
pub(crate) fn write_text(
    profile: &ProfileModel,
    options: &ExportOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let facts = Facts::collect(profile, options);
    out.write_all(text(profile, options, &facts).as_bytes())?;
    out.flush()
}

fn text(profile: &ProfileModel, options: &ExportOptions, facts: &Facts<'_>) -> String {
    let mut text = head(profile, options, facts);
    let mut sections = sections(profile, facts);
    let lines = |sections: &[Section], name_chars| -> Vec<String> {
        let layout = Layout {
            look: options.look,
            name_chars,
        };
        sections
            .iter()
            .map(|section| section.lines(layout))
            .collect()
    };
    if options.look != Look::Plain {
        text.extend(lines(&sections, usize::MAX));
        return text;
    }
    let space = MAX_BYTES - CUT_BYTES - text.len().min(MAX_BYTES - CUT_BYTES);
    let length = |tables: &[String]| tables.iter().map(String::len).sum::<usize>();
    let mut tables = lines(&sections, usize::MAX);
    let mut name_chars = usize::MAX;
    for shorter in NAME_CHARS {
        if length(&tables) > space {
            name_chars = shorter;
            tables = lines(&sections, name_chars);
        }
    }
    let layout = Layout {
        name_chars,
        ..Layout::PLAIN
    };
    while length(&tables) > space {
        let longest = tables
            .iter()
            .enumerate()
            .max_by_key(|(_, table)| table.len());
        let Some((longest, _)) = longest.filter(|(index, _)| sections[*index].columns.len() > 0)
        else {
            break;
        };
        sections[longest].columns.pop();
        tables[longest] = sections[longest].lines(layout);
    }
    text.extend(tables);
    text + &cut(&sections, name_chars)
}

fn sections(profile: &ProfileModel, facts: &Facts<'_>) -> Vec<Section> {
    let by_self_time = functions(
        "functions by self time",
        facts,
        FunctionKind::Native,
        |time| time.own,
    );
    let own = own_functions(facts);
    let of_functions = match own.all {
        0 => {
            let title = "functions by total time";
            let by_total_time = functions(title, facts, FunctionKind::Native, |time| time.total);
            [by_self_time, by_total_time]
        }
        // By total time, all functions are mostly those of other crates around the program's own.
        _ => [own, by_self_time],
    };
    let mut sections = vec![threads(profile, facts)];
    sections.extend(of_functions);
    sections.extend([
        functions_by_thread(profile, facts),
        functions("labels by total time", facts, FunctionKind::Label, |time| {
            time.total
        }),
        functions(
            "script functions by self time",
            facts,
            FunctionKind::Script,
            |time| time.own,
        ),
        markers(profile, facts),
        losses(facts),
    ]);
    sections.retain(|section| section.all > 0);
    sections
}

/// The first section, line by line.
struct Head {
    look: Look,
    text: String,
}

impl Head {
    fn line(&mut self, key: &str, value: &str) {
        let line = format!("{key:<KEY_CHARS$}  {value}");
        let line = match self.look {
            Look::Plain => line,
            Look::Terminal { columns, .. } => {
                let indent = KEY_CHARS + 2;
                wrapped(&line, columns.max(2 * indent), indent)
            }
        };
        let style = if key == "warning" {
            WARNING
        } else {
            anstyle::Style::new()
        };
        self.text.push_str(&styled(&line, style, self.look));
        self.text.push('\n');
    }
}

fn head(profile: &ProfileModel, options: &ExportOptions, facts: &Facts<'_>) -> String {
    let look = options.look;
    let title = match look {
        Look::Plain => "# profile".to_owned(),
        Look::Terminal { .. } => styled("profile", TITLE, look),
    };
    let mut head = Head {
        look,
        text: title + "\n",
    };
    head.line(
        "program",
        &cut_middle(&profile.meta.product, MIN_NAME_CHARS),
    );
    let wall_ns = match profile.meta.session_ns.or(facts.span_ns) {
        Some((start_ns, end_ns)) => {
            let wall_ns = end_ns.saturating_sub(start_ns).max(0).unsigned_abs();
            let (from, to) = (point_text(start_ns), point_text(end_ns));
            let wall = time_text(wall_ns);
            head.line(
                "wall",
                &format!("{wall} (from {from} to {to} of the profile)"),
            );
            wall_ns
        }
        None => 0,
    };
    // The counter of another system may have another unit; it is then too small or missing.
    let sampled_ns = facts.sum.cpu_ns;
    let counted = process_cpu_ns(profile).filter(|_| options.thread.is_none());
    if profile.meta.has_cpu_deltas {
        let (cpu_ns, of) = match counted.filter(|&counted| counted >= sampled_ns) {
            Some(cpu_ns) => (cpu_ns, "process"),
            None => (sampled_ns, "sampled threads"),
        };
        let cores = cpu_ns as f64 / (wall_ns as f64).max(1.0);
        let (cpu, sampled) = (time_text(cpu_ns), time_text(sampled_ns));
        let value = format!("{cpu} ({of}; {cores:.2} cores); in samples: {sampled}");
        head.line("cpu", &value);
    }
    if let Some(cost) = facts.cost {
        let share = share_text(cost.cpu_ns as f64 / (wall_ns as f64).max(1.0));
        let (cpu, bytes) = (time_text(cost.cpu_ns), bytes_text(cost.buffer_bytes));
        let mut value = format!(
            "{cpu} of CPU time for sampling ({share} of one core), {bytes} of memory for the data"
        );
        if let Some(stopped_ns) = cost.stopped_ns {
            value += &format!(", threads stopped for {}", time_text(stopped_ns));
        }
        head.line("cost", &value);
    }
    let coverage = counted.filter(|_| profile.meta.has_cpu_deltas);
    for warning in warnings(profile, facts, (sampled_ns, coverage, wall_ns)) {
        head.line("warning", &warning);
    }
    head.line("interval", &time_text(profile.meta.interval_ns));
    let samples = facts.sum.all.samples;
    let threads = count_text(facts.threads.len(), "thread", "threads");
    let processes = count_text(profile.processes.len(), "process", "processes");
    head.line("samples", &format!("{samples} in {threads} of {processes}"));
    let counted_by = match options.counts_cpu(profile) {
        true => "CPU time",
        false => "wall time: samples times interval",
    };
    let value = format!("{counted_by}; an inlined function has its own self time");
    head.line("times", &value);
    head.text
}

/// Returns what the reader should be warned of: what the profiler wrote into the profile, or what the
/// profile of another program shows.
fn warnings(
    profile: &ProfileModel,
    facts: &Facts<'_>,
    (sampled_ns, counted_ns, wall_ns): (u64, Option<u64>, u64),
) -> Vec<String> {
    let written: Option<Vec<serde_json::Value>> = meta_field(profile, "warnings");
    let mut texts: Vec<String> = match written {
        Some(written) => {
            let text = |warning: &serde_json::Value| Some(warning["text"].as_str()?.to_owned());
            written.iter().filter_map(text).collect()
        }
        None => {
            let missed = facts.losses.get("missed_ticks").copied().unwrap_or(0);
            let found = [
                counted_ns.and_then(|counted_ns| {
                    low_coverage((sampled_ns, counted_ns, wall_ns), || Uncovered {
                        samples_unregistered: true,
                        ..Uncovered::default()
                    })
                }),
                missed_ticks(missed, wall_ns, profile.meta.interval_ns),
            ];
            found
                .into_iter()
                .flatten()
                .map(|warning| warning.text)
                .collect()
        }
    };
    if !profile.meta.is_symbolicated && facts.unnamed().0 > 0 {
        texts.push(
            "functions have no names, and each address counts for itself; the example `view` and \
             `samply load` name them"
                .to_owned(),
        );
    }
    texts
        .iter()
        .map(|text| cut_middle(text, MAX_WARNING_CHARS))
        .collect()
}

/// Maximum length of a warning from a file, which may be any text.
const MAX_WARNING_CHARS: usize = 400;

fn count_text(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Returns the section about the rows and parts of names that the report leaves out.
fn cut(sections: &[Section], name_chars: usize) -> String {
    let mut text = "\n# cut\n".to_owned();
    let is_cut = |section: &&Section| section.columns.len() < section.all;
    for Section {
        title,
        columns,
        all,
    } in sections.iter().filter(is_cut)
    {
        text.push_str(&format!("{title}: {} of {all} rows\n", columns.len()));
    }
    let names = match name_chars {
        usize::MAX => "names: none shortened\n".to_owned(),
        _ => format!("names: shortened to {name_chars} characters, `..` for what is left out\n"),
    };
    text + &names
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
