//! `#[gecko_profiler_fn_label]`: the samples of a function contain its label, and those of a future
//! contain its label on every thread that polls the future.
//!
//! As in Mozilla's crates, `#[macro_use]` imports the macros and the attribute.
mod functions;
mod futures;

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use crate::common::sampled::{WORKING, start_counter, work_until_sampled};
use crate::common::{Read, isolated};
use functions::Default as _;
use futures::Service as _;
use gecko_profiler::{ProfilerSession, StartParams};

profiler_categories! {
    Requests("Requests", blue) { Other: "Other", Parsing: "Request parsing" }
}

/// Minimum number of samples of each function.
const MIN_SAMPLES: usize = 5;

/// The work of a labeled function.
#[inline(never)]
fn run() {
    work_until_sampled(MIN_SAMPLES + 2);
    // The compiler merges functions with equal bodies. The file's name makes this body unique.
    std::hint::black_box(file!());
}

#[inline(never)]
fn work_between_polls() {
    work_until_sampled(MIN_SAMPLES + 2);
    std::hint::black_box((file!(), 1));
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(answer) = poll(future.as_mut()) {
            return answer;
        }
        work_between_polls();
    }
}

fn call_functions() {
    use functions::{Held, elsewhere, free, made_of_item, made_with_text, with_bounds, with_c_abi};
    assert_eq!(free(1), 2);
    let numbers = with_bounds(["1", "x", "3"], |text| text.parse::<u8>().ok());
    assert_eq!(numbers.collect::<Vec<_>>(), [1, 3]);
    functions::with_text();
    assert_eq!(with_c_abi(7), -7);
    // SAFETY: the reference is valid.
    assert_eq!(unsafe { functions::with_duties(&7) }, 7);
    let mut held = Held("6".to_owned());
    assert_eq!((held.borrowed(), held.by_default()), ("6", "by default"));
    assert_eq!((held.changed(), held.moved()), (Ok(()), "7".to_owned()));
    assert_eq!(made_with_text(), "made");
    made_of_item();
    functions::labeled_by_another_name();
    assert_eq!(
        (
            functions::labeled_elsewhere(),
            functions::labeled_elsewhere()
        ),
        (1, 2)
    );
    assert_eq!(
        elsewhere::RUNS.load(std::sync::atomic::Ordering::Relaxed),
        2
    );
}

fn call_futures() {
    let answer =
        block_on(futures::with_errors("40", 2, vec![1])).map(|number| format!("{number:?}"));
    assert_eq!(
        answer.map_err(|error| error.to_string()),
        Ok("42".to_owned())
    );
    let error = |text| {
        block_on(futures::with_errors(text, 0, Vec::new()))
            .expect_err(text)
            .to_string()
    };
    assert_eq!(
        (error(""), error("x")),
        (
            "empty".to_owned(),
            "invalid digit found in string".to_owned()
        )
    );
    let mut server = futures::Server {
        answered: Vec::new(),
    };
    assert_eq!(block_on(server.serve("first")), "first");
    assert_eq!(block_on(server.greeting()), "server is here");
    let (lengths, [is_long]) = block_on(server.lengths());
    assert_eq!(
        lengths
            .filter(|length| is_long(*length))
            .collect::<Vec<_>>(),
        [5]
    );
    assert_eq!(
        (block_on(server.length()), block_on(server.boxed("abc"))),
        (1, Ok(3))
    );
    let mut forever = pin!(futures::forever());
    assert!((0..3).all(|_| poll(forever.as_mut()).is_pending()));
}

/// Polls a future on the calling thread, and then on another.
fn move_a_future() {
    fn require_send<F: Future + Send + 'static>(future: F) -> F {
        future
    }
    let mut future = Box::pin(require_send(futures::with_errors("1", 1, Vec::new())));
    assert!(poll(future.as_mut()).is_pending());
    let other = std::thread::spawn(move || {
        gecko_profiler::register_thread("other");
        assert!(poll(future.as_mut()).is_ready());
    });
    other.join().expect("thread");
}

/// Returns the names of the category and subcategory of a label's frame.
fn category_of(read: &Read, label: &str) -> (String, String) {
    let frames = read.label_frames("attributes", label);
    let (category, subcategory, _) = frames
        .first()
        .unwrap_or_else(|| panic!("no frame {label:?}"));
    (
        category["name"].as_str().expect("a name").to_owned(),
        (*subcategory).to_owned(),
    )
}

