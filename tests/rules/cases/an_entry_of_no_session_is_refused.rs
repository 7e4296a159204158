//! Rule: an entry names the session that it belongs to.
include!("layers.in");

fn broken(now: base::TimeStamp) {
    state::core_buffer().put(now, &[b"entry"]);
}

fn main() {}
