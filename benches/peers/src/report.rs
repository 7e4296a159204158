//! The result of a measurement, as a table and as JSON.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::numbers::median;

/// The runs of one arm: of a profiler in one setting.
pub(crate) struct Arm {
    pub(crate) name: String,
    /// In the order of the runs.
    pub(crate) runs: Vec<f64>,
    /// Whether this is an extra figure, such as another setting or the cost of a part, and not
    /// compared with `ours`.
    pub(crate) extra: bool,
    /// Whether the table lists only the median of this extra figure.
    pub(crate) is_detail: bool,
}

impl Arm {
    pub(crate) fn figure(&self) -> f64 {
        median(&self.runs)
    }
}

pub(crate) struct Report {
    pub(crate) unit: &'static str,
    pub(crate) ours: Arm,
    pub(crate) peers: Vec<Arm>,
    /// The machine's figure without a profiler, if that can be measured.
    pub(crate) floor: Option<Arm>,
    /// Returns the better of two figures.
    pub(crate) better: fn(f64, f64) -> f64,
    pub(crate) goal: &'static str,
    pub(crate) met: bool,
    /// Explanations of the figures.
    pub(crate) notes: Vec<String>,
}

impl Report {
    /// Returns our figure divided by the best peer's, or `None` if there is no peer or the ratio is
    /// not finite.
    pub(crate) fn ratio(&self) -> Option<f64> {
        let best = self.peers(false).map(Arm::figure).reduce(self.better)?;
        Some(self.ours.figure() / best).filter(|ratio| ratio.is_finite())
    }

    fn peers(&self, extra: bool) -> impl Iterator<Item = &Arm> {
        self.peers.iter().filter(move |arm| arm.extra == extra)
    }

    fn arms(&self) -> impl Iterator<Item = &Arm> {
        std::iter::once(&self.ours)
            .chain(&self.peers)
            .chain(&self.floor)
    }

    /// Formats the report as a table.
    pub(crate) fn table(&self, name: &str) -> String {
        let mut text = format!("{name}: {}\n\n", self.unit);
        let arms = || self.arms().filter(|arm| !arm.is_detail);
        let width = arms().map(|arm| arm.name.len()).max().unwrap_or(0).max(8);
        let mut row = |head: &str, figure: &str, rest: &str| {
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{}",
                format!("  {head:<width$}{figure:>10}  {rest}").trim_end()
            );
        };
        row("", "median", "runs");
        for arm in arms() {
            let runs: Vec<String> = arm.runs.iter().map(|run| figure_text(*run)).collect();
            row(&arm.name, &figure_text(arm.figure()), &runs.join("  "));
        }
        if let Some(ratio) = self.ratio() {
            row("ratio", &figure_text(ratio), "ours / best peer");
        }
        let details: Vec<String> = (self.arms().filter(|arm| arm.is_detail))
            .map(|arm| format!("{} {}", arm.name, figure_text(arm.figure())))
            .collect();
        if !details.is_empty() {
            text += &format!("\n  also: {}\n", details.join(", "));
        }
        if let Some(floor) = &self.floor {
            text += &format!(
                "\n  {} is the floor: the figure without a profiler",
                floor.name
            );
        }
        text += &format!(
            "\n  goal: {}: {}\n",
            self.goal,
            if self.met { "met" } else { "not met" }
        );
        for note in &self.notes {
            text += &format!("  {note}\n");
        }
        text
    }

    /// Formats the report as one line of JSON.
    pub(crate) fn json(&self, name: &str) -> String {
        let object = |value: fn(&Arm) -> Value, arms: &mut dyn Iterator<Item = &Arm>| {
            Value::Object(arms.map(|arm| (arm.name.clone(), value(arm))).collect())
        };
        let mut report = json!({
            "name": name,
            "unit": self.unit,
            "ours": rounded(self.ours.figure()),
            "peers": object(|arm| json!(rounded(arm.figure())), &mut self.peers(false)),
            "floor": self.floor.as_ref().map(|arm| rounded(arm.figure())),
            "ratio": self.ratio().map(rounded),
            "goal": self.goal,
            "met": self.met,
            "runs": object(|arm| arm.runs.iter().map(|run| rounded(*run)).collect(), &mut self.arms()),
            "notes": self.notes,
        });
        if self.peers(true).next().is_some() {
            report["others"] = object(|arm| json!(rounded(arm.figure())), &mut self.peers(true));
        }
        report.to_string()
    }
}

