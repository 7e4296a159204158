//! Rule: the text of a label lives as long as the program. The error names the form that copies a
//! text, also for a text that is borrowed for a shorter time.
use gekkota::{auto_profiler_label, gecko_profiler_category, labeled_future};

fn borrowed(name: &str) {
    auto_profiler_label!(name, Network);
}

fn of_a_string(name: String) {
    auto_profiler_label!(name.as_str());
}

fn future(name: String) {
    drop(labeled_future(name.as_str(), gecko_profiler_category!(Network), async {}));
}

fn main() {
    borrowed("");
    of_a_string(String::new());
    future(String::new());
}
