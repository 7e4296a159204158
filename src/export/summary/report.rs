//! Writes a short text about a profile, for people and for programs.
//!
//! The text has at most [`MAX_BYTES`] bytes, and its last section says what was cut. Each section
//! begins with a line that begins with `#`. Columns are separated by two spaces or more, and a
//! number with its unit is one word. Rows of equal time are in the order of their names, so two
//! summaries of one profile are equal.

use std::io::{self, Write};

use crate::export::function_names::cut_middle;
use crate::export::options::{ExportOptions, SampleWeight};
use crate::export::summary::facts::{Facts, process_cpu_ns};
use crate::export::summary::tables::{
    MAX_FUNCTIONS_OF_THREAD, MAX_NAME_CHARS, MAX_OTHERS, Section, functions, functions_by_thread,
    losses, markers, own_functions, threads,
};
use crate::export::summary::text_columns::{point_text, share_text, time_text};
use crate::model::{FunctionKind, ProfileModel};
use crate::util::ProgressLogger;

/// Maximum length: 2,000 tokens of a language model, at four bytes a token.
pub(crate) const MAX_BYTES: usize = 8_000;
/// Space for the last section.
const CUT_BYTES: usize = 700;

/// Writes the summary of the threads that the options choose.
pub(crate) fn write_text(
    profile: &ProfileModel,
    options: &ExportOptions,
    out: &mut dyn Write,
    progress: &ProgressLogger,
) -> io::Result<()> {
    let limits = (MAX_FUNCTIONS_OF_THREAD, MAX_OTHERS);
    let facts = Facts::collect(profile, options, limits, progress);
    out.write_all(text(profile, options, &facts).as_bytes())?;
    out.flush()
}

fn text(profile: &ProfileModel, options: &ExportOptions, facts: &Facts<'_>) -> String {
    let mut text = head(profile, options, facts);
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
    let mut tables: Vec<String> = sections.iter().map(Section::lines).collect();
    let space = MAX_BYTES - CUT_BYTES;
    while text.len() + tables.iter().map(String::len).sum::<usize>() > space {
        let longest = tables
            .iter()
            .enumerate()
            .max_by_key(|(_, table)| table.len());
        let Some((longest, _)) = longest.filter(|(index, _)| sections[*index].columns.len() > 0)
        else {
            break;
        };
        sections[longest].columns.pop();
        tables[longest] = sections[longest].lines();
    }
    text.extend(tables);
    text + &cut(&sections)
}

fn head(profile: &ProfileModel, options: &ExportOptions, facts: &Facts<'_>) -> String {
    let mut text = format!("# profile\nprogram   {}\n", short(&profile.meta.product));
    let mut line = |key: &str, value: String| {
        text.push_str(&format!("{key:<8}  {value}\n"));
    };
    let wall_ns = match profile.meta.session_ns.or(facts.span_ns) {
        Some((start_ns, end_ns)) => {
            let wall_ns = end_ns.saturating_sub(start_ns).max(0).unsigned_abs();
            let (from, to) = (point_text(start_ns), point_text(end_ns));
            line(
                "wall",
                format!(
                    "{} (from {from} to {to} of the profile)",
                    time_text(wall_ns)
                ),
            );
            wall_ns
        }
        None => 0,
    };
    if profile.meta.has_cpu_deltas {
        let sampled_ns = facts.sum.cpu_ns;
        // The counter of another system may have another unit; it is then too small or missing.
        let counted = process_cpu_ns(profile).filter(|_| options.thread.is_none());
        let (cpu_ns, of) = match counted.filter(|&counted| counted >= sampled_ns) {
            Some(cpu_ns) => (cpu_ns, "process"),
            None => (sampled_ns, "sampled threads"),
        };
        let cores = cpu_ns as f64 / (wall_ns as f64).max(1.0);
        let cpu = time_text(cpu_ns);
        let sampled = time_text(sampled_ns);
        line(
            "cpu",
            format!("{cpu} ({of}; {cores:.2} cores); in samples: {sampled}"),
        );
        // The counter contains the CPU time of the sampler, which may be all that an idle program
        // uses.
        let is_much = |ns: u64| ns > wall_ns / 5 && ns > sampled_ns;
        if let Some(counted_ns) =
            counted.filter(|&counted| is_much(counted.saturating_sub(sampled_ns)))
        {
            let share = share_text(sampled_ns as f64 / counted_ns as f64);
            line(
                "warning",
                format!(
                    "only {share} of the process's CPU time is in samples; a thread that is not \
                     registered, for example, is not sampled"
                ),
            );
        }
    }
    let missed = facts.losses.get("missed_ticks").copied().unwrap_or(0);
    let ticks = wall_ns.checked_div(profile.meta.interval_ns).unwrap_or(0);
    if ticks >= 10 && missed > ticks / 5 {
        line(
            "warning",
            format!(
                "{missed} of about {ticks} ticks were missed: the sampler got no processor, or a tick \
                 took longer than the interval"
            ),
        );
    }
    if !profile.meta.is_symbolicated && facts.unnamed().0 > 0 {
        line(
            "warning",
            "functions have no names, and each address counts for itself; the example `view` and \
             `samply load` name them"
                .to_owned(),
        );
    }
    line("interval", time_text(profile.meta.interval_ns));
    let samples = facts.sum.all.samples;
    let threads = count_text(facts.threads.len(), "thread", "threads");
    let processes = count_text(profile.processes.len(), "process", "processes");
    line("samples", format!("{samples} in {threads} of {processes}"));
    let counted_by = match options.weight {
        SampleWeight::Cpu if profile.meta.has_cpu_deltas => "CPU time",
        SampleWeight::Cpu | SampleWeight::Samples => "wall time: samples times interval",
    };
    line(
        "times",
        format!("{counted_by}; an inlined function has its own self time"),
    );
    text
}

fn count_text(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn short(text: &str) -> String {
    cut_middle(text, MAX_NAME_CHARS)
}

/// Returns the section about rows that are left out.
fn cut(sections: &[Section]) -> String {
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
    text + &format!("names: shortened to {MAX_NAME_CHARS} characters, `..` for what is left out\n")
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
