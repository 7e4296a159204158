//! The difference of two profiles, what it depends on, and how it is written as text and as JSON.

use std::cmp::Ordering;
use std::io::{self, Write};

use crate::export::function_names::{cut_middle, short_function_name};
use crate::export::options::ExportOptions;
use crate::export::summary::{ColumnKind, Columns, time_text};
use crate::json::JsonWriter;
use crate::types::Format;
use crate::util::FailureLatch;

/// Probability that two profiles without a change show one.
pub(crate) const FALSE_ALARMS: f64 = 0.01;

const MAX_NAME_CHARS: usize = 70;
const MAX_LIBRARY_CHARS: usize = 24;

/// Maximum number of sure changes in each table of the text.
const MAX_CHANGES: usize = 20;

/// Maximum number of other functions in the text.
const MAX_OTHERS: usize = 10;

/// The line above them.
const OTHERS: &str = "--- below: may be chance, or (moved) come with the work of a second ---\n";

/// What is compared.
#[derive(Clone, Debug)]
pub(crate) struct DiffOptions {
    /// The threads, the weight of samples, and whether the frames of the runtime are left out.
    pub(crate) export: ExportOptions,
    /// Name of the marker of a unit of work. If it is given, times per unit are compared, and not
    /// times a second. An interval counts at its end.
    pub(crate) unit_of_work: Option<String>,
    /// Standard deviation of a function's cost from run to run, as a share of its cost.
    pub(crate) run_to_run: f64,
}

impl Default for DiffOptions {
    fn default() -> Self {
        Self {
            export: ExportOptions::usual_for(Format::Text),
            unit_of_work: None,
            run_to_run: 0.02,
        }
    }
}

/// Whether a function changed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Verdict {
    /// The self time surely grew.
    Slower,
    /// The self time surely fell.
    Faster,
    /// The time a second changed, but the share of the functions that did not change is the same:
    /// the program did more or less work a second.
    Moved,
    /// The total time surely grew. The reason may be in another function.
    Grew,
    /// The total time surely fell.
    Fell,
    /// The difference, if any, may be chance.
    Unclear,
}

impl Verdict {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Slower => "slower",
            Self::Faster => "faster",
            Self::Moved => "moved",
            Self::Grew => "grew",
            Self::Fell => "fell",
            Self::Unclear => "unclear",
        }
    }

    pub(crate) fn is_sure(self) -> bool {
        !matches!(self, Self::Moved | Self::Unclear)
    }
}

/// A value in two profiles.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Values {
    pub(crate) before: f64,
    pub(crate) after: f64,
    /// Half the width of the band around 0. A change outside of the band is not chance.
    pub(crate) band: f64,
}

impl Values {
    pub(crate) fn change(&self) -> f64 {
        self.after - self.before
    }

    /// Returns whether the change lies outside of its band.
    pub(crate) fn is_sure(&self) -> bool {
        self.change().abs() > self.band
    }
}

/// The change of one function, in ns a second or per unit of work.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct DiffRow {
    pub(crate) name: String,
    pub(crate) library: Option<String>,
    pub(crate) values: Values,
    pub(crate) verdict: Verdict,
}

/// The difference of two profiles.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Diff {
    /// The time of all threads, in ns: CPU time if both profiles have it, otherwise that of samples.
    pub(crate) time: Values,
    pub(crate) is_cpu: bool,
    /// Wall time without pauses, in ns.
    pub(crate) wall: Values,
    /// Number of samples.
    pub(crate) samples: Values,
    /// The time of all threads in ns a second, or per unit of work.
    pub(crate) time_per_base: Values,
    /// Name of the marker of a unit of work, and the units before and after. `None` if times a second
    /// are compared.
    pub(crate) work: Option<(String, [f64; 2])>,
    /// By self time: the sure changes, the greatest first, and then the others.
    pub(crate) own: Vec<DiffRow>,
    /// By total time.
    pub(crate) total: Vec<DiffRow>,
    /// The self time of the functions that surely changed, together.
    pub(crate) changed: Values,
}

impl Diff {
    /// Returns whether the functions take more time or less: those whose self time surely changed, all
    /// together; without one, those whose total time did, if all of them did in the same direction. So
    /// code that moved to another function is not a change.
    fn direction(&self) -> Ordering {
        let has = |verdict| self.total.iter().any(|row| row.verdict == verdict);
        let (grew, fell) = match self.own.iter().any(|row| row.verdict.is_sure()) {
            true => {
                let (is_sure, grew) = (self.changed.is_sure(), self.changed.change() > 0.0);
                (is_sure && grew, is_sure && !grew)
            }
            false => (has(Verdict::Grew), has(Verdict::Fell)),
        };
        grew.cmp(&fell)
    }

    pub(crate) fn is_regression(&self) -> bool {
        self.direction().is_gt()
    }

    /// Returns tables for a terminal, with lines about the whole and about what the tables mean.
    pub(crate) fn text(&self) -> String {
        let time = if self.is_cpu { "cpu" } else { "sampled" };
        let divided_by = match &self.work {
            Some((name, [before, after])) => {
                format!("per unit of work, {name:?}: {before} units → {after}")
            }
            None => "a second of wall time".to_owned(),
        };
        let mut text = format!(
            "{time} {}, wall {}, samples {}\nverdict   {}\nvalues    {time} time {divided_by}; of all \
             functions {}\nbands     without any change, all changes lie within their bands, but for {} \
             % of comparisons\n",
            whole(&self.time, time_of),
            whole(&self.wall, time_of),
            whole(&self.samples, |samples| format!("{samples:.0}")),
            self.verdict(),
            whole(&self.time_per_base, time_of),
            FALSE_ALARMS * 100.0,
        );
        for (title, rows, max_others) in [
            ("self time", &self.own, MAX_OTHERS),
            ("total time", &self.total, 0),
        ] {
            text.push_str(&format!("\n# {title}\n"));
            push_table(&mut text, rows, max_others);
        }
        text
    }

