//! Stacks are exact or marked as truncated, never wrong; the truth is known from inside the program.
//!
//! Code is run one instruction at a time, so that prologues, epilogues, stubs of the linker and code of other people's
//! libraries are met at each instruction, and each call and return is seen (`accuracy/stepper.rs`). What cannot be run
//! so, since it takes too long or is about the sampler, is sampled by a session at 10 kHz, and each sample must be one of
//! the stacks that stepping met.

pub(crate) mod c_code;

mod cases;
mod driver;
mod rust_code;
mod stepper;
mod table;

use crate::common::isolated;

#[test]
fn stacks_are_exact_or_marked_as_truncated_and_never_wrong() {
    isolated(|| {
        let thread = std::thread::Builder::new().stack_size(64 << 20).spawn(|| {
            gekkota::register_thread(driver::THREAD);
            let mut table = table::Table::default();
            cases::all(&mut table);
            table
        });
        let table = thread.expect("spawn").join().expect("the cases ran");
        table.print();
        assert_eq!(table.below_the_bars(), [""; 0], "below the bars");
    });
}
