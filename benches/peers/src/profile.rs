//! Reads a session's figures from its gekkota profile.

use std::collections::BTreeMap;
use std::io::Write;

use gekkota::Profile;
use gekkota::profile::{Format, SnapshotOptions, Symbolicate};
use serde_json::Value;

use crate::study::Fallible;

/// Returns the profile as JSON, without symbol names.
pub(crate) fn to_json(profile: &Profile) -> Fallible<Value> {
    let mut text = Vec::new();
    write_nameless(profile, &mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// Writes the profile as Gecko's JSON, without symbol names.
pub(crate) fn write_nameless(profile: &Profile, sink: &mut dyn Write) -> Fallible<()> {
    let options = SnapshotOptions::default().symbolicate(Symbolicate::No);
    Ok(profile.write_with(Format::Gecko, sink, &options)?)
}

/// Returns what the profile records about its session and its buffer: the entry of this process in
/// `profilingLog`. The rows before it, which can be many, are not parsed.
pub(crate) fn log_of(profile: &Profile) -> Fallible<Value> {
    const KEY: &[u8] = b"\"profilingLog\":";
    let mut text = Vec::new();
    write_nameless(profile, &mut text)?;
    let at = text.windows(KEY.len()).rposition(|window| window == KEY);
    let rest = &text[at.ok_or("the profile has no log")? + KEY.len()..];
    let mut logs = serde_json::Deserializer::from_slice(rest).into_iter::<Value>();
    let log = logs.next().ok_or("the profile's log ends early")??;
    let own = log[std::process::id().to_string()].clone();
    match own.is_object() {
        true => Ok(own),
        false => Err("the profile's log has no entry for this process".into()),
    }
}

/// Number and bytes of the buffer's entries of one or more kinds, including their length prefixes.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Entries {
    pub(crate) count: u64,
    pub(crate) bytes: u64,
}

impl Entries {
    /// Returns the sum over these kinds.
    ///
    /// # Errors
    /// Fails if the log does not list entries by kind.
    pub(crate) fn of(log: &Value, kinds: &[&str]) -> Result<Self, String> {
        let entries_by_kind = log["buffer"]["entries"].as_object().ok_or(NO_KINDS)?;
        kinds.iter().try_fold(Self::default(), |sum, kind| {
            let number = |name| {
                let number = entries_by_kind
                    .get(*kind)
                    .and_then(|entries| entries[name].as_u64());
                number.ok_or_else(|| {
                    format!("the profile's log has no `buffer.entries.{kind}.{name}`")
                })
            };
            Ok(Self {
                count: sum.count + number("count")?,
                bytes: sum.bytes + number("bytes")?,
            })
        })
    }

    /// Returns the mean size, or NaN without entries.
    pub(crate) fn mean_bytes(self) -> f64 {
        self.bytes as f64 / self.count as f64
    }
}

const NO_KINDS: &str = "the profile's log has no `buffer.entries`, the bytes by kind of entry";

/// Kinds of entries that hold one sample each.
pub(crate) const SINGLE_SAMPLES: [&str; 3] = ["sample", "repeated_sample", "same_sample"];
/// All kinds of entries with samples; an entry of the last kind holds many.
pub(crate) const ALL_SAMPLES: [&str; 4] = ["sample", "repeated_sample", "same_sample", "run"];

/// Returns a number of the log, or 0 if it is missing.
pub(crate) fn logged(log: &Value, part: &str, name: &str) -> u64 {
    log[part][name].as_u64().unwrap_or(0)
}

/// The counters of a session.
pub(crate) struct Counts(BTreeMap<&'static str, f64>);

impl Counts {
    pub(crate) fn of(profile: &Profile) -> Self {
        let counts = profile.sampler_counts().into_iter();
        Self(counts.map(|(name, count)| (name, count as f64)).collect())
    }

    /// Returns a counter, or 0 if the session has none of this name.
    pub(crate) fn get(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or(0.0)
    }

    /// Returns how much the counters have grown.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let counts = self.0.iter();
        Self(
            counts
                .map(|(name, count)| (*name, count - before.get(name)))
                .collect(),
        )
    }

    /// Returns some of the counters of an arm, as figures in addition to those of the arms.
    pub(crate) fn also(&self, arm: &str, names: &[&str]) -> Value {
        let counts = names
            .iter()
            .map(|name| (format!("{arm}_{name}"), self.get(name).into()));
        Value::Object(counts.collect())
    }
}

/// Returns the moment of a Gecko profile's time 0, by the monotonic clock.
pub(crate) fn zero_ns(profile: &Value) -> Fallible<u64> {
    let zero = profile["meta"]["startTimeAsClockMonotonicNanosecondsSinceBoot"].as_u64();
    zero.ok_or_else(|| "the profile has no start time".into())
}

pub(crate) fn threads(profile: &Value) -> impl Iterator<Item = &Value> {
    profile["threads"].as_array().into_iter().flatten()
}

/// Iterates over a column of a table in a Gecko profile.
pub(crate) fn column<'a>(table: &'a Value, name: &str) -> Option<impl Iterator<Item = &'a Value>> {
    let index = table["schema"][name].as_u64()? as usize;
    Some(table["data"].as_array()?.iter().map(move |row| &row[index]))
}

