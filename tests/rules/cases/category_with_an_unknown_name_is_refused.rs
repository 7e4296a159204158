//! Rule: a single name is a category of Gecko's list, and the error shows the list. The names of
//! subcategories, and those of the application's categories, are checked by the compiler.
use gekkota::{auto_profiler_label, gecko_profiler_category, profiler_categories};

profiler_categories! {
    Requests("Requests", blue) { Other: "Other", Parsing: "Parsing" }
}

#[gekkota::gecko_profiler_fn_label(Netwrok)]
fn attribute() {}

fn main() {
    attribute();
    auto_profiler_label!("typo", Netwrok);
    let category = gecko_profiler_category!(Network);
    auto_profiler_label!("variable without parentheses", category);
    auto_profiler_label!("two names", Requests, Parsing);
    auto_profiler_label!("subcategory", JavaScript, Parsng);
    auto_profiler_label!("subcategory of the application", Requests::Parsng);
    let _ = gecko_profiler_category!(Netwrok);
}
