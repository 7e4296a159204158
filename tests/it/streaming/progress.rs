//! The application can follow the progress while its profile is written.

use std::io::Write;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use crate::common::{Read, isolated, mark, work_for};
use gekkota::profile::{Format, SharedProgress, SnapshotOptions, Symbolicate};
use gekkota::{Profile, ProfilerSession, StartParams, StreamError, profiler_stream_json};

/// Waits at each write until another thread has read the progress.
struct Watched {
    text: Vec<u8>,
    look: Sender<()>,
    looked: Receiver<()>,
    fails: bool,
}

impl Write for Watched {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.look.send(()).expect("the watcher runs");
        self.looked.recv().expect("the watcher answers");
        if self.fails {
            return Err(std::io::Error::other("on purpose"));
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// One reading of the progress: the proportion and the location.
type Seen = (f64, &'static str);

/// Writes the profile, and returns the progress that another thread read at each write.
fn watch(
    profile: &Profile,
    options: SnapshotOptions,
    fails: bool,
) -> (Result<Vec<u8>, StreamError>, Vec<Seen>) {
    let progress = options.progress.clone().expect("progress is reported");
    let (look, looks) = channel();
    let (answer, looked) = channel();
    let watcher = std::thread::spawn(move || {
        let mut seen = Vec::new();
        while looks.recv().is_ok() {
            seen.push((progress.proportion(), progress.last_location()));
            answer.send(()).expect("the writer waits");
        }
        seen
    });
    let mut out = Watched {
        text: Vec::new(),
        look,
        looked,
        fails,
    };
    let result = profile.write_with(Format::Gecko, &mut out, &options);
    let text = std::mem::take(&mut out.text);
    drop(out);
    (result.map(|()| text), watcher.join().expect("the watcher"))
}

fn assert_never_decreases(seen: &[Seen]) {
    assert!(seen.is_sorted_by(|one, next| one.0 <= next.0), "{seen:?}");
    assert!(
        seen.iter()
            .all(|&(proportion, _)| (0.0..1.0).contains(&proportion)),
        "{seen:?}"
    );
}

#[test]
fn progress_increases_until_writing_ends() {
    isolated(|| {
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let workers = ["one", "other"].map(|name| {
            std::thread::spawn(move || {
                gekkota::register_thread(name);
                for number in 0..4000 {
                    mark(&format!("marker {number}"));
                }
                work_for(Duration::from_millis(100));
            })
        });
        workers
            .into_iter()
            .for_each(|worker| worker.join().expect("thread"));
        let profile = session.snapshot().expect("active");

        let progress = SharedProgress::new();
        assert_eq!(
            (progress.proportion(), progress.last_location()),
            (0.0, "not begun")
        );
        let without_names = SnapshotOptions::default()
            .progress(progress.clone())
            .symbolicate(Symbolicate::No);
        let (written, seen) = watch(&profile, without_names.clone(), false);
        Read::from_text(&written.expect("it never fails"));
        assert_never_decreases(&seen);
        assert!(
            seen.len() >= 3 && seen[0].0 < seen[seen.len() - 2].0,
            "{seen:?}"
        );
        assert!(
            seen.iter()
                .any(|(_, location)| location.starts_with("a thread's")),
            "{seen:?}"
        );
        assert_eq!(
            (progress.proportion(), progress.last_location()),
            (1.0, "done")
        );

        // The next job starts from zero. With names, the first part is written before they are
        // looked up.
        let with_names = SnapshotOptions::default().progress(progress.clone());
        let (written, seen) = watch(&profile, with_names.clone(), false);
        Read::from_text(&written.expect("it never fails"));
        assert_never_decreases(&seen);
        assert!(seen[0].0 > 0.0 && seen[0].0 < 0.3, "{seen:?}");
        assert_eq!(progress.proportion(), 1.0);

        // A failed job ends at once, and its progress is complete.
        let (written, seen) = watch(&profile, with_names, true);
        assert_eq!(
            written.unwrap_err().to_string(),
            "cannot write the profile: on purpose"
        );
        assert!(seen.len() == 1 && seen[0].0 < 0.3, "{seen:?}");
        assert_eq!(
            (progress.proportion(), progress.last_location()),
            (1.0, "done")
        );

        let progress = SharedProgress::new();
        drop(session);
        let options = without_names.progress(progress.clone());
        assert!(matches!(
            profiler_stream_json(&mut Vec::new(), &options),
            Err(StreamError::Inactive)
        ));
        assert_eq!(progress.proportion(), 1.0);

        check_progress_that_another_thread_polls(&profile);
    });
}

fn check_progress_that_another_thread_polls(profile: &Profile) {
    let progress = SharedProgress::new();
    let options = SnapshotOptions::default().progress(progress.clone());
    let watcher = std::thread::spawn(move || {
        let mut seen = vec![progress.proportion()];
        while seen[seen.len() - 1] < 1.0 {
            std::thread::sleep(Duration::from_micros(50));
            seen.push(progress.proportion());
        }
        seen
    });
    let mut text = Vec::new();
    profile
        .write_with(Format::Gecko, &mut text, &options)
        .expect("a vector never fails");
    let seen = watcher.join().expect("the watcher ends when writing ends");
    assert!(seen.is_sorted(), "{seen:?}");
}
