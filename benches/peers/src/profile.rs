//! Reads a session's figures from its gekkota profile.

use std::error::Error;
use std::io::Write;

use gekkota::profile::{Format, SnapshotOptions, Symbolicate};
use gekkota::{Profile, ProfilerSession, StartParams};
use serde_json::Value;

/// Returns the profile as JSON, without symbol names.
pub(crate) fn to_json(profile: &Profile) -> Result<Value, Box<dyn Error>> {
    let mut text = Vec::new();
    let options = SnapshotOptions::default().symbolicate(Symbolicate::No);
    profile.write_with(Format::Gecko, &mut text, &options)?;
    Ok(serde_json::from_slice(&text)?)
}

/// Returns what the profile records about its session and its buffer: the entry of this process in
/// `profilingLog`.
///
/// Only the end of the JSON is kept in memory: the log follows the rows, which can be large.
pub(crate) fn log_of(profile: &Profile) -> Result<Value, Box<dyn Error>> {
    let mut tail = Tail(Vec::new());
    let options = SnapshotOptions::default().symbolicate(Symbolicate::No);
    profile.write_with(Format::Gecko, &mut tail, &options)?;
    const KEY: &[u8] = b"\"profilingLog\":";
    let at = tail
        .0
        .windows(KEY.len())
        .rposition(|window| window == KEY)
        .ok_or("the profile has no log")?;
    let rest = &tail.0[at + KEY.len()..];
    let log = serde_json::Deserializer::from_slice(rest)
        .into_iter::<Value>()
        .next();
    let log = log.ok_or("the profile's log ends early")??;
    let own = &log[std::process::id().to_string()];
    own.is_object()
        .then(|| own.clone())
        .ok_or_else(|| "the profile's log has no entry for this process".into())
}

/// A writer that keeps the end of its input.
struct Tail(Vec<u8>);

impl Write for Tail {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        /// Bytes that are always kept: more than the log and the lists of processes after it take.
        const KEPT: usize = 64 << 10;
        if self.0.len() > 16 * KEPT {
            self.0.drain(..self.0.len() - KEPT);
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
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

/// Returns the engine that the session used.
pub(crate) fn engine_of(profile: &Profile) -> Result<String, Box<dyn Error>> {
    let json = to_json(profile)?;
    let engine = json["meta"]["samplingEngine"]
        .as_str()
        .ok_or("the profile has no sampling engine")?;
    Ok(match count(profile, "refused_events") {
        None | Some(0) => engine.to_owned(),
        Some(_) => format!("{engine}, after the system refused events"),
    })
}

/// Returns the engine that sessions with these settings use. It is read from the profile of an
/// empty session, which is small.
pub(crate) fn engine_of_params(params: StartParams) -> Result<String, Box<dyn Error>> {
    engine_of(&ProfilerSession::start(params)?.finish()?)
}

/// Returns one of the session's counters.
pub(crate) fn count(profile: &Profile, name: &str) -> Option<u64> {
    profile
        .sampler_counts()
        .into_iter()
        .find(|(count, _)| *count == name)
        .map(|(_, count)| count)
}

pub(crate) fn threads(profile: &Value) -> impl Iterator<Item = &Value> {
    profile["threads"].as_array().into_iter().flatten()
}

/// Iterates over a column of a table in a Gecko profile.
pub(crate) fn column<'a>(table: &'a Value, name: &str) -> Option<impl Iterator<Item = &'a Value>> {
    let index = table["schema"][name].as_u64()? as usize;
    Some(table["data"].as_array()?.iter().map(move |row| &row[index]))
}

/// Returns for each sample of a thread in a Gecko profile whether the thread ran: it used CPU time since
/// the sample before, and its stack is not one that waits. `None` if a table is missing.
pub(crate) fn running(profile: &Value, thread: &Value) -> Option<Vec<bool>> {
    let categories = profile["meta"]["categories"].as_array()?;
    let idle = categories
        .iter()
        .position(|category| category["name"] == "Idle");
    let categories = column(&thread["frameTable"], "category")?.map(Value::as_u64);
    let waits: Vec<bool> = categories
        .map(|category| category.is_some() && category == idle.map(|idle| idle as u64))
        .collect();
    let leaves: Vec<&Value> = column(&thread["stackTable"], "frame")?.collect();
    let samples = &thread["samples"];
    let samples = column(samples, "stack")?.zip(column(samples, "threadCPUDelta")?);
    let runs = samples.map(|(stack, delta)| {
        let leaf = leaves.get(stack.as_u64()? as usize)?.as_u64()?;
        Some(delta.as_u64() != Some(0) && !*waits.get(leaf as usize)?)
    });
    Some(runs.map(|runs| runs.unwrap_or(false)).collect())
}