/// The tables of a thread in a Gecko profile. A method returns `None` if it misses one.
pub(crate) struct Tables<'a>(pub(crate) &'a Value);

pub(crate) struct Frame<'a> {
    pub(crate) name: &'a str,
    pub(crate) category: Option<u64>,
}

pub(crate) struct Sample {
    pub(crate) stack: Option<usize>,
    pub(crate) time_ms: f64,
    /// CPU time since the sample before.
    pub(crate) cpu_ns: Option<f64>,
}

impl<'a> Tables<'a> {
    fn frames(&self) -> Option<Vec<Frame<'a>>> {
        let table = &self.0["frameTable"];
        let category = table["schema"]["category"].as_u64();
        let rows = column(table, "location")?.zip(table["data"].as_array()?);
        let frame = |(location, row): (&Value, &'a Value)| {
            Some(Frame {
                name: self.0["stringTable"][location.as_u64()? as usize].as_str()?,
                category: category.and_then(|place| row[place as usize].as_u64()),
            })
        };
        rows.map(frame).collect()
    }

    /// Returns one value for each stack. `of` computes it from the value of the stack's prefix and
    /// from the innermost frame.
    pub(crate) fn stacks<T>(&self, of: impl Fn(Option<&T>, &Frame<'a>) -> T) -> Option<Vec<T>> {
        let (frames, table) = (self.frames()?, &self.0["stackTable"]);
        // A stack's prefix has a smaller number than the stack.
        let mut stacks = Vec::new();
        for (prefix, frame) in column(table, "prefix")?.zip(column(table, "frame")?) {
            let prefix = prefix
                .as_u64()
                .and_then(|prefix| stacks.get(prefix as usize));
            stacks.push(of(prefix, frames.get(frame.as_u64()? as usize)?));
        }
        Some(stacks)
    }

    pub(crate) fn samples(&self) -> Option<Vec<Sample>> {
        let table = &self.0["samples"];
        let cells = column(table, "stack")?.zip(column(table, "time")?);
        let cpu = table["schema"]["threadCPUDelta"].as_u64();
        let rows = cells.zip(table["data"].as_array()?);
        rows.map(|((stack, time), row)| {
            Some(Sample {
                stack: stack.as_u64().map(|stack| stack as usize),
                time_ms: time.as_f64()?,
                cpu_ns: cpu.and_then(|place| row[place as usize].as_f64()),
            })
        })
        .collect()
    }
}

/// Returns for each sample of a thread in a Gecko profile whether the thread ran: it used CPU time since
/// the sample before, and its stack is not one that waits. `None` if a table is missing.
pub(crate) fn running(profile: &Value, thread: &Value) -> Option<Vec<bool>> {
    let mut categories = profile["meta"]["categories"].as_array()?.iter();
    let idle = categories.position(|category| category["name"] == "Idle")? as u64;
    let waits = Tables(thread).stacks(|_, frame| frame.category == Some(idle))?;
    let samples = Tables(thread).samples()?.into_iter();
    let runs = samples.map(|sample| {
        sample.cpu_ns != Some(0.0) && sample.stack.is_some_and(|stack| !waits[stack])
    });
    Some(runs.collect())
}

/// Returns the times of a thread's samples, in milliseconds, ascending.
pub(crate) fn find_sample_times(profile: &Value, thread: &str) -> Option<Vec<f64>> {
    let found = threads(profile).find(|candidate| candidate["name"] == thread)?;
    let samples = Tables(found).samples()?.into_iter();
    let mut times: Vec<f64> = samples.map(|sample| sample.time_ms).collect();
    times.sort_by(f64::total_cmp);
    Some(times)
}

/// CPU time in the samples of a Gecko profile, by their stacks.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(crate) struct CpuInSamples {
    pub(crate) all_ns: f64,
    /// In samples whose innermost function has a name, and whose stack is whole.
    pub(crate) named_ns: f64,
}

