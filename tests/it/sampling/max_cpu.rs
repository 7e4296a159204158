//! The sampler leaves out ticks to keep within the CPU time that the session allows.

use std::time::Duration;

use crate::common::{BUSY, Busy, Read, Sleeper, isolated, wait_until};
use gekkota::profile::Format;
use gekkota::{Profile, ProfilerSession, StartError, StartParams};
use serde_json::Value;

/// Ticks that are left out before the test ends.
const LEFT_OUT: u64 = 1000;

fn count_of(profile: &Profile, name: &str) -> u64 {
    let counts = profile.sampler_counts();
    let found = counts.iter().find(|(known, _)| *known == name);
    found.expect("the count").1
}

fn processed(profile: &Profile) -> Value {
    let mut text = Vec::new();
    profile
        .write(Format::Processed, &mut text)
        .expect("a profile");
    serde_json::from_slice(&text).expect("JSON")
}

#[test]
fn samples_count_for_the_ticks_that_are_left_out() {
    isolated(|| {
        let busy = Busy::start_registered();
        let sleeper = Sleeper::start("sleeper");
        let params = StartParams::default()
            .interval(Duration::from_millis(1))
            .max_cpu_percent(0.5);
        let session = ProfilerSession::start(params).expect("start");
        let asked = gekkota::profiler_get_start_params().expect("active");
        assert_eq!(asked.max_cpu_percent, Some(0.5));
        wait_until("ticks were left out", || {
            let profile = session.snapshot().expect("a profile");
            count_of(&profile, "skipped_ticks") >= LEFT_OUT
        });
        let profile = session.finish().expect("a profile");
        drop((busy, sleeper));
        let (taken, skipped) = (
            count_of(&profile, "ticks"),
            count_of(&profile, "skipped_ticks"),
        );
        println!("{taken} ticks taken, {skipped} left out");
        assert!(skipped >= LEFT_OUT);

        // A thread that sleeps has a sample for each tick. It may have begun to sleep at the second.
        let read = Read::from_profile(&profile);
        let rows = |name: &str| read.samples(name).len() as u64;
        let asleep = rows("sleeper");
        assert!(
            (skipped..=taken + skipped).contains(&asleep),
            "the sleeper has {asleep} samples"
        );
        // In the processed format, a sample of a running thread has a weight, and the CPU time at the end of
        // a profile has the weight 0. In Gecko's format, whose weights the viewer ignores, it is so many
        // samples, but at least one, up to the last one.
        let processed = processed(&profile);
        let threads = processed["threads"].as_array().expect("threads");
        let busy = threads.iter().find(|thread| thread["name"] == BUSY);
        let samples = &busy.expect("the thread")["samples"];
        assert_eq!(samples["weightType"], "samples");
        let numbers = |name: &str| -> Vec<u64> {
            let column = samples[name].as_array().expect("a column");
            let number = |value: &Value| value.as_u64().unwrap_or(0);
            column.iter().map(number).collect()
        };
        let weights = numbers("weight");
        let (_, others) = weights.split_last().expect("a sample");
        assert!(others.iter().any(|weight| *weight > 1), "{weights:?}");
        let in_gecko: u64 = others.iter().map(|&weight| weight.max(1)).sum();
        assert_eq!(rows(BUSY), in_gecko + 1);
        // On a busy machine, the thread also takes samples of itself, for which no tick is left out.
        let of_own = weights.iter().filter(|&&weight| weight == 1).count() as u64;
        let all: u64 = weights.iter().sum();
        assert!(all <= taken + skipped + of_own, "{weights:?}");
        let cpu_ns: u64 = numbers("threadCPUDelta").iter().sum();
        let gecko = read.samples(BUSY);
        let of_rows: u64 = gecko
            .iter()
            .map(|row| row.cpu_ns.expect("a CPU time"))
            .sum();
        assert_eq!(of_rows, cpu_ns);
        assert!(gecko.windows(2).all(|two| two[0].time_ms <= two[1].time_ms));
    });
}

#[test]
fn limit_that_is_no_percentage_is_refused() {
    isolated(|| {
        for percent in [0.0, -1.0, 0.009, 100.1, f64::NAN] {
            let params = StartParams::default().max_cpu_percent(percent);
            let error = ProfilerSession::start(params).expect_err("refused");
            assert!(
                matches!(&error, StartError::BadValue { field, .. } if *field == "max_cpu_percent"),
                "{error:?}"
            );
            assert!(
                error.to_string().contains("expected 0.01 % to 100 %"),
                "{error}"
            );
        }
    });
}
