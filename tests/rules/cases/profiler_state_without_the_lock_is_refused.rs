//! Rule: access to `ActivePs` and `CorePs` requires the `PsLock`.
include!("layers.in");

use state::{ACTIVE_PS, ActivePs};

fn broken() -> Option<&'static ActivePs> {
    ACTIVE_PS.get().as_ref()
}

fn main() {}
