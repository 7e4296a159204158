//! The tables of the text summary.

use crate::export::function_names::{cut_middle, one_line};
use crate::export::function_times::{FunctionTime, Time};
use crate::export::options::Look;
use crate::export::summary::facts::{Facts, FunctionRow, MAX_OTHERS, ThreadRow, sort_by_time};
use crate::export::summary::text_columns::{
    ColumnKind, Columns, Layout, TITLE, point_text, share_text, styled, time_text,
};
use crate::model::{FunctionKind, ProfileModel};

/// Length of names in a text that would otherwise have too many bytes.
pub(crate) const MIN_NAME_CHARS: usize = 60;
const MAX_SHORT_CHARS: usize = 24;

const MAX_THREADS: usize = 12;
const MAX_FUNCTIONS: usize = 15;
const MAX_THREADS_WITH_FUNCTIONS: usize = 5;

use ColumnKind::{Bar, Left, Name, Right};

/// A section with a table.
pub(crate) struct Section {
    pub(crate) title: &'static str,
    pub(crate) columns: Columns,
    /// Number of rows that there would be without a limit.
    pub(crate) all: usize,
}

impl Section {
    fn new(title: &'static str, columns: Columns, all: usize) -> Self {
        Self {
            title,
            columns,
            all,
        }
    }

    pub(crate) fn lines(&self, layout: Layout) -> String {
        let title = match layout.look {
            Look::Plain => format!("# {}", self.title),
            Look::Terminal { .. } => styled(self.title, TITLE, layout.look),
        };
        format!("\n{title}\n{}", self.columns.lines_in(layout))
    }
}

fn thread_name(profile: &ProfileModel, index: usize) -> String {
    let thread = &profile.threads[index];
    let name = cut_middle(&thread.name, MAX_SHORT_CHARS);
    let tid = cut_middle(&thread.tid, 12);
    match profile.processes.len() {
        0 | 1 => format!("{name} ({tid})"),
        _ => {
            let process = cut_middle(&profile.process_of(thread).name, 16);
            format!("{process}/{name} ({tid})")
        }
    }
}

pub(crate) fn threads(profile: &ProfileModel, facts: &Facts<'_>) -> Section {
    let mut headings = vec![
        (Right, "samples"),
        (Right, "sampled"),
        (Right, "cpu"),
        (Right, "off-cpu"),
    ];
    let has_queued = facts.threads.iter().any(|row| row.queued_ns.is_some());
    if has_queued {
        headings.push((Right, "queued"));
    }
    headings.push((Left, "thread"));
    let mut columns = Columns::new(&headings);
    for row in facts.threads.iter().take(MAX_THREADS) {
        let samples_ns = |count: u64| profile.meta.interval_ns.saturating_mul(count);
        let sampled_ns = samples_ns(row.all.samples);
        let has_cpu = profile.meta.has_cpu_deltas;
        let off_cpu_ns = match has_cpu {
            // Ticks may have been missed.
            true => (row.lifetime_ns.max(sampled_ns)).saturating_sub(row.cpu_ns),
            false => samples_ns(row.idle_samples),
        };
        let mut cells = vec![
            row.all.samples.to_string(),
            time_text(sampled_ns),
            if has_cpu {
                time_text(row.cpu_ns)
            } else {
                "-".to_owned()
            },
            time_text(off_cpu_ns),
        ];
        if has_queued {
            cells.push(row.queued_ns.map_or("-".to_owned(), time_text));
        }
        cells.push(thread_name(profile, row.thread));
        columns.push(cells);
    }
    Section::new("threads", columns, facts.threads.len())
}

fn share(part: Time, all: Time) -> f64 {
    match (all.ns, all.samples) {
        (0, 0) => 0.0,
        (0, samples) => part.samples as f64 / samples as f64,
        (ns, _) => part.ns as f64 / ns as f64,
    }
}

fn share_of(part: Time, all: Time) -> String {
    share_text(share(part, all))
}

pub(crate) fn functions(
    title: &'static str,
    facts: &Facts<'_>,
    kind: FunctionKind,
    key: impl Fn(&FunctionTime) -> Time,
) -> Section {
    let of_kind = |row: &&FunctionRow<'_>| row.group.kind == kind;
    chosen_functions(title, facts, kind, of_kind, key)
}

/// Returns the functions of the program's own crates.
pub(crate) fn own_functions(facts: &Facts<'_>) -> Section {
    let title = "the program's own functions by total time";
    let is_own = |row: &&FunctionRow<'_>| row.is_own;
    chosen_functions(title, facts, FunctionKind::Native, is_own, |time| {
        time.total
    })
}

