//! Rule: an entry names the session that it belongs to.
include!("layers.in");

fn broken(now: types::TimeStamp, entry: buffer::EntryHead) {
    state::core_buffer().take_lane().put(now, &entry);
}

fn main() {}
