//! Rule: access to a mutex's value without locking requires exclusive access to the mutex.
include!("layers.in");

fn broken(shared: &util::NamedMutex<u32>) -> u32 {
    *shared.get_mut()
}

fn main() {}
