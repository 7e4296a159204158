//! `marker`: time to add a marker while a session records it: with a name only, with a text of 16
//! bytes, and with three fields: a `u64`, an `f64` and a `CowString` that borrows those 16 bytes.
//!
//! A figure is the whole time of a call, including its reading of the clock and the loop around it.
//! `clock` is a reading by `ProfilerTime::now`, `rdtsc` a bare reading of the processor's clock,
//! and `empty` the loop. `marker_arms.rs` describes what the peers do.
//!
//! All arms run on one registered and sampled thread, in one session at 1,000 Hz whose buffer is
//! full from the start, with all peers recording. Batches of 8,000 calls (1,000 for
//! `tracing-chrome`) are interleaved, and their order rotates. A run's figure is the median of its
//! arm's batches, and each round is a separate process. No figure includes the work that the
//! sampler's thread does for markers, or the peers' background threads for theirs.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use gekkota::{ProfilerSession, StartParams, ThreadGuard};
use serde_json::{Value, json};

use crate::machine::{self, load_note};
use crate::marker_arms::{ARMS, CALLS, Form, Recorders, Role};
use crate::profile::{engine_of_params, log_of, logged};
use crate::report::{Arm, Report, least, median};
use crate::{Effort, Outcome, child};

const INTERVAL: Duration = Duration::from_millis(1);
const CAPACITY_BYTES: u64 = 16 << 20;

const fn goal_ns(form: Form) -> f64 {
    match form {
        Form::Untyped => f64::INFINITY,
        Form::Text => 35.0,
        Form::Typed => 50.0,
    }
}

pub(crate) fn measure(effort: Effort) -> Outcome {
    let (rounds, batches) = if effort.quick { (2, 10) } else { (9, 40) };
    let mut arms: Vec<(Role, Arm)> = ARMS
        .iter()
        .map(|arm| (arm.role, Arm::extra(arm.name)))
        .collect();
    let mut notes = vec![format!(
        "{rounds} rounds of {batches} batches of {CALLS} calls per arm, interleaved; {}",
        load_note()
    )];
    for round in 1..=rounds {
        let (run, taken) = machine::watch(|| child::run("marker", &[batches.to_string()]));
        let run = run?;
        for (_, arm) in &mut arms {
            arm.runs.extend(run["medians"][arm.name].as_f64());
        }
        let least = |name: &str| run["least"][name].as_f64().unwrap_or(f64::NAN);
        let fastest = ["ours_untyped", "ours_text", "ours_typed", "clock"]
            .map(|name| format!("{name} {:.1}", least(name)));
        notes.push(format!(
            "round {round}: fastest batches: {}; engine: {}; CPUs used by other processes + the hypervisor: {taken}",
            fastest.join(", "),
            run["engine"].as_str().unwrap_or_default()
        ));
    }
    arms.retain(|(_, arm)| !arm.runs.is_empty());
    if !arms.iter().any(|(_, arm)| arm.name.starts_with("tracy_")) {
        let why = if cfg!(feature = "tracy") {
            "cannot run on this processor"
        } else {
            "was not compiled"
        };
        notes.push(format!("Tracy {why}"));
    }
    let mut met = true;
    for form in Form::ALL {
        let verdict = Verdict::of(form, &arms);
        met &= verdict.is_met();
        notes.push(verdict.note());
    }
    // The report compares one figure of ours with its peers: that of the text form.
    for (_, arm) in arms
        .iter_mut()
        .filter(|(role, _)| *role == Role::Peer(Form::Text))
    {
        arm.extra = false;
    }
    let place = arms
        .iter()
        .position(|(role, _)| *role == Role::Ours(Form::Text));
    let (_, ours) = arms.remove(place.ok_or("no arm of ours has the text form")?);
    Ok(Report {
        unit: "ns per call, including the reading of the clock and the loop",
        ours: Arm {
            extra: false,
            ..ours
        },
        peers: arms.into_iter().map(|(_, arm)| arm).collect(),
        floor: None,
        better: f64::min,
        goal: "ours <= 35 ns with a text, <= 50 ns with three fields, and faster than each peer in each form",
        met,
        notes,
    })
}

/// Ours compared with the fastest peer, in one form.
struct Verdict {
    form: Form,
    ours_ns: f64,
    /// Name of the fastest peer.
    peer: &'static str,
    peer_ns: f64,
}

