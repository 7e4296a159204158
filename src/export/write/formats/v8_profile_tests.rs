use super::*;
use crate::export::options::SampleWeight;
use crate::export::write::formats::test_chrome_profile::{empty_profile, push_sample};

const MS: i64 = 1_000_000;

/// Replaces the samples of the first thread by ones that `change` has changed.
fn change_samples(profile: &mut ProfileModel, change: impl Fn(usize, &mut Sample)) {
    let mut changed = Samples::default();
    for (index, mut sample) in profile.threads[0].samples.iter().enumerate() {
        change(index, &mut sample);
        changed.push(sample);
    }
    profile.threads[0].samples = changed;
}

fn ticks(profile: &ProfileModel, weight: SampleWeight) -> Vec<Tick> {
    let options = ExportOptions {
        weight,
        ..ExportOptions::default()
    };
    Ticks::new(profile, &profile.threads[0], &options).collect()
}

#[test]
fn sample_is_idle_by_its_stack_or_without_cpu_time() {
    let mut profile = empty_profile();
    for path in [
        Some(&["main", "wait"][..]),
        Some(&["main"]),
        Some(&["main"]),
        None,
    ] {
        push_sample(&mut profile, 0, path);
    }
    change_samples(&mut profile, |index, sample| {
        sample.cpu_delta_ns = [None, Some(1), Some(0), None][index];
    });
    let activities: Vec<_> = ticks(&profile, SampleWeight::Samples)
        .into_iter()
        .map(|tick| tick.activity)
        .collect();
    let main = profile.threads[0].samples.get(1).stack.expect("a stack");
    let expected = [
        Activity::Idle,
        Activity::Ran(main),
        Activity::Idle,
        Activity::Unknown,
    ];
    assert_eq!(activities, expected);
}

#[test]
fn weight_spreads_a_sample_over_the_time_until_the_next_one() {
    let mut profile = empty_profile();
    for time in [0, 4 * MS, 6 * MS] {
        push_sample(&mut profile, time, Some(&["main"]));
    }
    // The second weight does not fit before the third sample.
    change_samples(&mut profile, |index, sample| {
        sample.weight = [4, 1 << 40, -7][index];
    });
    let all = ticks(&profile, SampleWeight::Samples);
    let times: Vec<_> = all.iter().map(|tick| tick.time_ns / MS).collect();
    assert_eq!(times, [0, 1, 2, 3, 4, 5, 6]);
    let mut range = TickRange::default();
    all.iter().for_each(|tick| range.add(tick));
    assert_eq!((range.count, range.end_ns(&profile)), (7, 7 * MS));
}

#[test]
fn cpu_weight_gives_each_function_the_ticks_of_its_cpu_time() {
    let mut profile = empty_profile();
    profile.meta.has_cpu_deltas = true;
    for index in 0..400 {
        let path: &[&str] = match index % 4 {
            0 => &["often", "rare"],
            _ => &["often"],
        };
        push_sample(&mut profile, index * MS, Some(path));
    }
    // Whatever the clock says of each sample, the thread ran in 0.4 of the time.
    change_samples(&mut profile, |index, sample| {
        sample.cpu_delta_ns = Some([800_000, 1, 799_998, 1][index % 4]);
    });
    let count = |name: &str| {
        let ran = |tick: &Tick| match tick.activity {
            Activity::Ran(stack) => {
                let frame = profile.frame(profile.stack(stack).1);
                profile.function_name(frame.function) == name
            }
            _ => false,
        };
        let all = ticks(&profile, SampleWeight::Cpu);
        all.iter().filter(|tick| ran(tick)).count() as i64
    };
    assert!((count("often") - 120).abs() <= 1, "{}", count("often"));
    assert!((count("rare") - 40).abs() <= 1, "{}", count("rare"));
}

#[test]
fn cpu_time_between_samples_is_one_tick() {
    let mut profile = empty_profile();
    profile.meta.has_cpu_deltas = true;
    for time in [0, 4 * MS, 6 * MS] {
        push_sample(&mut profile, time, Some(&["wait"]));
    }
    change_samples(&mut profile, |index, sample| {
        sample.cpu_delta_ns = Some([0, 2_000_000, 0][index]);
    });
    let shown = |weight| -> Vec<_> {
        let all = ticks(&profile, weight).into_iter();
        all.map(|tick| (tick.time_ns / MS, tick.activity)).collect()
    };
    let idle = |time| (time, Activity::Idle);
    assert_eq!(shown(SampleWeight::Samples), [0, 4, 6].map(idle));
    let between = (2, Activity::Ran(ProfileModel::RAN_BETWEEN_SAMPLES));
    assert_eq!(
        shown(SampleWeight::Cpu),
        [idle(0), between, idle(4), idle(6)]
    );
}

#[test]
fn clock_counts_from_a_negative_first_time() {
    let clock = MicroClock::new(-1_500);
    assert_eq!([-1_500, -501, 0].map(|ns| clock.us(ns)), [0, 0, 1]);
    assert_eq!(MicroClock::new(5_000).us(7_999), 7);
}