/// Rounds to five significant digits; more would be noise.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let scale = 10f64.powi(4 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}

fn figure_text(value: f64) -> String {
    if value.is_nan() {
        return "none".to_owned();
    }
    let rounded = rounded(value);
    if rounded.abs() >= 1000.0 {
        format!("{rounded:.0}")
    } else {
        format!("{rounded:.4}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm(name: &str) -> Arm {
        Arm {
            name: name.to_owned(),
            runs: Vec::new(),
            extra: false,
            is_detail: false,
        }
    }

    fn report() -> Report {
        Report {
            unit: "samples",
            ours: Arm {
                runs: vec![0.9, 1.0, 0.98],
                ..arm("ours")
            },
            peers: vec![
                Arm {
                    runs: vec![0.25, 0.24, 0.26],
                    ..arm("slow")
                },
                Arm {
                    runs: vec![0.49],
                    ..arm("fast")
                },
            ],
            floor: Some(Arm {
                runs: vec![0.995],
                ..arm("sleeper")
            }),
            better: f64::max,
            goal: "ours >= 0.99",
            met: false,
            notes: vec!["quiet".to_owned()],
        }
    }

    #[test]
    fn json_has_ordered_keys_and_the_ratio_to_the_best_peer() {
        assert_eq!(
            report().json("rate"),
            r#"{"name":"rate","unit":"samples","ours":0.98,"peers":{"slow":0.25,"fast":0.49},"floor":0.995,"#
                .to_owned()
                + r#""ratio":2.0,"goal":"ours >= 0.99","met":false,"#
                + r#""runs":{"ours":[0.9,1.0,0.98],"slow":[0.25,0.24,0.26],"fast":[0.49],"sleeper":[0.995]},"notes":["quiet"]}"#
        );
        let without_peers = Report {
            peers: Vec::new(),
            ..report()
        };
        assert_eq!(without_peers.ratio(), None);
    }

    #[test]
    fn json_lists_extra_arms_without_comparing_them() {
        let mut report = report();
        report.peers.push(Arm {
            runs: vec![0.7],
            extra: true,
            ..arm("ours_100hz")
        });
        assert_eq!(report.ratio(), Some(2.0));
        report.peers.push(Arm {
            runs: vec![0.6],
            extra: true,
            is_detail: true,
            ..arm("ours_10hz")
        });
        assert!(
            report
                .table("rate")
                .contains("\n  also: ours_10hz 0.6000\n")
        );
        let json: Value = serde_json::from_str(&report.json("rate")).expect("JSON");
        assert_eq!(json["peers"], json!({"slow": 0.25, "fast": 0.49}));
        assert_eq!(json["others"], json!({"ours_100hz": 0.7, "ours_10hz": 0.6}));
        assert_eq!(json["runs"]["ours_100hz"], json!([0.7]));
    }

    #[test]
    fn table_is_aligned() {
        let table = report().table("rate");
        assert!(
            table.contains("  ours        0.9800  0.9000  1.0000  0.9800\n"),
            "{table}"
        );
        assert!(
            table.contains("  ratio       2.0000  ours / best peer\n"),
            "{table}"
        );
        assert!(table.contains("goal: ours >= 0.99: not met\n"), "{table}");
        let mut report = report();
        report.peers.push(Arm {
            extra: true,
            ..arm("gone")
        });
        assert!(
            report.table("rate").contains("  gone          none\n"),
            "{}",
            report.table("rate")
        );
    }

    #[test]
    fn rounded_returns_expected_values() {
        assert_eq!(rounded(0.123_456_7), 0.123_46);
        assert_eq!(rounded(1_234_567.0), 1_234_600.0);
        assert_eq!(rounded(0.0), 0.0);
    }
}
