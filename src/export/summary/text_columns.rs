//! Columns of text, and numbers with their units.

use anstyle::{AnsiColor, Style};

use crate::export::function_names::short_function_name;
use crate::export::options::Look;

/// What a column contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ColumnKind {
    Left,
    Right,
    /// Names on the left side. They are as long as they are in a plain text, unless there is a limit,
    /// and shortened to fit into a terminal.
    Name,
    /// Shares of 1. In a terminal, each is a bar; a plain text leaves them out.
    Bar,
}

/// How a table becomes lines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) look: Look,
    /// Maximum length of a name.
    pub(crate) name_chars: usize,
}

impl Layout {
    pub(crate) const PLAIN: Self = Self {
        look: Look::Plain,
        name_chars: usize::MAX,
    };
}

const BAR_COLUMNS: usize = 10;
/// Width of a terminal in which there is space for bars.
const MIN_COLUMNS_FOR_BARS: usize = 100;
/// Length that names have space for before the columns after them are shown, too.
const USUAL_NAME_CHARS: usize = 32;
/// Length to which a name is shortened at most, even if the line then is too long for the terminal.
const MIN_NAME_CHARS: usize = 16;
const GAP: &str = "  ";

/// Rows of text in aligned columns, below a row of headings.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    kinds: Vec<ColumnKind>,
    rows: Vec<Vec<String>>,
}

impl Columns {
    pub(crate) fn new(headings: &[(ColumnKind, &str)]) -> Self {
        let heading = headings.iter().map(|(_, text)| (*text).to_owned());
        Self {
            kinds: headings.iter().map(|(kind, _)| *kind).collect(),
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

    /// Returns the rows as plain lines. Two spaces separate columns.
    pub(crate) fn lines(&self) -> String {
        self.lines_in(Layout::PLAIN)
    }

    /// Returns the space for each name if these columns are shown in a terminal.
    fn free_chars(&self, shown: &[usize], columns: usize) -> usize {
        let cells = |column: usize| self.rows.iter().filter_map(move |row| row.get(column));
        let longest = |column| cells(column).map(|text| text.chars().count()).max();
        let fixed = shown.iter().map(|&column| match self.kinds[column] {
            ColumnKind::Name => GAP.len(),
            ColumnKind::Bar => BAR_COLUMNS + GAP.len(),
            ColumnKind::Left | ColumnKind::Right => longest(column).unwrap_or(0) + GAP.len(),
        });
        let free = (columns + GAP.len()).saturating_sub(fixed.sum());
        let is_name = |column: &&usize| self.kinds[**column] == ColumnKind::Name;
        free / shown.iter().filter(is_name).count().max(1)
    }

    /// Returns the rows, each as a line.
    pub(crate) fn lines_in(&self, layout: Layout) -> String {
        let shows_bars = matches!(
            layout.look,
            Look::Terminal { columns, .. } if columns >= MIN_COLUMNS_FOR_BARS
        );
        let is_shown = |kind: ColumnKind| kind != ColumnKind::Bar || shows_bars;
        let mut shown: Vec<usize> = (0..self.kinds.len())
            .filter(|&column| is_shown(self.kinds[column]))
            .collect();
        let length = |text: &String| text.chars().count();
        let name_chars = match layout.look {
            Look::Plain => layout.name_chars,
            Look::Terminal { columns, .. } => loop {
                let chars = self.free_chars(&shown, columns);
                let is_name = |column: &usize| self.kinds[*column] == ColumnKind::Name;
                let after_name = shown.iter().rposition(is_name).map(|at| at + 1);
                // In a narrow terminal, a name says more than what follows it.
                if chars >= USUAL_NAME_CHARS || after_name.is_none_or(|at| at == shown.len()) {
                    break layout.name_chars.min(chars.max(MIN_NAME_CHARS));
                }
                shown.pop();
            },
        };
        let text_of = |row: usize, column: usize| -> String {
            let cell = self.rows[row].get(column).map_or("", String::as_str);
            match self.kinds[column] {
                ColumnKind::Name => short_function_name(cell, name_chars),
                ColumnKind::Bar if row > 0 => bar(cell.parse().unwrap_or(0.0)),
                ColumnKind::Left | ColumnKind::Right | ColumnKind::Bar => cell.to_owned(),
            }
        };
        let texts: Vec<Vec<String>> = (0..self.rows.len())
            .map(|row| shown.iter().map(|&column| text_of(row, column)).collect())
            .collect();
        let width = |at: usize| texts.iter().map(|row| length(&row[at])).max().unwrap_or(0);
        let widths: Vec<usize> = (0..shown.len()).map(width).collect();
        let mut lines = String::new();
        for (row, texts) in texts.iter().enumerate() {
            let mut line = String::new();
            for (at, (text, &width)) in texts.iter().zip(&widths).enumerate() {
                if at > 0 {
                    line.push_str(GAP);
                }
                match self.kinds[shown[at]] {
                    ColumnKind::Right => line.push_str(&format!("{text:>width$}")),
                    ColumnKind::Left | ColumnKind::Name | ColumnKind::Bar => {
                        line.push_str(&format!("{text:<width$}"));
                    }
                }
            }
            let style = if row == 0 { HEADINGS } else { Style::new() };
            lines.push_str(&styled(line.trim_end(), style, layout.look));
            lines.push('\n');
        }
        lines
    }
}

/// Style of the titles of sections.
pub(crate) const TITLE: Style = Style::new().bold();
/// Style of the headings of columns.
const HEADINGS: Style = Style::new().dimmed();
/// Style of warnings.
pub(crate) const WARNING: Style = AnsiColor::Yellow.on_default();

/// Returns the text in the style, if the terminal has colors.
pub(crate) fn styled(text: &str, style: Style, look: Look) -> String {
    match look {
        Look::Terminal {
            has_colors: true, ..
        } if !style.is_plain() => format!("{style}{text}{style:#}"),
        _ => text.to_owned(),
    }
}

/// Returns a bar whose length is the share of [`BAR_COLUMNS`], drawn to an eighth of a column.
fn bar(share: f64) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * BAR_COLUMNS as f64 * 8.0).round() as usize;
    "█".repeat(eighths / 8) + PARTS[eighths % 8]
}

