//! Rule: only the thread that pushed a label accesses it.
use gekkota::{AutoProfilerLabel, gecko_profiler_category};

fn main() {
    let label = AutoProfilerLabel::new("label", gecko_profiler_category!(Other));
    std::thread::scope(|scope| {
        scope.spawn(|| println!("{label:?}"));
    });
}
