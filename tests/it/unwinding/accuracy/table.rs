//! The counts of each case, and how exact it must be.

/// How a captured stack compares with the true one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// The whole chain.
    Exact,
    /// Marked as truncated, and its frames are true.
    Truncated,
    /// Anything else.
    Wrong,
}

/// Compares a stack with the true one, both innermost first.
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
    /// 99.5 % must be exact, the rest truncated.
    Exact,
    /// 80 % must be exact, the rest truncated: for some instructions, the true stack is unknown.
    MostlyExact,
    /// Each must be exact or truncated: the unwinder may lack the data to go further.
    ExactOrTruncated,
}

#[derive(Debug)]
pub(crate) struct Row {
    case: String,
    bar: Bar,
    exact: usize,
    truncated: usize,
    wrong: usize,
    /// Number of truncated stacks that do not count against exactness.
    excused: usize,
    /// Descriptions of the first wrong stack and of the first truncated one.
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
            excused: 0,
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
        let is_expected =
            verdict == Verdict::Exact || (verdict == Verdict::Truncated && self.bar != Bar::Exact);
        if *count == 1 && !is_expected {
            self.examples.push(format!("{verdict:?}: {}", describe()));
        }
    }

    /// Excuses truncated stacks: the kernel does not report all registers of a thread that is
    /// blocked, for example by a page fault.
    pub(crate) fn excuse_truncated(&mut self, stacks: usize) {
        self.excused += stacks;
    }

    pub(crate) fn captures(&self) -> usize {
        self.exact + self.truncated + self.wrong
    }
}

impl Table {
    /// Adds a case, which must have at least this many captures.
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
            let mark = match bar {
                Bar::Exact => "",
                Bar::MostlyExact => " +",
                Bar::ExactOrTruncated => " *",
            };
            let captures = exact + truncated + wrong;
            println!(
                "{:44} {captures:8} {exact:8} {truncated:9} {wrong:6}",
                format!("{case}{mark}")
            );
        }
        println!(
            "* exact or truncated; + 80 % must be exact; of the other cases, 99.5 % must be exact"
        );
        for row in &self.rows {
            for example in &row.examples {
                println!("{}: the first stack that is {example}", row.case);
            }
        }
    }

    /// Returns the cases with a wrong stack, or with less than 99.5 % exact stacks where that is
    /// required.
    pub(crate) fn below_the_bars(&self) -> Vec<&str> {
        let below = |row: &&Row| {
            let per_thousand = match row.bar {
                Bar::Exact => 995,
                Bar::MostlyExact => 800,
                Bar::ExactOrTruncated => 0,
            };
            let accepted = row.exact + row.truncated.min(row.excused);
            row.wrong > 0 || accepted * 1000 < row.captures() * per_thousand
        };
        self.rows
            .iter()
            .filter(below)
            .map(|row| row.case.as_str())
            .collect()
    }
}

#[test]
fn verdicts_and_bars_separate_good_from_bad() {
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
    let four_of_five = [(Verdict::Exact, 4), (Verdict::Truncated, 1)];
    assert!(passes(Bar::MostlyExact, &four_of_five));
    let three_of_four = [(Verdict::Exact, 3), (Verdict::Truncated, 1)];
    assert!(!passes(Bar::MostlyExact, &three_of_four));
    assert!(passes(Bar::ExactOrTruncated, &[(Verdict::Truncated, 1)]));
    assert!(!passes(
        Bar::ExactOrTruncated,
        &[(Verdict::Exact, 9999), (Verdict::Wrong, 1)]
    ));
}
