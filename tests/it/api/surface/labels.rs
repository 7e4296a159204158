//! Every form of labels and categories.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use gekkota::category::{HostCategory, ProfilingCategory};
use gekkota::gecko_profiler::gecko_profiler_label;
use gekkota::label::{IntoLabel, Label};
use gekkota::label::{
    LabelFlags, auto_profiler_label_category_pair,
    auto_profiler_label_category_pair_relevant_for_js, auto_profiler_label_dynamic_nonsensitive,
    auto_profiler_label_dynamic_utf16, auto_profiler_label_getter, auto_profiler_label_hot,
    auto_profiler_label_method, auto_profiler_label_setter,
};
use gekkota::stack::profiler_capture_backtrace;
use gekkota::{
    AutoProfilerLabel, ProfilingCategoryPair, auto_profiler_label, auto_profiler_label_dynamic,
    gecko_profiler_category, labeled_future, labeled_future_with_dynamic,
};

gekkota::profiler_categories! {
    /// A category of this test.
    pub(crate) Surface("Surface", purple) { Other: "Other", Deep: "Deep down" }
    Depth("Depth", brown) { Other: "Other" }
}

#[cfg(feature = "attributes")]
#[gekkota::gecko_profiler_fn_label("by an attribute", Surface::Deep)]
fn labels_of_the_calling_thread() -> Vec<String> {
    labels()
}

#[cfg(not(feature = "attributes"))]
fn labels_of_the_calling_thread() -> Vec<String> {
    labels()
}

fn labels() -> Vec<String> {
    let stack = profiler_capture_backtrace().map(|backtrace| backtrace.resolve());
    let frames = stack.iter().flat_map(|stack| stack.frames()).rev();
    let text = |frame: &gekkota::stack::StackFrame| match frame {
        gekkota::stack::StackFrame::Label { text, .. } => Some(text.clone()),
        _ => None,
    };
    frames.filter_map(text).collect()
}

pub(crate) fn categories() {
    let host: HostCategory = match Surface::Deep {
        ProfilingCategoryPair::Host(category) => category,
        pair => panic!("{pair:?} is not a category of the application"),
    };
    assert_eq!(ProfilingCategoryPair::Host(host), Surface::Deep);
    assert_ne!(Surface::Deep, Depth::Other);
    assert_eq!(
        (Surface::Deep.label(), Depth::Other.label()),
        ("Deep down", "Other")
    );
    let parsing = gecko_profiler_category!(JavaScript, Parsing);
    assert_eq!(
        parsing,
        ProfilingCategoryPair::JavaScript(Some(gekkota::category::JavaScript::Parsing))
    );
    assert_eq!(
        (
            parsing.label(),
            parsing.indices(),
            parsing.to_cpp_enum_value()
        ),
        ("Parsing", (4, 1), 14)
    );
    assert_eq!(ProfilingCategory::JavaScript.to_cpp_enum_value(), 4);
}

pub(crate) fn every_form() {
    let is_active = gekkota::profiler_is_active();
    let (other, local) = (gecko_profiler_category!(Other), 0u8);
    let before = labels().len();
    auto_profiler_label_hot!("hot", Surface::Other);
    gecko_profiler_label!(Layout, Reflow);
    auto_profiler_label_category_pair!(Graphics);
    auto_profiler_label_category_pair_relevant_for_js!(JavaScript, Parsing);
    auto_profiler_label_dynamic_utf16!("a", &[0x62], Other);
    auto_profiler_label_dynamic_nonsensitive!("c", "d", Other);
    auto_profiler_label_method!("Element", "append", DOM);
    auto_profiler_label_getter!("Element", "id", DOM);
    auto_profiler_label_setter!("Element", "id", DOM);
    let _pair = AutoProfilerLabel::of_category(Depth::Other);
    let flags = LabelFlags::METHOD | LabelFlags::RELEVANT_FOR_JS | LabelFlags::default();
    let _flags = AutoProfilerLabel::with_flags("Node", "clone", other, flags);
    let _dynamic = AutoProfilerLabel::with_dynamic("e", "f", other);
    let _utf16 = AutoProfilerLabel::with_dynamic_utf16("g", &[0x68], other);
    let _placed = AutoProfilerLabel::with_stack_address("placed", other, (&raw const local).addr());
    let mut expected = match is_active {
        true => vec!["hot", "Reflow"],
        false => vec![],
    };
    expected.extend([
        "Other",
        "Parsing",
        "a b",
        "c d",
        "Element.append",
        "get Element.id",
        "set Element.id",
    ]);
    expected.extend(["Other", "Node.clone", "e f", "g h", "placed"]);
    expected.extend(cfg!(feature = "attributes").then_some("by an attribute"));
    let found = labels_of_the_calling_thread();
    match cfg!(has_profiler) {
        true => assert_eq!(found[before..], expected),
        false => assert!(found.is_empty(), "{found:?}"),
    }
}

/// A label of an application's own type.
struct Stage(usize);

static STAGES: [&str; 2] = ["read", "write"];

impl IntoLabel for Stage {
    fn into_label(self) -> Label {
        Label::new(STAGES[self.0], Surface::Deep)
    }
}

const IN_A_CONSTANT: Label = Label::new("constant", Surface::Deep);

pub(crate) fn simple_forms() {
    let before = labels().len();
    auto_profiler_label!("text");
    auto_profiler_label!(IN_A_CONSTANT);
    auto_profiler_label!(&IN_A_CONSTANT, Network);
    auto_profiler_label!(Stage(1));
    for stage in &STAGES {
        auto_profiler_label!(stage);
    }
    let category = Surface::Other;
    auto_profiler_label!("variable", (category));
    auto_profiler_label_dynamic!("dynamic", &String::from("text"));
    let found = labels();
    let expected = [
        "text",
        "constant",
        "constant",
        "write",
        "variable",
        "dynamic text",
    ];
    match cfg!(has_profiler) {
        true => assert_eq!(found[before..], expected),
        false => assert!(found.is_empty(), "{found:?}"),
    }
    assert_eq!(
        (IN_A_CONSTANT.text(), IN_A_CONSTANT.category()),
        ("constant", Surface::Deep)
    );
    assert_eq!(
        "text".into_label().category(),
        gecko_profiler_category!(Other)
    );
}

pub(crate) fn labeled_futures() {
    let inner = labeled_future("inner", Surface::Other, async { labels() });
    let mut outer = pin!(labeled_future_with_dynamic(
        "outer",
        "7",
        gecko_profiler_category!(Network),
        inner
    ));
    let before = labels();
    let Poll::Ready(within) = outer.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("the future is pending");
    };
    let expected = if cfg!(has_profiler) {
        vec!["outer 7", "inner"]
    } else {
        vec![]
    };
    assert_eq!(within[before.len()..], expected);
    assert_eq!(labels(), before);
}
