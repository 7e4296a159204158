//! Columns of text, and numbers with their units.

/// The side of a column on which its texts begin or end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows of text in aligned columns, below a row of headings.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    alignment: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl Columns {
    pub(crate) fn new(headings: &[(Align, &str)]) -> Self {
        let heading = headings.iter().map(|(_, text)| (*text).to_owned());
        Self {
            alignment: headings.iter().map(|(align, _)| *align).collect(),
            rows: vec![heading.collect()],
        }
    }

    pub(crate) fn push(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    /// Returns the number of rows below the headings.
    pub(crate) fn len(&self) -> usize {
        self.rows.len() - 1
    }

    /// Removes the last row, unless only the headings are left.
    pub(crate) fn pop(&mut self) {
        if self.len() > 0 {
            self.rows.pop();
        }
    }

    /// Returns the rows, each as a line. Two spaces separate columns.
    pub(crate) fn lines(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.alignment.len()).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let start = text.len();
            for ((cell, &width), align) in row.iter().zip(&widths).zip(&self.alignment) {
                if text.len() > start {
                    text.push_str("  ");
                }
                match align {
                    Align::Left => text.push_str(&format!("{cell:<width$}")),
                    Align::Right => text.push_str(&format!("{cell:>width$}")),
                }
            }
            text.truncate(text.trim_end().len().max(start));
            text.push('\n');
        }
        text
    }
}

/// Returns a duration with three or four digits and its unit, without a space, so that it is one
/// word.
pub(crate) fn time_text(ns: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs")];
    let unit = UNITS.iter().find(|(unit_ns, _)| ns >= *unit_ns);
    let Some(&(unit_ns, unit)) = unit else {
        return format!("{ns}ns");
    };
    let value = ns as f64 / unit_ns as f64;
    let decimals = match value {
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}{unit}")
}

/// Returns a time that may lie before the profile's start.
pub(crate) fn point_text(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    format!("{sign}{:.3}s", ns.unsigned_abs() as f64 / 1e9)
}

/// Returns a share of 1 in percent.
pub(crate) fn share_text(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_without_spaces_at_the_end() {
        let mut columns = Columns::new(&[
            (Align::Right, "n"),
            (Align::Left, "name"),
            (Align::Left, "x"),
        ]);
        columns.push(vec!["12µs".into(), "ü".into(), String::new()]);
        columns.push(vec!["1s".into(), "longer".into(), "y".into()]);
        assert_eq!(
            columns.lines(),
            "   n  name    x\n12µs  ü\n  1s  longer  y\n"
        );
        assert_eq!(columns.len(), 2);
        (0..3).for_each(|_| columns.pop());
        assert_eq!(columns.lines(), "n  name  x\n");
    }

    #[test]
    fn numbers_have_units() {
        for (ns, text) in [
            (0, "0ns"),
            (999, "999ns"),
            (1_500, "1.50µs"),
            (12_345_678, "12.3ms"),
            (250_000_000, "250ms"),
            (61_000_000_000, "61.0s"),
        ] {
            assert_eq!(time_text(ns), text);
        }
        assert_eq!(point_text(-1_500_000_000), "-1.500s");
        assert_eq!(share_text(0.1234), "12.3%");
    }
}
