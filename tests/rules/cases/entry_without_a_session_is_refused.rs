//! Rule: an entry names its session.
include!("layers.in");

fn broken(now: types::TimeStamp, entry: buffer::EntryHead) {
    state::core_buffer().take_lane().put(now, &entry);
}

fn main() {}
