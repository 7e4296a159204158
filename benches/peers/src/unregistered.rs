//! `unregistered`: cost and coverage of threads that have not registered, compared with the same
//! threads registered, at 1,000 Hz.
//!
//! - 1,000 threads sleep, as in `idle`. The figure is the CPU time of the sampler's thread, as the
//!   session counts it, in percent of one processor; the compared figure is that of the same threads
//!   registered. `…_start_ms` is the sampler's CPU time from the session's start until the span, 2 s
//!   later: it finds the threads, and captures the first stack of each. What the threads themselves
//!   use to register is not included.
//! - 64 threads are busy, as in `capture`. `…_sampler_64` is the sampler's CPU time in percent of one
//!   processor, from the session's start on, and `…_64` the CPU time in samples divided by the CPU time
//!   that the threads' own clocks show. pprof-rs's is its number of samples × interval, divided by that
//!   time, and so is `…_by_count_64`, with our samples of threads that ran.
//!
//! Each run is a separate process; the arms are interleaved.

use crate::prelude::*;

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "unregistered",
    unit: "sampler's CPU time in % of one CPU, with 1,000 sleeping threads and (`…_sampler_64`) 64 busy ones; \
           `…_64`: CPU time in samples / CPU time used",
    goal: "unregistered <= 1.1 × registered, sleeping and busy, and unregistered_64 >= 0.98",
    ours: "unregistered",
    peers: &["registered"],
    is_met: |study| {
        study.at_most(&["unregistered"], 1.1 * study.figure("registered"))
            && study.at_most(
                &["unregistered_sampler_64"],
                1.1 * study.figure("registered_sampler_64"),
            )
            && study.figure("unregistered_64") >= 0.98
    },
    measure: |study| {
        let (idle_ms, busy_ms) = study.pick((1500, 800), (6000, 4000));
        let about =
            format!("1,000 sleeping threads for {idle_ms} ms, 64 busy ones for {busy_ms} ms");
        study.rounds(study.pick(2, 5), about, |study, _| {
            for arm in ["unregistered", "registered"] {
                study.add_arm(arm, child::run("idle", &[&arm, &idle_ms]))?;
            }
            for arm in ["unregistered_64", "registered_64", "pprof_64"] {
                study.add_arm(arm, child::run("capture", &[&arm, &busy_ms]))?;
            }
            Ok(())
        })
    },
    ..Measurement::NEW
};
