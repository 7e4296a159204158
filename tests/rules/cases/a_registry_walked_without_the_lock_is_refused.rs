//! Rule: nobody registers while the registry is walked, since the walker holds the `PsLock`.
include!("layers.in");

fn broken() {
    threads::ThreadRegistry::for_each(|_thread| ());
}

fn main() {}