fn chosen_functions(
    title: &'static str,
    facts: &Facts<'_>,
    kind: FunctionKind,
    chooses: impl Fn(&&FunctionRow<'_>) -> bool,
    key: impl Fn(&FunctionTime) -> Time,
) -> Section {
    let of_kind = facts.functions.iter().filter(chooses);
    let has_time = |row: &&FunctionRow<'_>| key(&row.time) != Time::default();
    let mut rows: Vec<FunctionRow<'_>> = of_kind.filter(has_time).cloned().collect();
    sort_by_time(&mut rows, &key);
    let (name, library, label) = match kind {
        FunctionKind::Native => ("function", "library", "mostly in label"),
        FunctionKind::Label => ("label", "", ""),
        FunctionKind::Script | FunctionKind::Structure => ("function", "", ""),
    };
    let has_labels = rows.iter().any(|row| row.label.is_some());
    let headings = [
        (Right, "self"),
        (Right, "self%"),
        (Right, "total"),
        (Right, "total%"),
        (Bar, ""),
        (Name, name),
        (Left, library),
        (Left, if has_labels { label } else { "" }),
    ];
    let mut columns = Columns::new(&headings);
    let limit = if kind == FunctionKind::Native {
        MAX_FUNCTIONS
    } else {
        MAX_OTHERS
    };
    for FunctionRow {
        group, time, label, ..
    } in rows.iter().take(limit)
    {
        columns.push(vec![
            time_text(time.own.ns),
            share_of(time.own, facts.sum.all),
            time_text(time.total.ns),
            share_of(time.total, facts.sum.all),
            share(key(time), facts.sum.all).to_string(),
            one_line(&group.name).into_owned(),
            cut_middle(group.library.unwrap_or_default(), MAX_SHORT_CHARS),
            cut_middle(label.as_deref().unwrap_or_default(), MAX_SHORT_CHARS),
        ]);
    }
    Section::new(title, columns, rows.len())
}

/// Returns the hottest functions of the busiest threads. Left out for a single thread, whose
/// functions are those of the profile.
pub(crate) fn functions_by_thread(profile: &ProfileModel, facts: &Facts<'_>) -> Section {
    let headings = [
        (Right, "self"),
        (Right, "self%"),
        (Bar, ""),
        (Left, "thread"),
        (Name, "function"),
    ];
    let mut columns = Columns::new(&headings);
    let mut all = 0;
    if facts.threads.len() > 1 {
        let has_time = |row: &&FunctionRow<'_>| row.time.own != Time::default();
        let hottest = |thread: &ThreadRow<'_>| thread.hottest.iter().filter(has_time).count();
        all = facts.threads.iter().map(hottest).sum();
        for thread in facts.threads.iter().take(MAX_THREADS_WITH_FUNCTIONS) {
            for FunctionRow { group, time, .. } in thread.hottest.iter().filter(has_time) {
                columns.push(vec![
                    time_text(time.own.ns),
                    share_of(time.own, thread.all),
                    share(time.own, thread.all).to_string(),
                    thread_name(profile, thread.thread),
                    one_line(&group.name).into_owned(),
                ]);
            }
        }
    }
    Section::new("functions by thread and self time", columns, all)
}

pub(crate) fn markers(profile: &ProfileModel, facts: &Facts<'_>) -> Section {
    let headings = [
        (Right, "duration"),
        (Right, "at"),
        (Left, "marker"),
        (Left, "thread"),
    ];
    let mut columns = Columns::new(&headings);
    for marker in &facts.markers {
        columns.push(vec![
            time_text(marker.duration_ns),
            point_text(marker.start_ns),
            cut_middle(profile.text(marker.name), 40),
            thread_name(profile, marker.thread),
        ]);
    }
    Section::new("slowest markers", columns, facts.interval_count as usize)
}

pub(crate) fn losses(facts: &Facts<'_>) -> Section {
    let mut columns = Columns::new(&[(Right, "count"), (Left, "what is missing")]);
    let truncated = facts.sum.truncated_samples;
    let (unnamed, unnamed_time) = facts.unnamed();
    let mut rows = Vec::new();
    if truncated > 0 {
        rows.push((truncated, "samples with a truncated stack".to_owned()));
    }
    if unnamed > 0 {
        let share = share_of(unnamed_time, facts.sum.all);
        let text = format!("addresses without a name, with {share} of the self time");
        rows.push((unnamed as u64, text));
    }
    // The count of the samples in this profile is above.
    let counts = facts
        .losses
        .iter()
        .filter(|(name, _)| *name != "truncated_samples");
    rows.extend(counts.map(|(name, &count)| (count, cut_middle(name, 40))));
    let all = rows.len();
    for (count, text) in rows.into_iter().take(MAX_FUNCTIONS) {
        columns.push(vec![count.to_string(), text]);
    }
    Section::new("losses", columns, all)
}