impl CpuInSamples {
    /// Adds the samples of a thread up to this time, in milliseconds since the profile's start.
    /// Returns `None` if one of the thread's tables is missing.
    pub(crate) fn add_thread(&mut self, thread: &Value, until_ms: f64) -> Option<()> {
        // Of each stack, whether it is whole, and whether its innermost function has a name.
        let stacks = Tables(thread).stacks(|below: Option<&(bool, bool)>, frame| {
            let is_whole = below.is_none_or(|below| below.0) && frame.name != "(truncated)";
            (is_whole, is_name(frame.name))
        })?;
        let samples = Tables(thread).samples()?.into_iter();
        for sample in samples.take_while(|sample| sample.time_ms <= until_ms) {
            let cpu_ns = sample.cpu_ns.unwrap_or(0.0);
            self.all_ns += cpu_ns;
            if sample
                .stack
                .is_some_and(|stack| stacks[stack] == (true, true))
            {
                self.named_ns += cpu_ns;
            }
        }
        Some(())
    }
}

/// Returns whether a frame is of a function whose name is known: not an address or a placeholder.
fn is_name(frame: &str) -> bool {
    !(frame.is_empty() || frame.starts_with("0x") || frame.starts_with('('))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profile_has_tick_counts_and_a_log() {
        let session = gekkota::ProfilerSession::start(gekkota::StartParams::default());
        let profile = session.expect("a session").finish().expect("a profile");
        let counts = Counts::of(&profile);
        for name in ["ticks", "late_ticks", "missed_ticks", "captured_samples"] {
            assert!(counts.0.contains_key(name), "{name}");
        }
        let log = log_of(&profile).expect("a log");
        assert_eq!(logged(&log, "buffer", "capacity_bytes"), 128 << 20);
        assert_eq!(logged(&log, "sampler", "ticks") as f64, counts.get("ticks"));
    }

    #[test]
    fn cpu_in_samples_tells_whole_named_stacks_apart() {
        let thread = serde_json::json!({
            "stringTable": ["(root)", "(truncated)", "work", "0x10", "(anonymous)"],
            "frameTable": {"schema": {"location": 0}, "data": [[0], [1], [2], [3]]},
            "stackTable": {
                "schema": {"prefix": 0, "frame": 1},
                // root; root, work; root, 0x10; root, truncated; root, truncated, work
                "data": [[null, 0], [0, 2], [0, 3], [0, 1], [3, 2]],
            },
            "samples": {
                "schema": {"stack": 0, "time": 1, "eventDelay": 2, "threadCPUDelta": 3},
                "data": [[1, 0, null, 100], [2, 1, null, 20], [4, 2, null, 3], [0, 3, null, 4000], [1, 4, null], [1, 5, null, 7]],
            },
        });
        let mut sums = CpuInSamples::default();
        sums.add_thread(&thread, 4.0).expect("all tables");
        let expected = CpuInSamples {
            all_ns: 4123.0,
            named_ns: 100.0,
        };
        assert_eq!(sums, expected);
        assert!(sums.add_thread(&Value::Null, 4.0).is_none());
    }

    #[test]
    fn running_tells_threads_with_cpu_time_from_waiting_ones() {
        let profile =
            serde_json::json!({"meta": {"categories": [{"name": "Other"}, {"name": "Idle"}]}});
        let thread = serde_json::json!({
            "stringTable": ["work"],
            "frameTable": {"schema": {"location": 0, "category": 6}, "data": [
                [0, false, 0, null, null, null, 0, 0],
                [0, false, 0, null, null, null, 1, 0],
                [0],
            ]},
            "stackTable": {"schema": {"prefix": 0, "frame": 1}, "data": [[null, 0], [0, 1], [0, 2]]},
            "samples": {
                "schema": {"stack": 0, "time": 1, "eventDelay": 2, "threadCPUDelta": 3},
                "data": [[0, 0, null, 9], [0, 1, null, 0], [1, 2, null, 9], [2, 3], [null, 4, null, 9]],
            },
        });
        let expected = [true, false, false, true, false];
        assert_eq!(running(&profile, &thread).expect("all tables"), expected);
        assert_eq!(running(&profile, &Value::Null), None);
    }

    #[test]
    fn entries_are_summed_by_kind_or_fail() {
        let kinds = serde_json::json!({"sample": {"count": 2, "bytes": 90}, "run": {"count": 1, "bytes": 10}});
        let log = serde_json::json!({"buffer": {"entries": kinds}});
        let entries = Entries::of(&log, &["sample", "run"]).expect("both");
        assert_eq!((entries.count, entries.bytes), (3, 100));
        assert!(
            Entries::of(&log, &["marker"])
                .expect_err("none")
                .contains("entries.marker.count")
        );
        assert_eq!(
            Entries::of(&Value::Null, &["run"]).expect_err("none"),
            NO_KINDS
        );
    }
}
