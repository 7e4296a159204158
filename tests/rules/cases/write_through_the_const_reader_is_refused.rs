//! Rule: `UnlockedConstReader` gives access to constant data only.
include!("layers.in");

fn broken(thread: &threads::OffThreadRef) {
    thread.unlocked_const_reader().info().is_main = true;
}

fn main() {}