impl Verdict {
    fn of(form: Form, arms: &[(Role, Arm)]) -> Self {
        let of_role = |role| {
            arms.iter()
                .filter(move |(of, _)| *of == role)
                .map(|(_, arm)| arm)
        };
        let ours_ns = of_role(Role::Ours(form))
            .map(Arm::figure)
            .fold(f64::NAN, f64::min);
        let best =
            of_role(Role::Peer(form)).min_by(|one, other| one.figure().total_cmp(&other.figure()));
        let (peer, peer_ns) = best.map_or(("no peer", f64::NAN), |best| (best.name, best.figure()));
        Self {
            form,
            ours_ns,
            peer,
            peer_ns,
        }
    }

    fn is_met(&self) -> bool {
        self.ours_ns <= goal_ns(self.form) && self.ours_ns < self.peer_ns
    }

    fn note(&self) -> String {
        let Self {
            form,
            ours_ns,
            peer,
            peer_ns,
        } = self;
        format!(
            "{form:?}: ours {ours_ns:.1} ns, fastest peer {peer} {peer_ns:.1} ns, ratio {:.2}",
            ours_ns / peer_ns
        )
    }
}

/// Runs one round in the child process. Argument: the number of batches per arm.
pub(crate) fn run_part(arguments: &[String]) -> Result<Value, Box<dyn Error>> {
    let [batches] = arguments else {
        return Err("expected the number of batches".into());
    };
    let batches: usize = batches.parse()?;
    let params = StartParams::default()
        .interval(INTERVAL)
        .capacity_bytes(CAPACITY_BYTES);
    let engine = engine_of_params(params.clone())?;
    let peers = Recorders::start()?;
    let session = ProfilerSession::start(params)?;
    let _registered = ThreadGuard::register("marker");
    // One uncounted batch of each arm, and batches of ours until the buffer is full.
    for arm in ARMS {
        (arm.run)(&peers);
    }
    let ours = ARMS.iter().filter(|arm| matches!(arm.role, Role::Ours(_)));
    for arm in ours
        .cycle()
        .take((CAPACITY_BYTES / u64::from(CALLS) / 16) as usize)
    {
        (arm.run)(&peers);
    }
    let before = put_entries(&session)?;
    let mut times = BTreeMap::<&str, Vec<f64>>::new();
    for turn in 0..batches {
        for place in 0..ARMS.len() {
            let arm = &ARMS[(turn + place) % ARMS.len()];
            times.entry(arm.name).or_default().push((arm.run)(&peers));
        }
    }
    let put = put_entries(&session)? - before;
    peers.check(batches as u64 + 1)?;
    // Four arms of ours add a marker per call: three forms and a scope.
    let expected = 4 * batches as u64 * u64::from(CALLS);
    if put < expected {
        return Err(format!(
            "cannot use the figures: got {put} buffer entries, expected at least {expected}"
        )
        .into());
    }
    drop(session.finish()?);
    let of_each = |figure: fn(&[f64]) -> f64| -> BTreeMap<&str, f64> {
        times
            .iter()
            .map(|(name, times)| (*name, figure(times)))
            .collect()
    };
    Ok(json!({ "medians": of_each(median), "least": of_each(least), "engine": engine }))
}

fn put_entries(session: &ProfilerSession) -> Result<u64, Box<dyn Error>> {
    Ok(logged(
        &log_of(&session.snapshot()?)?,
        "buffer",
        "put_entries",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_uses_the_forms_goal_and_fastest_peer() {
        let arm = |name, ns| Arm {
            runs: vec![ns],
            ..Arm::new(name)
        };
        let verdict = |form, ours, peers: [f64; 2]| {
            let arms = [
                (Role::Ours(form), arm("ours", ours)),
                (Role::Peer(form), arm("slow", peers[0])),
                (Role::Peer(form), arm("fast", peers[1])),
                (Role::Extra, arm("clock", 1.0)),
            ];
            Verdict::of(form, &arms)
        };
        assert_eq!(verdict(Form::Text, 35.0, [50.0, 40.0]).peer, "fast");
        assert!(verdict(Form::Text, 35.0, [50.0, 40.0]).is_met());
        assert!(!verdict(Form::Text, 35.1, [50.0, 40.0]).is_met());
        assert!(!verdict(Form::Text, 35.0, [50.0, 35.0]).is_met());
        assert!(verdict(Form::Typed, 50.0, [60.0, 70.0]).is_met());
        assert!(!verdict(Form::Typed, 50.1, [60.0, 70.0]).is_met());
        assert!(!verdict(Form::Untyped, f64::NAN, [60.0, 70.0]).is_met());
    }
}
