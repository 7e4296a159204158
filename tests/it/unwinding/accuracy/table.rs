//! What was counted, and the bars.

/// How a captured stack compares with the true one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// The whole chain.
    Exact,
    /// Marked as truncated, and what is there is true.
    Truncated,
    /// Anything else.
    Wrong,
}

/// Compares a stack, innermost first, with the truth.
pub(crate) fn judge(frames: &[u64], is_truncated: bool, truth: &[u64]) -> Verdict {
    match is_truncated {
        false if frames == truth => Verdict::Exact,
        true if truth.starts_with(frames) => Verdict::Truncated,
        _ => Verdict::Wrong,
    }
}

/// How exact a case must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bar {
    /// It counts among those of which 99.5 % must be exact.
    Exact,
    /// Exact or truncated: what is needed to go further is not there.
    ExactOrTruncated,
}

#[derive(Debug)]
pub(crate) struct Row {
    case: String,
    bar: Bar,
    exact: usize,
    truncated: usize,
    wrong: usize,
    /// The first that was wrong, in words, and the first that was truncated.
    examples: Vec<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Row>,
}

impl Row {
    pub(crate) fn new(case: impl Into<String>, bar: Bar) -> Self {
        Self {
            case: case.into(),
            bar,
            exact: 0,
            truncated: 0,
            wrong: 0,
            examples: Vec::new(),
        }
    }

    pub(crate) fn count(&mut self, verdict: Verdict, describe: impl FnOnce() -> String) {
        let count = match verdict {
            Verdict::Exact => &mut self.exact,
            Verdict::Truncated => &mut self.truncated,
            Verdict::Wrong => &mut self.wrong,
        };
        *count += 1;
        let is_expected = verdict == Verdict::Exact
            || (verdict == Verdict::Truncated && self.bar == Bar::ExactOrTruncated);
        if *count == 1 && !is_expected {
            self.examples.push(format!("{verdict:?}: {}", describe()));
        }
    }

    pub(crate) fn captures(&self) -> usize {
        self.exact + self.truncated + self.wrong
    }
}

impl Table {
    /// Adds a case, of which there must be so many captures.
    pub(crate) fn add(&mut self, row: Row, at_least: usize) {
        assert!(
            row.captures() >= at_least,
            "{} captures are too few: {row:?}",
            row.captures()
        );
        self.rows.push(row);
    }

    pub(crate) fn print(&self) {
        println!(
            "{:44} {:>8} {:>8} {:>9} {:>6}",
            "case", "captures", "exact", "truncated", "wrong"
        );
        for Row {
            case,
            bar,
            exact,
            truncated,
            wrong,
            ..
        } in &self.rows
        {
            let mark = if *bar == Bar::ExactOrTruncated {
                " *"
            } else {
                ""
            };
            let captures = exact + truncated + wrong;
            println!(
                "{:44} {captures:8} {exact:8} {truncated:9} {wrong:6}",
                format!("{case}{mark}")
            );
        }
        println!("* exact or truncated: not among those of which 99.5 % must be exact");
        for row in &self.rows {
            for example in &row.examples {
                println!("{}: the first that is {example}", row.case);
            }
        }
    }

    /// The cases in which a stack is wrong, or less than 99.5 % are exact although the case counts for that.
    pub(crate) fn below_the_bars(&self) -> Vec<&str> {
        let below = |row: &&Row| {
            let is_counted = row.bar == Bar::Exact;
            row.wrong > 0 || (is_counted && row.exact * 1000 < row.captures() * 995)
        };
        self.rows
            .iter()
            .filter(below)
            .map(|row| row.case.as_str())
            .collect()
    }
}

#[test]
fn verdicts_and_bars_tell_good_from_bad() {
    let truth = [1, 2, 3];
    assert_eq!(judge(&[1, 2, 3], false, &truth), Verdict::Exact);
    assert_eq!(judge(&[1, 2], true, &truth), Verdict::Truncated);
    for (frames, truncated) in [
        (&[1, 2][..], false),
        (&[1, 3], true),
        (&[1, 2, 3, 4], true),
        (&[1, 2, 3, 4], false),
    ] {
        assert_eq!(judge(frames, truncated, &truth), Verdict::Wrong);
    }
    let passes = |bar, verdicts: &[(Verdict, usize)]| {
        let mut row = Row::new("case", bar);
        verdicts.iter().for_each(|(verdict, times)| {
            (0..*times).for_each(|_| row.count(*verdict, String::new))
        });
        let mut table = Table::default();
        table.add(row, 1);
        table.below_the_bars().is_empty()
    };
    assert!(passes(
        Bar::Exact,
        &[(Verdict::Exact, 995), (Verdict::Truncated, 5)]
    ));
    assert!(!passes(
        Bar::Exact,
        &[(Verdict::Exact, 994), (Verdict::Truncated, 6)]
    ));
    assert!(passes(Bar::ExactOrTruncated, &[(Verdict::Truncated, 1)]));
    assert!(!passes(
        Bar::ExactOrTruncated,
        &[(Verdict::Exact, 9999), (Verdict::Wrong, 1)]
    ));
}
