//! Rule: iterating over the registry requires the `PsLock`, so no thread registers in the meantime.
include!("layers.in");

fn broken() {
    threads::ThreadRegistry::for_each(|_thread| ());
}

fn main() {}