/// Asserts that the label of a function is the nearest one above it in all samples of its work.
#[track_caller]
fn assert_labeled(stacks: &[Vec<String>], function: &str, label: &str) {
    // Before and after the work, the label may be missing.
    let position = |stack: &Vec<String>| {
        let position = stack.iter().rposition(|frame| frame.contains(function))?;
        let contains = |part: &str| stack[position..].iter().any(|frame| frame.contains(part));
        (contains("attributes::run (in") && contains(WORKING)).then_some(position)
    };
    let positions: Vec<_> = stacks
        .iter()
        .filter_map(|stack| Some((stack, position(stack)?)))
        .collect();
    assert!(
        positions.len() >= MIN_SAMPLES,
        "{} samples of {function}",
        positions.len()
    );
    for (stack, position) in positions {
        let nearest = stack[..position]
            .iter()
            .rfind(|frame| !frame.contains("(in "));
        assert_eq!(
            nearest.map(String::as_str),
            Some(label),
            "{function} in {stack:#?}"
        );
    }
}

#[test]
fn attribute_on_functions_and_futures_labels_their_samples() {
    isolated(|| {
        start_counter();
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let thread = std::thread::spawn(|| {
            gecko_profiler::register_thread("attributes");
            call_functions();
            call_futures();
            move_a_future();
        });
        thread.join().expect("thread");
        let read = Read::from_profile(&session.finish().expect("profile"));
        let stacks = |name: &str| {
            read.samples(name)
                .into_iter()
                .map(|sample| sample.stack)
                .collect::<Vec<_>>()
        };
        let (own, other) = (stacks("attributes"), stacks("other"));

        let functions = [
            ("functions::free (in", "Reflow", "Layout", "Reflow"),
            ("functions::with_bounds", "Printing", "Layout", "Printing"),
            (
                "functions::with_text (in",
                "with a text",
                "Requests",
                "Request parsing",
            ),
            (
                "functions::with_c_abi (in",
                "with a constant's category",
                "IPC",
                "Other",
            ),
            (
                "functions::with_duties (in",
                "Rasterization",
                "Graphics",
                "Rasterization",
            ),
            ("Held::borrowed (in", "WebGPU", "Graphics", "WebGPU"),
            (
                "Held::changed (in",
                "Interpreter",
                "JavaScript",
                "Interpreter",
            ),
            (
                "Held::moved (in",
                "Builtin API",
                "JavaScript",
                "Builtin API",
            ),
            ("Default::by_default (in", "Cubeb", "Media", "Cubeb"),
            ("functions::made_with_text (in", "made", "Sandbox", "Other"),
            (
                "functions::made_without_text (in",
                "Other",
                "Sandbox",
                "Other",
            ),
            (
                "functions::made_of_item (in",
                "Inference",
                "ML",
                "Inference",
            ),
            (
                "futures::with_errors",
                "Selector query",
                "Layout",
                "Selector query",
            ),
            ("futures::Server::serve", "serve", "Requests", "Other"),
            (
                "futures::Service>::length",
                "future in a function",
                "Requests",
                "Other",
            ),
            (
                "futures::Service>::boxed",
                "boxed future",
                "Requests",
                "Other",
            ),
        ];
        for (function, label, category, subcategory) in functions {
            assert_labeled(&own, function, label);
            assert_eq!(
                category_of(&read, label),
                (category.to_owned(), subcategory.to_owned())
            );
        }
        assert_labeled(&other, "futures::with_errors", "Selector query");

        let is_between_polls = |stack: &&Vec<String>| {
            let contains = |part: &str| stack.iter().any(|frame| frame.contains(part));
            contains("work_between_polls (in") && contains(WORKING)
        };
        let between_polls: Vec<_> = own.iter().filter(is_between_polls).collect();
        assert!(
            between_polls.len() >= MIN_SAMPLES,
            "{} samples between polls",
            between_polls.len()
        );
        for stack in between_polls {
            assert!(
                stack.iter().all(|frame| frame.contains("(in ")),
                "a label between polls: {stack:#?}"
            );
        }
    });
}

#[test]
fn labels_of_nested_futures_add_less_than_256_bytes() {
    isolated(|| {
        let (plain, labeled) = (
            size_of_val(&futures::plain::outer()),
            size_of_val(&futures::labeled::outer()),
        );

        assert!(labeled < plain + 256, "{labeled} bytes instead of {plain}");
        let mut labeled = pin!(futures::labeled::outer());
        assert!(poll(labeled.as_mut()).is_pending() && poll(labeled.as_mut()).is_ready());
    });
}
