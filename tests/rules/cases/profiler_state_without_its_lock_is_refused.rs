//! Rule: `ActivePs` and `CorePs` are touched by who holds the `PsLock`.
include!("layers.in");

use state::{ACTIVE_PS, ActivePs};

fn broken() -> Option<&'static ActivePs> {
    ACTIVE_PS.get().as_ref()
}

fn main() {}
