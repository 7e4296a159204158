//! What a gekkota profile tells of its session.

use std::error::Error;
use std::io::Write;

use gekkota::{Profile, ProfilerSession, StartParams};
use gekkota::profile::{Format, SnapshotOptions, Symbolicate};
use serde_json::Value;

/// A profile as JSON, without names.
pub(crate) fn to_json(profile: &Profile) -> Result<Value, Box<dyn Error>> {
    let mut text = Vec::new();
    let options = SnapshotOptions::default().symbolicate(Symbolicate::No);
    profile.write_with(Format::Gecko, &mut text, &options)?;
    Ok(serde_json::from_slice(&text)?)
}

/// What the profile tells of its session and its buffer: `profilingLog`, of this process.
///
/// It stands behind the rows, of which there may be so many that nobody wants them in memory.
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
        .ok_or_else(|| "the log has nothing of this process".into())
}

/// Keeps the end of what is written.
struct Tail(Vec<u8>);

impl Write for Tail {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        /// More than a log is long, and the lists of processes behind it.
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

/// What lies in the buffer of one or several kinds of entries, their length prefixes included.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Entries {
    pub(crate) count: u64,
    pub(crate) bytes: u64,
}

impl Entries {
    /// Of these kinds together.
    ///
    /// # Errors
    /// Where the log does not tell entries by kind.
    pub(crate) fn of(log: &Value, kinds: &[&str]) -> Result<Self, String> {
        let told = log["buffer"]["entries"].as_object().ok_or(NO_KINDS)?;
        kinds.iter().try_fold(Self::default(), |sum, kind| {
            let number = |name| {
                let number = told.get(*kind).and_then(|entries| entries[name].as_u64());
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

    /// NaN of none.
    pub(crate) fn mean_bytes(self) -> f64 {
        self.bytes as f64 / self.count as f64
    }
}

const NO_KINDS: &str =
    "the profile's log has no `buffer.entries`, which tells bytes by kinds of entries";

/// Kinds of entries that stand for one sample each.
pub(crate) const SINGLE_SAMPLES: [&str; 3] = ["sample", "repeated_sample", "same_sample"];
/// All kinds that stand for samples; the last one is of many.
pub(crate) const ALL_SAMPLES: [&str; 4] = ["sample", "repeated_sample", "same_sample", "run"];

/// A number of the log; 0 where it is not there.
pub(crate) fn logged(log: &Value, part: &str, name: &str) -> u64 {
    log[part][name].as_u64().unwrap_or(0)
}

/// What a profile says of a session whose threads were stopped by timers of their own.
const LOCAL_TIMERS: &str = "local timers";

/// The engine that the session used.
pub(crate) fn engine_of(profile: &Profile) -> Result<String, Box<dyn Error>> {
    let json = to_json(profile)?;
    let engine = json["meta"]["samplingEngine"]
        .as_str()
        .ok_or("the profile does not tell its engine")?;
    Ok(match count(profile, "refused_timers") {
        None | Some(0) => engine.to_owned(),
        Some(_) => format!("{engine}, which were refused"),
    })
}

/// Whether [`engine_of`] found local timers at work.
pub(crate) fn is_local_timers(engine: &str) -> bool {
    engine == LOCAL_TIMERS
}

/// Has the profiler find out which engine is the cheaper one, which it does once for a process.
pub(crate) fn settle_engine() -> Result<(), Box<dyn Error>> {
    ProfilerSession::start(StartParams::default())?.finish()?;
    Ok(())
}

/// The engine that sessions with these settings use: of one with nothing in it, since the profiles of others are large.
pub(crate) fn engine_of_params(params: StartParams) -> Result<String, Box<dyn Error>> {
    engine_of(&ProfilerSession::start(params)?.finish()?)
}

/// One of the session's counts.
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

/// A column of a table of a Gecko profile, row by row.
pub(crate) fn column<'a>(table: &'a Value, name: &str) -> Option<impl Iterator<Item = &'a Value>> {
    let index = table["schema"][name].as_u64()? as usize;
    Some(table["data"].as_array()?.iter().map(move |row| &row[index]))
}

/// Of a thread, in milliseconds, ascending.
pub(crate) fn find_sample_times(profile: &Value, thread: &str) -> Option<Vec<f64>> {
    let found = threads(profile).find(|candidate| candidate["name"] == thread)?;
    let mut times: Vec<f64> = column(&found["samples"], "time")?
        .filter_map(Value::as_f64)
        .collect();
    times.sort_by(f64::total_cmp);
    Some(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_tells_its_engine_and_its_ticks() {
        settle_engine().expect("a first session");
        let params = StartParams::default().engine(gekkota::SamplingEngine::Signals);
        let profile = ProfilerSession::start(params)
            .expect("a session")
            .finish()
            .expect("a profile");
        let engine = engine_of(&profile).expect("an engine");
        assert_eq!(engine, "signals");
        assert!(!is_local_timers(&engine) && is_local_timers(LOCAL_TIMERS));
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
    fn entries_are_told_by_kind_or_an_error_says_that_they_are_not() {
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
