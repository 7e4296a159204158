//! A program that forbids `unsafe` code can start the profiler before `main`.
#![forbid(unsafe_code)]

gekkota::early_start!();

fn main() {
    println!(
        "active at the beginning of main: {}",
        gekkota::profiler_is_active()
    );
}
