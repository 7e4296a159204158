//! `oversubscribed`: share of ticks that the sampler begins on schedule while 64 threads are busy,
//! at 1,000 Hz.
//!
//! A tick is on schedule if the sampler begins it within half an interval of its time. Missed ticks
//! are not on schedule.
//!
//! The peer is the sampler of `handshake.rs`. It waits for each thread in turn, and a thread
//! answers only when it gets a processor. It keeps the same schedule as ours and is prepared in the
//! same way, which Gecko's is not, so that the waiting is the only difference. The floor is a
//! thread that is prepared in the same way and only sleeps.
//!
//! A sampler that needs more than its fair share of the processors, one 65th next to 64 busy
//! threads, has to wait like any other thread. The table shows how long a tick of ours takes.
//!
//! Our figure uses the session's counts of all ticks, late ticks and missed ticks.

use std::sync::mpsc::channel;

use crate::handshake::HandshakeSampler;
use crate::prelude::*;
use crate::raw::SuspendableThread;
use crate::schedule::tick_for;
use crate::threads::start_busy;

const BUSY_THREADS: usize = 64;
/// Time before the measurement: the processors reach their full speed, and each thread gets to run.
const WARM_UP: Duration = Duration::from_millis(300);

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "oversubscribed",
    unit: "share of ticks on schedule, with 64 busy threads at 1,000 Hz",
    goal: "ours >= 0.99",
    peers: &["gecko_style"],
    floor: "sleeper",
    better: f64::max,
    is_met: |study| study.figure("ours") >= 0.99,
    measure: |study| {
        let span = Duration::from_secs(study.pick(2, 8));
        let mut handshake = HandshakeSampler::new()?;
        let about = format!("{BUSY_THREADS} busy threads for {span:?} per arm");
        study.rounds(study.pick(2, 5), about, |study, _| {
            study.add(&run_ours(span)?);
            study.push("gecko_style", run_gecko_style(span, &mut handshake)?);
            study.push("sleeper", run_sleeper(span)?);
            Ok(())
        })
    },
    ..Measurement::NEW
};

fn run_ours(span: Duration) -> Fallible<Value> {
    let _busy = start_busy(BUSY_THREADS, || register_thread(""))?;
    std::thread::sleep(WARM_UP);
    let session = ProfilerSession::start(StartParams::default().interval(INTERVAL))?;
    std::thread::sleep(span);
    let counts = Counts::of(&session.finish()?);
    let [ticks, late, missed] =
        ["ticks", "late_ticks", "missed_ticks"].map(|name| counts.get(name));
    Ok(json!({
        "ours": on_time(ticks, late, missed),
        "also": { "us_per_tick": counts.get("sampler_cpu_ns") / 1e3 / ticks.max(1.0), "missed_ticks": missed },
    }))
}

/// Returns the share of ticks that were neither late nor missed.
fn on_time(begun: f64, late: f64, missed: f64) -> f64 {
    (begun - late) / (begun + missed).max(1.0)
}

fn run_gecko_style(span: Duration, sampler: &mut HandshakeSampler) -> Fallible<f64> {
    let (sender, receiver) = channel();
    let _busy = start_busy(BUSY_THREADS, move || {
        // The receiver lives until it has received all of these.
        let _ = sender.send(SuspendableThread::current());
    })?;
    std::thread::sleep(WARM_UP);
    let threads = receiver
        .iter()
        .take(BUSY_THREADS)
        .collect::<Result<Vec<_>, _>>()?;
    let schedule = tick_for(INTERVAL, span, |start| {
        // Sampling all threads once can take longer than the span.
        for thread in threads.iter().take_while(|_| start.elapsed() < span) {
            sampler.sample(thread);
        }
    })?;
    Ok(schedule.on_time())
}

fn run_sleeper(span: Duration) -> Fallible<f64> {
    let _busy = start_busy(BUSY_THREADS, || {})?;
    std::thread::sleep(WARM_UP);
    Ok(tick_for(INTERVAL, span, |_| {})?.on_time())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_time_excludes_late_and_missed_ticks() {
        assert_eq!(on_time(90.0, 5.0, 10.0), 0.85);
        assert_eq!(on_time(100.0, 0.0, 0.0), 1.0);
        assert_eq!(on_time(0.0, 0.0, 0.0), 0.0);
    }
}