/// Returns the times of a thread's samples, in milliseconds, ascending.
pub(crate) fn find_sample_times(profile: &Value, thread: &str) -> Option<Vec<f64>> {
    let found = threads(profile).find(|candidate| candidate["name"] == thread)?;
    let mut times: Vec<f64> = column(&found["samples"], "time")?
        .filter_map(Value::as_f64)
        .collect();
    times.sort_by(f64::total_cmp);
    Some(times)
}

/// CPU time in the samples of a Gecko profile, by their stacks.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(crate) struct CpuInSamples {
    pub(crate) all_ns: f64,
    /// In samples whose innermost function has a name, and whose stack is whole.
    pub(crate) named_ns: f64,
    /// In samples whose stack lacks its outer end.
    pub(crate) truncated_ns: f64,
}

impl CpuInSamples {
    /// Adds the samples of a thread up to this time, in milliseconds since the profile's start.
    /// Returns `None` if one of the thread's tables is missing.
    pub(crate) fn add_thread(&mut self, thread: &Value, until_ms: f64) -> Option<()> {
        const TRUNCATED: &str = "(truncated)";
        let strings = thread["stringTable"].as_array()?;
        let frames: Vec<&str> = column(&thread["frameTable"], "location")?
            .map(|location| strings.get(location.as_u64()? as usize)?.as_str())
            .collect::<Option<_>>()?;
        let stacks = &thread["stackTable"];
        // A stack's prefix has a smaller number than the stack.
        let mut truncated: Vec<bool> = Vec::new();
        let mut leaves: Vec<&str> = Vec::new();
        for (prefix, frame) in column(stacks, "prefix")?.zip(column(stacks, "frame")?) {
            let frame = *frames.get(frame.as_u64()? as usize)?;
            let prefix = prefix.as_u64().map(|prefix| truncated[prefix as usize]);
            truncated.push(prefix.unwrap_or(false) || frame == TRUNCATED);
            leaves.push(frame);
        }
        let samples = &thread["samples"];
        let times = column(samples, "time")?;
        let stacks_and_deltas = column(samples, "stack")?.zip(column(samples, "threadCPUDelta")?);
        for (time, (stack, delta)) in times.zip(stacks_and_deltas) {
            if time.as_f64()? > until_ms {
                break;
            }
            let (stack, delta_ns) = (stack.as_u64(), delta.as_f64().unwrap_or(0.0));
            let stack = stack.map(|stack| stack as usize);
            let is_truncated = stack.is_some_and(|stack| truncated[stack]);
            let is_named = stack.is_some_and(|stack| is_name(leaves[stack]));
            self.all_ns += delta_ns;
            self.truncated_ns += if is_truncated { delta_ns } else { 0.0 };
            self.named_ns += if is_named && !is_truncated {
                delta_ns
            } else {
                0.0
            };
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
    fn profile_has_engine_and_tick_counts() {
        let profile = ProfilerSession::start(StartParams::default())
            .expect("a session")
            .finish()
            .expect("a profile");
        let engine = engine_of(&profile).expect("an engine");
        assert_ne!(engine, "");
        for name in ["ticks", "late_ticks", "missed_ticks", "captured_samples"] {
            assert!(count(&profile, name).is_some(), "{name}");
        }
        assert_eq!(count(&profile, "no such count"), None);
        let log = log_of(&profile).expect("a log");
        assert_eq!(logged(&log, "buffer", "capacity_bytes"), 128 << 20);
        assert_eq!(
            logged(&log, "sampler", "ticks"),
            count(&profile, "ticks").expect("a count")
        );
    }

    #[test]
    fn cpu_in_samples_tells_named_truncated_and_unnamed_stacks_apart() {
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
            truncated_ns: 3.0,
        };
        assert_eq!(sums, expected);
        assert!(sums.add_thread(&Value::Null, 4.0).is_none());
    }

    #[test]
    fn running_tells_threads_with_cpu_time_from_waiting_ones() {
        let profile =
            serde_json::json!({"meta": {"categories": [{"name": "Other"}, {"name": "Idle"}]}});
        let thread = serde_json::json!({
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
