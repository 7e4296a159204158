//! Stacks are exact or marked as truncated, never wrong. The program itself knows the true stacks.
//!
//! `accuracy/stepper.rs` runs code one instruction at a time. It sees each call and return, and
//! meets each instruction of prologues, epilogues, stubs of the linker and foreign libraries. Code
//! that takes too long for that, or that tests the sampler, is sampled by a session at 10 kHz. Each
//! sample must be one of the stacks that stepping met.

pub(crate) mod c_code;

mod cases;
mod driver;
mod exceptions;
mod rust_code;
mod stepper;
mod table;

use crate::common::isolated;

#[test]
fn stacks_are_exact_or_marked_as_truncated() {
    isolated(|| {
        let thread = std::thread::Builder::new().stack_size(64 << 20).spawn(|| {
            gekkota::register_thread(driver::THREAD);
            let mut table = table::Table::default();
            cases::all(&mut table);
            table
        });
        let table = thread.expect("spawn").join().expect("the cases");
        table.print();
        assert_eq!(table.below_the_bars(), [""; 0], "below the bars");
    });
}

#[test]
fn stacks_are_exact_or_truncated_while_an_exception_is_raised_and_caught() {
    isolated(|| {
        let thread = std::thread::spawn(|| {
            let mut table = table::Table::default();
            cases::exceptions(&mut table);
            table
        });
        let table = thread.join().expect("the cases");
        table.print();
        assert_eq!(table.below_the_bars(), [""; 0], "below the bars");
    });
}
