//! What a gekkota profile tells of its session.

use std::error::Error;

use gekkota::{Format, Profile, ProfilerSession, SnapshotOptions, StartParams, Symbolicate};
use serde_json::Value;

/// A profile as JSON, without names.
pub(crate) fn to_json(profile: &Profile) -> Result<Value, Box<dyn Error>> {
    let mut text = Vec::new();
    let options = SnapshotOptions::default().symbolicate(Symbolicate::No);
    profile.write_with(Format::Gecko, &mut text, &options)?;
    Ok(serde_json::from_slice(&text)?)
}

/// What a profile says of a session whose threads were stopped by timers of their own.
const LOCAL_TIMERS: &str = "local timers";

/// The engine that the session used.
pub(crate) fn engine_of(profile: &Profile) -> Result<String, Box<dyn Error>> {
    let json = to_json(profile)?;
    let engine = json["meta"]["samplingEngine"].as_str().ok_or("the profile does not tell its engine")?;
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
    profile.sampler_counts().into_iter().find(|(count, _)| *count == name).map(|(_, count)| count)
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
    let mut times: Vec<f64> = column(&found["samples"], "time")?.filter_map(Value::as_f64).collect();
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
        let profile = ProfilerSession::start(params).expect("a session").finish().expect("a profile");
        let engine = engine_of(&profile).expect("an engine");
        assert_eq!(engine, "signals");
        assert!(!is_local_timers(&engine) && is_local_timers(LOCAL_TIMERS));
        for name in ["ticks", "late_ticks", "missed_ticks", "captured_samples"] {
            assert!(count(&profile, name).is_some(), "{name}");
        }
        assert_eq!(count(&profile, "no such count"), None);
    }
}
