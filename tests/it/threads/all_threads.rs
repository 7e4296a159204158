//! The features that record something of all registered threads: in all combinations, of threads that are selected, are not,
//! and are not registered.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::common::{Read, isolated, mark, work_for_cpu};
use gekkota::thread::{
    ThreadProfilingFeatures as Of, profiler_current_thread_id,
    profiler_other_thread_is_being_profiled, profiler_thread_is_being_profiled,
};
use gekkota::{Features, StartParams, profiler_start, profiler_stop, register_thread};

/// What is recorded of all threads, and by which feature.
const OF_ALL: [(Features, Of); 3] = [
    (Features::CPU_ALL_THREADS, Of::CPU_UTILIZATION),
    (Features::SAMPLING_ALL_THREADS, Of::SAMPLING),
    (Features::MARKERS_ALL_THREADS, Of::MARKERS),
];

/// A thread that works, marks and answers for itself each time it is told to.
struct Worker {
    work: mpsc::Sender<()>,
    done: mpsc::Receiver<(gekkota::thread::ThreadId, [bool; 3])>,
}

impl Worker {
    fn start(name: Option<&'static str>) -> Self {
        let ((work, told), (tell, done)) = (mpsc::channel(), mpsc::channel());
        thread::spawn(move || {
            name.inspect(|name| register_thread(name));
            while told.recv().is_ok() {
                mark("worked");
                work_for_cpu(Duration::from_millis(60));
                let answers = OF_ALL.map(|(_, of)| profiler_thread_is_being_profiled(of));
                tell.send((profiler_current_thread_id(), answers))
                    .expect("the test waits");
            }
        });
        Self { work, done }
    }

    /// Works, and gives what it is told of itself, which is what others are told of it.
    fn work(&self) -> [bool; 3] {
        self.work.send(()).expect("it waits");
        let (thread, own) = self.done.recv().expect("it answers");
        let others = OF_ALL.map(|(_, of)| profiler_other_thread_is_being_profiled(thread, of));
        assert_eq!(own, others);
        let any = profiler_other_thread_is_being_profiled(thread, Of::ANY);
        assert_eq!(any, own.contains(&true));
        own
    }
}

#[test]
fn features_of_all_threads_in_all_combinations() {
    isolated(|| {
        let selected = Worker::start(Some("selected"));
        let left_out = Worker::start(Some("left out"));
        let unregistered = Worker::start(None);
        // Both are registered when they have answered.
        assert_eq!(
            [&selected, &left_out, &unregistered].map(Worker::work),
            [[false; 3]; 3]
        );
        for combination in 0..8 {
            let wanted: [bool; 3] = std::array::from_fn(|bit| combination >> bit & 1 != 0);
            let chosen = OF_ALL
                .iter()
                .zip(wanted)
                .filter(|(_, wanted)| *wanted)
                .map(|((feature, _), _)| *feature);
            let features = chosen.fold(Features::STACK_WALK | Features::CPU, |all, one| all | one);
            profiler_start(
                StartParams::default()
                    .features(features)
                    .filters(["SELECT"]),
            )
            .expect("start");
            assert_eq!(selected.work(), [true; 3], "{features:?}");
            assert_eq!(left_out.work(), wanted, "{features:?}");
            assert_eq!(unregistered.work(), [false; 3], "{features:?}");
            let read = Read::of_running();
            profiler_stop();

            check(&read, "selected", [true; 3], features);
            if wanted == [false; 3] {
                assert!(
                    read.threads()
                        .iter()
                        .all(|thread| thread["name"] != "left out"),
                    "{features:?}"
                );
            } else {
                check(&read, "left out", wanted, features);
            }
            assert!(
                read.threads().len() <= 3,
                "nobody else but the main thread, which stands in every profile"
            );
        }
        assert_eq!([&selected, &left_out].map(Worker::work), [[false; 3]; 2]);
    });
}

/// What is in the profile of a thread is what was to be recorded of it.
fn check(read: &Read, name: &str, [cpu, stacks, markers]: [bool; 3], features: Features) {
    let samples = read.samples(name);
    assert_eq!(
        samples.is_empty(),
        !cpu && !stacks,
        "{name} with {features:?}: {} samples",
        samples.len()
    );
    let with_stacks = samples
        .iter()
        .filter(|sample| !sample.stack.is_empty())
        .count();
    assert_eq!(
        with_stacks > 0,
        stacks,
        "{name} with {features:?}: {with_stacks} stacks"
    );
    let cpu_ns: Vec<u64> = samples.iter().filter_map(|sample| sample.cpu_ns).collect();
    assert_eq!(
        cpu_ns.len(),
        if cpu { samples.len() } else { 0 },
        "{name} with {features:?}"
    );
    // It has worked for 60 ms.
    assert!(
        !cpu || cpu_ns.iter().sum::<u64>() > 40_000_000,
        "{name} with {features:?}: {cpu_ns:?}"
    );
    let names: Vec<String> = read
        .markers(name)
        .into_iter()
        .map(|marker| marker.0)
        .collect();
    assert_eq!(
        names,
        if markers { vec!["worked"] } else { vec![] },
        "{name} with {features:?}"
    );
}
