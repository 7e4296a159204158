//! Rule: a label stays on the thread that pushed it.
use gekkota::{AutoProfilerLabel, gecko_profiler_category};

fn main() {
    let label = AutoProfilerLabel::new("label", gecko_profiler_category!(Other));
    std::thread::spawn(move || drop(label));
}
