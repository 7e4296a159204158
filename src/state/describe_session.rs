//! Describes a session for its crash file.

use std::time::Duration;

use crate::state::crash_file::{Fact, SessionFact};
use crate::state::session::Session;

/// Returns the facts about the session itself.
pub(crate) fn describe_session(session: &Session) -> Vec<Fact> {
    let settings = &session.settings;
    let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let counts = session.counts.all();
    let fact = SessionFact {
        started_ns: session.started_at.0,
        capacity_bytes: settings.capacity_bytes,
        interval_ns: ns(settings.interval),
        max_cpu_ppm: settings.max_cpu_ppm,
        features: settings.features.bits(),
        filters: settings.filters.clone(),
        signal: settings.signal,
        duration_ns: settings.duration.map(ns),
        allocation_interval_bytes: settings.allocation_interval_bytes,
        active_tab_id: settings.active_tab_id,
        records_overheads: settings.records_overheads,
        crate_version: env!("CARGO_PKG_VERSION").to_owned(),
        count_names: counts.iter().map(|(name, _)| (*name).to_owned()).collect(),
    };
    vec![fact.into()]
}