    fn verdict(&self) -> String {
        let unit = self.work.as_ref().map_or("a second", |_| "per unit");
        let first = |own, total| {
            let mut rows = self.own.iter().chain(&self.total);
            let row = rows.find(|row| [own, total].contains(&row.verdict));
            row.map_or_else(String::new, |row| {
                let (before, after) = (time_of(row.values.before), time_of(row.values.after));
                let times = format!("{before} → {after} {unit}");
                match row.verdict == total {
                    true => format!("{} with what it calls, {times}", name(row)),
                    false => format!("{}, {times}", name(row)),
                }
            })
        };
        let mut rows = self.own.iter().chain(&self.total);
        let has_change = rows.any(|row| row.verdict.is_sure());
        match self.direction() {
            Ordering::Greater => {
                format!("regression: {}", first(Verdict::Slower, Verdict::Grew))
            }
            Ordering::Less => format!("improvement: {}", first(Verdict::Faster, Verdict::Fell)),
            Ordering::Equal if has_change => {
                "no regression; the functions that changed take as much time together".to_owned()
            }
            Ordering::Equal if self.time_per_base.is_sure() => {
                "no regression of one function, but all together changed; times per unit of work \
                 tell more work from slower work"
                    .to_owned()
            }
            Ordering::Equal => {
                let bands = self.own.iter().map(|row| row.values.band);
                let widest = time_of(bands.fold(0.0, f64::max));
                format!(
                    "no regression; a change within a function's band may be missed, the widest is \
                     ±{widest}"
                )
            }
        }
    }

    /// Writes one object, with all functions that were compared. Times are in ns.
    pub(crate) fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut json = JsonWriter::for_job(out, FailureLatch::fallible());
        json.object(|json| {
            let unit = match &self.work {
                Some(_) => "ns per unit of work",
                None => "ns a second",
            };
            json.key("unit").string(unit);
            if let Some((name, [before, after])) = &self.work {
                json.key("work").object(|json| {
                    json.key("marker").string(name);
                    json.key("before").float(*before);
                    json.key("after").float(*after);
                });
            }
            for (key, values) in [
                (if self.is_cpu { "cpu" } else { "sampled" }, &self.time),
                ("wall", &self.wall),
                ("samples", &self.samples),
                ("all", &self.time_per_base),
            ] {
                json.key(key).object(|json| write_values(json, values));
            }
            json.key("falseAlarms").float(FALSE_ALARMS);
            json.key("isRegression").bool(self.is_regression());
            for (key, rows) in [("self", &self.own), ("total", &self.total)] {
                json.key(key)
                    .array(|json| rows.iter().for_each(|row| write_row(json, row)));
            }
        });
        json.finish()
    }
}

fn time_of(ns: f64) -> String {
    time_text(ns.round() as u64)
}

/// Returns a value of the whole program, before and after.
fn whole(values: &Values, text: fn(f64) -> String) -> String {
    let Values {
        before,
        after,
        band,
    } = *values;
    format!("{} → {} (±{})", text(before), text(after), text(band))
}

/// Adds the functions that surely changed, and below a line some of the others.
fn push_table(text: &mut String, rows: &[DiffRow], max_others: usize) {
    let headings = [
        (ColumnKind::Left, "verdict"),
        (ColumnKind::Right, "before"),
        (ColumnKind::Right, "after"),
        (ColumnKind::Right, "change"),
        (ColumnKind::Right, "± band"),
        (ColumnKind::Left, "function"),
        (ColumnKind::Left, "library"),
    ];
    let mut columns = Columns::new(&headings);
    let (changes, others): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.verdict.is_sure());
    let shown = changes.iter().take(MAX_CHANGES);
    for row in shown.chain(others.iter().take(max_others)) {
        let change = row.values.change();
        let sign = if change < 0.0 { '-' } else { '+' };
        let library = row.library.as_deref().unwrap_or_default();
        columns.push(vec![
            row.verdict.name().to_owned(),
            time_of(row.values.before),
            time_of(row.values.after),
            format!("{sign}{}", time_of(change.abs())),
            format!("±{}", time_of(row.values.band)),
            name(row),
            cut_middle(library, MAX_LIBRARY_CHARS),
        ]);
    }
    let table = match columns.len() {
        0 => String::new(),
        _ => columns.lines(),
    };
    let mut lines = table.split_inclusive('\n');
    text.extend(lines.by_ref().take(1 + changes.len().min(MAX_CHANGES)));
    if let Some(more @ 1..) = changes.len().checked_sub(MAX_CHANGES) {
        text.push_str(&format!("({more} more changes)\n"));
    }
    if max_others > 0 && !others.is_empty() {
        text.push_str(OTHERS);
        text.extend(lines);
    }
    if let Some(more @ 1..) = others.len().checked_sub(max_others) {
        text.push_str(&format!("({more} others, unclear or moved)\n"));
    }
}

fn name(row: &DiffRow) -> String {
    short_function_name(&row.name, MAX_NAME_CHARS)
}

fn write_values(json: &mut JsonWriter<'_>, values: &Values) {
    json.key("before").float(values.before);
    json.key("after").float(values.after);
    json.key("change").float(values.change());
    json.key("band").float(values.band);
}

fn write_row(json: &mut JsonWriter<'_>, row: &DiffRow) {
    json.object(|json| {
        json.key("function").string(&row.name);
        match &row.library {
            Some(library) => json.key("library").string(library),
            None => json.key("library").null(),
        }
        write_values(json, &row.values);
        json.key("verdict").string(row.verdict.name());
    });
}
