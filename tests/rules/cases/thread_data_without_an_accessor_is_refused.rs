//! Rule: the data of a registration is reachable only through the accessors.
include!("layers.in");

fn broken(thread: &threads::OffThreadRef) -> u32 {
    thread.unlocked_const_reader().0.announced.load(std::sync::atomic::Ordering::Relaxed)
}

fn main() {}
