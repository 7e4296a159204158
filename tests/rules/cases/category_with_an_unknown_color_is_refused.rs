//! Rule: a category has a color that the viewer knows.
gekkota::profiler_categories! {
    Requests("Requests", turquoise) { Other: "Other" }
}

fn main() {
    gekkota::auto_profiler_label!("label", Requests::Other);
}