/// Returns the text in lines of at most this many characters, where its words allow that. The lines
/// after the first begin with `indent` spaces.
pub(crate) fn wrapped(text: &str, columns: usize, indent: usize) -> String {
    let mut lines = String::new();
    let mut length = 0;
    for word in text.split(' ') {
        let word_length = word.chars().count();
        if length > 0 && length + 1 + word_length > columns {
            lines.push('\n');
            lines.push_str(&" ".repeat(indent));
            length = indent;
        } else if !lines.is_empty() {
            lines.push(' ');
            length += 1;
        }
        lines.push_str(word);
        length += word_length;
    }
    lines
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

/// Returns a number of bytes with two or three digits and its unit, as one word.
pub(crate) fn bytes_text(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes}B"),
        1_000..1_000_000 => format!("{:.0}kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1}MB", bytes as f64 / 1e6),
        _ => format!("{:.2}GB", bytes as f64 / 1e9),
    }
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
            (ColumnKind::Right, "n"),
            (ColumnKind::Left, "name"),
            (ColumnKind::Left, "x"),
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
    fn names_are_shortened_to_the_terminal_only() {
        let mut columns = Columns::new(&[
            (ColumnKind::Right, "self"),
            (ColumnKind::Bar, ""),
            (ColumnKind::Name, "function"),
            (ColumnKind::Left, "library"),
        ]);
        let name = format!("krate::{}::function", ["module"; 20].join("::"));
        columns.push(vec!["1s".into(), "0.5".into(), name.clone(), "app".into()]);
        assert!(columns.lines().contains(&format!("  1s  {name}  app\n")));
        for (width, has_bar) in [(40, false), (80, false), (100, true), (1000, true)] {
            let ending = if width > 40 {
                "::function  app"
            } else {
                "::function"
            };
            let look = Look::Terminal {
                columns: width,
                has_colors: false,
            };
            let layout = Layout {
                look,
                ..Layout::PLAIN
            };
            let text = columns.lines_in(layout);
            let line = text.lines().nth(1).expect("a row");
            assert!(line.chars().count() <= width, "{width}: {line}");
            assert_eq!(line.contains('█'), has_bar, "{width}: {line}");
            assert_eq!(line.contains(&name), width == 1000, "{width}: {line}");
            assert!(line.contains("krate::") && line.ends_with(ending), "{line}");
        }
        let colored = Layout {
            look: Look::Terminal {
                columns: 80,
                has_colors: true,
            },
            ..Layout::PLAIN
        };
        assert!(columns.lines_in(colored).starts_with("\u{1b}["));
        assert!(!columns.lines().contains('\u{1b}'));
    }

    #[test]
    fn wrapped_text_breaks_between_words() {
        assert_eq!(wrapped("one two three", 8, 2), "one two\n  three");
        assert_eq!(wrapped("incomprehensible", 8, 2), "incomprehensible");
        assert_eq!(wrapped("a b", 80, 2), "a b");
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
