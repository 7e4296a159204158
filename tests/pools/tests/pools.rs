//! Tests that the threads of Tokio and rayon get their names and show labels, by the means that the
//! documentation of `start_hook` lists.

#[path = "../../it/common/mod.rs"]
mod common;

use std::collections::BTreeSet;
use std::sync::{Arc, Barrier};

use common::typed_markers::typed_markers;
use common::{Read, isolated};
use gekkota::stack::{StackFrame, profiler_capture_backtrace};
use gekkota::thread::{register_thread_once, start_hook};
use gekkota::{
    ProfilerSession, StartParams, auto_profiler_label, gecko_profiler_category,
    gecko_profiler_fn_label, labeled_future, marker, register_thread,
};

/// Number of threads of each pool.
const THREADS: usize = 3;

/// The labels on the calling thread's stack, oldest first.
fn labels() -> Vec<String> {
    let stack = profiler_capture_backtrace().map(|backtrace| backtrace.resolve());
    let frames = stack.iter().flat_map(|stack| stack.frames()).rev();
    let text = |frame: &StackFrame| match frame {
        StackFrame::Label { text, .. } => Some(text.clone()),
        _ => None,
    };
    frames.filter_map(text).collect()
}

/// Waits until every thread of the pool runs this, so that each runs it once. Then labels the thread,
/// and adds a marker.
fn label_and_mark(all: &Barrier) {
    all.wait();
    auto_profiler_label!("work");
    assert_eq!(labels(), ["work"]);
    marker!("worked", "{} threads", THREADS);
}

fn profile_of(run: impl FnOnce()) -> Read {
    register_thread("test");
    let session = ProfilerSession::start(StartParams::default()).expect("start");
    run();
    Read::from_profile(&session.finish().expect("profile"))
}

/// The name of the thread of each marker with this name, sorted.
fn marked_threads(read: &Read, name: &str) -> Vec<String> {
    let threads = read.threads().iter();
    let names: BTreeSet<_> = threads
        .map(|thread| thread["name"].as_str().expect("a name"))
        .collect();
    let marked = |thread: &str| {
        let markers = typed_markers(read, thread);
        let named = markers.iter().filter(|marker| marker.name == name);
        vec![thread.to_owned(); named.count()]
    };
    names.into_iter().flat_map(marked).collect()
}

fn numbered(name: &str) -> Vec<String> {
    (1..=THREADS)
        .map(|number| format!("{name} {number}"))
        .collect()
}

fn runtime(builder: &mut tokio::runtime::Builder) -> tokio::runtime::Runtime {
    builder.worker_threads(THREADS).build().expect("a runtime")
}

/// Runs [`label_and_mark`] on each worker of a runtime.
fn run_on_workers(runtime: &tokio::runtime::Runtime) {
    let all = Arc::new(Barrier::new(THREADS));
    let tasks: Vec<_> = (0..THREADS)
        .map(|_| {
            let all = all.clone();
            runtime.spawn(async move { label_and_mark(&all) })
        })
        .collect();
    for task in tasks {
        runtime.block_on(task).expect("it does not panic");
    }
}

#[test]
fn workers_of_tokio_with_a_start_hook_have_numbers_and_labels() {
    isolated(|| {
        let read = profile_of(|| {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            run_on_workers(&runtime(builder.on_thread_start(start_hook("web"))));
        });
        assert_eq!(marked_threads(&read, "worked"), numbered("web"));
    });
}

#[test]
fn workers_of_tokio_with_a_nameless_start_hook_keep_their_whole_name() {
    isolated(|| {
        let read = profile_of(|| {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder
                .thread_name("the web server's workers")
                .on_thread_start(start_hook(""));
            run_on_workers(&runtime(&mut builder));
        });
        let expected = ["the web server's workers"; THREADS];
        assert_eq!(marked_threads(&read, "worked"), expected);
    });
}

#[test]
fn blocking_threads_of_tokio_with_a_start_hook_are_registered() {
    isolated(|| {
        let read = profile_of(|| {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            let runtime = runtime(builder.on_thread_start(start_hook("web")));
            let task = runtime.spawn_blocking(|| label_and_mark(&Barrier::new(1)));
            runtime.block_on(task).expect("it does not panic");
        });
        let marked = marked_threads(&read, "worked");
        assert!(
            marked.len() == 1 && marked[0].starts_with("web "),
            "{marked:?}"
        );
    });
}

/// A request, of which each task awaits one.
#[gecko_profiler_fn_label("request", Network)]
async fn request(all: Arc<Barrier>) -> Vec<String> {
    all.wait();
    tokio::task::yield_now().await;
    marker!("requested");
    labels()
}

#[tokio::main(flavor = "multi_thread", worker_threads = 3)]
async fn main_of_tokio() {
    let all = Arc::new(Barrier::new(THREADS));
    let network = gecko_profiler_category!(Network);
    let tasks: Vec<_> = (0..THREADS)
        .map(|_| tokio::spawn(labeled_future("task", network, request(all.clone()))))
        .collect();
    for task in tasks {
        assert_eq!(task.await.expect("it does not panic"), ["task", "request"]);
    }
}

#[test]
fn labeled_tasks_of_tokio_main_show_their_labels_on_its_threads() {
    isolated(|| {
        let read = profile_of(main_of_tokio);
        let marked = marked_threads(&read, "requested");
        assert_eq!(marked.len(), THREADS);
        assert!(
            marked.iter().all(|name| name.starts_with("tokio-")),
            "{marked:?}"
        );
    });
}

#[test]
fn labeled_tasks_without_a_session_register_no_thread() {
    isolated(|| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .expect("a runtime")
            .block_on(async {
                let task =
                    labeled_future("task", gecko_profiler_category!(Other), async { labels() });
                assert_eq!(
                    tokio::spawn(task).await.expect("it does not panic"),
                    [""; 0]
                );
            });
    });
}

#[test]
fn threads_of_a_rayon_pool_with_a_start_handler_have_numbers_and_labels() {
    isolated(|| {
        let read = profile_of(|| {
            let register = start_hook("rayon");
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(THREADS)
                .start_handler(move |_| register())
                .build()
                .expect("a pool");
            let all = Barrier::new(THREADS);
            pool.broadcast(|_| label_and_mark(&all));
        });
        assert_eq!(marked_threads(&read, "worked"), numbered("rayon"));
    });
}

#[test]
fn threads_of_rayons_global_pool_are_registered_once_by_broadcasts() {
    isolated(|| {
        let read = profile_of(|| {
            rayon::ThreadPoolBuilder::new()
                .num_threads(THREADS)
                .build_global()
                .expect("the first");
            let register = start_hook("rayon");
            rayon::broadcast(|_| register());
            rayon::broadcast(|_| register());
            rayon::broadcast(|_| register_thread_once("other"));
            let all = Barrier::new(THREADS);
            rayon::broadcast(|_| label_and_mark(&all));
        });
        assert_eq!(marked_threads(&read, "worked"), numbered("rayon"));
    });
}
