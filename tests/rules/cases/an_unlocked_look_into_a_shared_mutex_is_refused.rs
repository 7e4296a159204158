//! Rule: who looks into a mutex without locking it has it for himself.
include!("layers.in");

fn broken(shared: &util::NamedMutex<u32>) -> u32 {
    *shared.get_mut()
}

fn main() {}
