//! Rule: a task that may move to another thread holds no label across an `.await`. The error names
//! `labeled_future`.
fn spawn<F: Future + Send + 'static>(_: F) {}

async fn look_up() -> u32 {
    7
}

fn main() {
    spawn(async {
        gekkota::auto_profiler_label!("task");
        look_up().await
    });
}
