//! Rule: the attribute needs a text or a category. The only other argument is the path of gekkota.
use gekkota_attributes::gecko_profiler_fn_label;

#[gecko_profiler_fn_label]
fn nothing() {}

#[gecko_profiler_fn_label(crate = gekkota)]
fn crate_alone() {}

#[gecko_profiler_fn_label(JavaScript, Parsing, Slow)]
fn three_names() {}

#[gecko_profiler_fn_label(7, Network)]
fn number() {}

#[gecko_profiler_fn_label(, Network)]
fn comma() {}

#[gecko_profiler_fn_label(category = Network)]
fn named() {}

#[gecko_profiler_fn_label(crate = gekkota, Network)]
fn crate_first() {}

#[gecko_profiler_fn_label(Network, crate = "gekkota")]
fn crate_in_quotes() {}

#[gecko_profiler_fn_label(Network, crate =)]
fn crate_of_nothing() {}

fn main() {
    nothing();
    crate_alone();
    three_names();
    number();
    comma();
    named();
    crate_first();
    crate_in_quotes();
    crate_of_nothing();
}
