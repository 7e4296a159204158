//! Rule: a category has a subcategory, its default.
gekkota::profiler_categories! {
    Requests("Requests", blue) {}
}

fn main() {}
