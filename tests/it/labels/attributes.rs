//! `#[gecko_profiler_fn_label]`: the label of a function stands in its samples, that of a future wherever it is polled.
// As crates of Mozilla's have it: all macros are there without their path, and the attribute is.
mod functions;
mod futures;

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::common::{Read, isolated, work_for_cpu};
use functions::Default as _;
use futures::Service as _;
use gecko_profiler::{ProfilerSession, StartParams};

profiler_categories! {
    Requests("Requests", blue) { Other: "Other", Parsing: "Request parsing" }
}

const SLICE: Duration = Duration::from_millis(60);
const FEWEST: usize = 5;

/// The work of a labelled function, which stands in its samples.
#[inline(never)]
fn run() {
    work_for_cpu(SLICE);
    std::hint::black_box(());
}

#[inline(never)]
fn worked_between_polls() {
    work_for_cpu(SLICE);
    std::hint::black_box(1);
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
        worked_between_polls();
    }
}

fn call_functions() {
    use functions::{Held, elsewhere, free, made_of_item, made_with_text, with_bounds, with_c_abi};
    assert_eq!(free(1), 2);
    let numbers = with_bounds(["1", "x", "3"], |text| text.parse::<u8>().ok());
    assert_eq!(numbers.collect::<Vec<_>>(), [1, 3]);
    functions::with_text();
    assert_eq!(with_c_abi(7), -7);
    // SAFETY: a number's.
    assert_eq!(unsafe { functions::with_duties(&7) }, 7);
    let mut held = Held("6".to_owned());
    assert_eq!((held.borrowed(), held.by_default()), ("6", "by default"));
    assert_eq!((held.changed(), held.moved()), (Ok(()), "7".to_owned()));
    assert_eq!(made_with_text(), "made");
    made_of_item();
    functions::labelled_by_another_name();
    assert_eq!(
        (
            functions::labelled_elsewhere(),
            functions::labelled_elsewhere()
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
    let mut for_ever = pin!(futures::for_ever());
    assert!((0..3).all(|_| poll(for_ever.as_mut()).is_pending()));
}

/// Polled here first, and then on another thread.
fn move_a_future() {
    fn is_sent<F: Future + Send + 'static>(future: F) -> F {
        future
    }
    let mut future = Box::pin(is_sent(futures::with_errors("1", 1, Vec::new())));
    assert!(poll(future.as_mut()).is_pending());
    let other = std::thread::spawn(move || {
        gecko_profiler::register_thread("other");
        assert!(poll(future.as_mut()).is_ready());
    });
    other.join().expect("thread");
}

/// The category of the label's frame, by the names that the profile has.
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

/// The samples of a function all have its label, just above it, and no two functions' labels are mixed up.
#[track_caller]
fn assert_labelled(stacks: &[Vec<String>], function: &str, label: &str) {
    // Before and after its work, the label may be missing.
    let place = |stack: &Vec<String>| {
        let place = stack.iter().rposition(|frame| frame.contains(function))?;
        stack[place..]
            .iter()
            .any(|frame| frame.contains("attributes::run (in"))
            .then_some(place)
    };
    let places: Vec<_> = stacks
        .iter()
        .filter_map(|stack| Some((stack, place(stack)?)))
        .collect();
    assert!(
        places.len() >= FEWEST,
        "{} samples of {function}",
        places.len()
    );
    for (stack, place) in places {
        let nearest = stack[..place].iter().rfind(|frame| !frame.contains("(in "));
        assert_eq!(
            nearest.map(String::as_str),
            Some(label),
            "{function} in {stack:#?}"
        );
    }
}

#[test]
fn the_labels_of_functions_stand_in_their_samples() {
    isolated(|| {
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
        let (here, other) = (stacks("attributes"), stacks("other"));

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
            assert_labelled(&here, function, label);
            assert_eq!(
                category_of(&read, label),
                (category.to_owned(), subcategory.to_owned())
            );
        }
        assert_labelled(&other, "futures::with_errors", "Selector query");

        let waiting = |stack: &&Vec<String>| {
            stack
                .iter()
                .any(|frame| frame.contains("worked_between_polls (in"))
        };
        let waiting: Vec<_> = here.iter().filter(waiting).collect();
        assert!(
            waiting.len() >= FEWEST,
            "{} samples between polls",
            waiting.len()
        );
        for stack in waiting {
            assert!(
                stack.iter().all(|frame| frame.contains("(in ")),
                "no label is there: {stack:#?}"
            );
        }
    });
}

#[test]
fn futures_in_futures_do_not_grow_by_their_labels() {
    isolated(|| {
        let (plain, labelled) = (
            size_of_val(&futures::plain::outer()),
            size_of_val(&futures::labelled::outer()),
        );

        assert!(
            labelled < plain + 256,
            "{labelled} bytes instead of {plain}"
        );
        let mut labelled = pin!(futures::labelled::outer());
        assert!(poll(labelled.as_mut()).is_pending() && poll(labelled.as_mut()).is_ready());
    });
}
