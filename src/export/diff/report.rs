//! Writes the difference of two profiles as text and as JSON.

use std::io::{self, Write};

use crate::export::diff::result::{Diff, DiffRow, Verdict};
use crate::export::function_names::{cut_middle, short_function_name};
use crate::export::summary::{ColumnKind, Columns, time_text};
use crate::json::JsonWriter;
use crate::util::FailureLatch;

const MAX_NAME_CHARS: usize = 70;
const MAX_LIBRARY_CHARS: usize = 24;

impl Diff {
    /// Returns tables for a terminal, with a line about what they mean.
    pub(crate) fn text(&self) -> String {
        let (before, after) = self.samples;
        let false_alarms = self.options.false_alarms * 100.0;
        let mut text = format!(
            "# diff\nsamples   {before} before, {after} after\nbands     without any change, all \
             changes lie within their bands, but for {false_alarms} % of comparisons\n"
        );
        match self.work {
            Some((before, after)) => text.push_str(&format!(
                "values    time per unit of work: {before} units before, {after} after\n"
            )),
            None => text.push_str("values    shares of the sampled time\n"),
        }
        let mut slower = self.own.iter().filter(|row| row.verdict == Verdict::Slower);
        let verdict = match (slower.next(), self.is_regression()) {
            (None, _) => self.without_regression(),
            (Some(first), true) => format!("regression: {}", name(first)),
            (Some(first), false) => format!("no regression above the threshold: {}", name(first)),
        };
        text.push_str(&format!("verdict   {verdict}\n"));
        for (title, rows) in [("self time", &self.own), ("total time", &self.total)] {
            text.push_str(&format!("\n# {title}\n{}", self.table(rows)));
            let left_out = rows.len().saturating_sub(self.options.max_rows);
            if left_out > 0 {
                text.push_str(&format!("({left_out} more functions)\n"));
            }
        }
        text
    }

    /// Says how large a change could be and yet be missed.
    fn without_regression(&self) -> String {
        let bands = self.own.iter().map(|row| row.band);
        let widest = self.value(bands.fold(0.0, f64::max));
        format!(
            "no regression; a change within a function's band may be missed, the widest is ±{widest}"
        )
    }

    fn table(&self, rows: &[DiffRow]) -> String {
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
        for row in rows.iter().take(self.options.max_rows) {
            let change = row.after - row.before;
            let sign = if change < 0.0 { '-' } else { '+' };
            let library = row.library.as_deref().unwrap_or_default();
            columns.push(vec![
                row.verdict.name().to_owned(),
                self.value(row.before),
                self.value(row.after),
                format!("{sign}{}", self.value(change.abs())),
                format!("±{}", self.value(row.band)),
                name(row),
                cut_middle(library, MAX_LIBRARY_CHARS),
            ]);
        }
        columns.lines()
    }

    /// Returns a share in percent, or a time per unit of work.
    fn value(&self, value: f64) -> String {
        match self.work {
            Some(_) => time_text(value.round() as u64),
            None => format!("{:.2}%", value * 100.0),
        }
    }

    /// Writes one object, with all functions that were compared. Shares are of 1, times in ns.
    pub(crate) fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut json = JsonWriter::for_job(out, FailureLatch::fallible());
        json.object(|json| {
            json.key("unit").string(match self.work {
                Some(_) => "ns per unit of work",
                None => "share of the sampled time",
            });
            for (key, samples, work) in [
                ("before", self.samples.0, self.work.map(|work| work.0)),
                ("after", self.samples.1, self.work.map(|work| work.1)),
            ] {
                json.key(key).object(|json| {
                    json.key("samples").unsigned(samples);
                    if let Some(work) = work {
                        json.key("work").float(work);
                    }
                });
            }
            json.key("falseAlarms").float(self.options.false_alarms);
            json.key("threshold").float(self.options.threshold);
            json.key("isRegression").bool(self.is_regression());
            for (key, rows) in [("self", &self.own), ("total", &self.total)] {
                json.key(key)
                    .array(|json| rows.iter().for_each(|row| write_row(json, row)));
            }
        });
        json.finish()
    }
}

fn name(row: &DiffRow) -> String {
    short_function_name(&row.name, MAX_NAME_CHARS)
}

fn write_row(json: &mut JsonWriter<'_>, row: &DiffRow) {
    json.object(|json| {
        json.key("function").string(&row.name);
        match &row.library {
            Some(library) => json.key("library").string(library),
            None => json.key("library").null(),
        }
        json.key("before").float(row.before);
        json.key("after").float(row.after);
        json.key("change").float(row.after - row.before);
        json.key("band").float(row.band);
        json.key("verdict").string(row.verdict.name());
    });
}
