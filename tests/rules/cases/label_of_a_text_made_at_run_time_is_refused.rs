//! Rule: the text of a label lives as long as the program. The error names the form that copies a
//! text.
use gekkota::{AutoProfilerLabel, auto_profiler_label, gecko_profiler_category, labeled_future};

fn owned(name: String) {
    auto_profiler_label!(name, Network);
}

fn borrowed(name: String) {
    auto_profiler_label!(&name);
}

fn formatted(number: u32) {
    auto_profiler_label!(format!("request {number}"), Network);
}

fn number(number: u32) {
    let _label = AutoProfilerLabel::of(number);
}

fn future(name: String) {
    drop(labeled_future(name, gecko_profiler_category!(Network), async {}));
}

fn main() {
    owned(String::new());
    borrowed(String::new());
    formatted(1);
    number(1);
    future(String::new());
}
