//! Rule: a category has at least one subcategory, the default.
gekkota::profiler_categories! {
    Requests("Requests", blue) {}
}

fn main() {}
