//! The features that record data of all registered threads, in all combinations. The threads are
//! selected by the filter, not selected, or not registered.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::common::{Read, isolated, mark, wait_until, work_for_cpu};
use gekkota::thread::{
    ThreadProfilingFeatures as Of, profiler_current_thread_id,
    profiler_other_thread_is_being_profiled, profiler_thread_is_being_profiled,
};
use gekkota::{Features, StartParams, profiler_start, profiler_stop, register_thread};

/// The features, and what each of them records of all threads.
const OF_ALL: [(Features, Of); 3] = [
    (Features::CPU_ALL_THREADS, Of::CPU_UTILIZATION),
    (Features::SAMPLING_ALL_THREADS, Of::SAMPLING),
    (Features::MARKERS_ALL_THREADS, Of::MARKERS),
];

/// An order to a worker: whether to add a marker before the work.
type Order = bool;

/// A thread that works on each order and then reports which of its data is recorded.
struct Worker {
    orders: mpsc::Sender<Order>,
    done: mpsc::Receiver<(gekkota::thread::ThreadId, [bool; 3])>,
}

impl Worker {
    fn start(name: Option<&'static str>) -> Self {
        let ((orders, received), (report, done)) = (mpsc::channel::<Order>(), mpsc::channel());
        thread::spawn(move || {
            name.inspect(|name| register_thread(name));
            while let Ok(adds_marker) = received.recv() {
                if adds_marker {
                    mark("worked");
                }
                work_for_cpu(Duration::from_millis(60));
                let answers = OF_ALL.map(|(_, of)| profiler_thread_is_being_profiled(of));
                report
                    .send((profiler_current_thread_id(), answers))
                    .expect("the test waits");
            }
        });
        Self { orders, done }
    }

    /// Adds a marker and works until the condition holds. Returns which of the thread's data is
    /// recorded, by the thread itself and by the test.
    fn work_until(&self, is_enough: impl Fn() -> bool) -> [bool; 3] {
        let recorded = self.work(true);
        wait_until("the profile has enough of the worker", || {
            let is_enough = is_enough();
            if !is_enough {
                assert_eq!(self.work(false), recorded);
            }
            is_enough
        });
        recorded
    }

    fn work(&self, order: Order) -> [bool; 3] {
        self.orders.send(order).expect("the worker waits");
        let (thread, own) = self.done.recv().expect("the worker answers");
        let others = OF_ALL.map(|(_, of)| profiler_other_thread_is_being_profiled(thread, of));
        assert_eq!(own, others);
        let any = profiler_other_thread_is_being_profiled(thread, Of::ANY);
        assert_eq!(any, own.contains(&true));
        own
    }
}

#[test]
fn features_of_all_threads_record_in_all_combinations() {
    isolated(|| {
        let selected = Worker::start(Some("selected"));
        let left_out = Worker::start(Some("left out"));
        let unregistered = Worker::start(None);
        // The workers are registered once they have answered.
        assert_eq!(
            [&selected, &left_out, &unregistered].map(|worker| worker.work(true)),
            [[false; 3]; 3]
        );
        for combination in 0..8 {
            let wanted: [bool; 3] = std::array::from_fn(|bit| combination >> bit & 1 != 0);
            let chosen = OF_ALL
                .iter()
                .zip(wanted)
                .filter(|(_, wanted)| *wanted)
                .map(|((feature, _), _)| *feature);
            let registered_only = Features::NO_UNREGISTERED_SAMPLING;
            let first = Features::STACK_WALK | Features::CPU | registered_only;
            let features = chosen.fold(first, |all, one| all | one);
            profiler_start(
                StartParams::default()
                    .features(features)
                    .filters(["SELECT"]),
            )
            .expect("start");
            let has_selected = || has_enough("selected", [true; 3]);
            assert_eq!(selected.work_until(has_selected), [true; 3], "{features:?}");
            let has_left_out = || has_enough("left out", wanted);
            assert_eq!(left_out.work_until(has_left_out), wanted, "{features:?}");
            assert_eq!(unregistered.work(true), [false; 3], "{features:?}");
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
                "only the main thread may be in the profile, too"
            );
        }
        assert_eq!(
            [&selected, &left_out].map(|worker| worker.work(true)),
            [[false; 3]; 2]
        );
    });
}

/// Minimum CPU time, in ns, in the samples of a thread whose CPU time is recorded.
const MIN_CPU_NS: u64 = 40_000_000;

/// Returns whether the running session has stacks and CPU time of the thread, if it records them.
fn has_enough(name: &str, [cpu, stacks, _]: [bool; 3]) -> bool {
    if !cpu && !stacks {
        return true;
    }
    let samples = Read::of_running().samples(name);
    let cpu_ns: u64 = samples.iter().filter_map(|sample| sample.cpu_ns).sum();
    (!cpu || cpu_ns > MIN_CPU_NS)
        && (!stacks || samples.iter().any(|sample| !sample.stack.is_empty()))
}

/// Checks that the profile has exactly the data of the thread that is recorded.
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
    assert!(
        !cpu || cpu_ns.iter().sum::<u64>() > MIN_CPU_NS,
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
