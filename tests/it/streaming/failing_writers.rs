//! A writer may fail after any number of bytes. The caller gets its error, and the session
//! continues without loss.

use std::io::{Error, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::{Read, isolated, mark, one_loop, wait_until, work_for_cpu};
use gekkota::profile::{Format, SnapshotOptions, Symbolicate};
use gekkota::{
    Profile, ProfilerSession, SaveError, StartParams, StreamError, profiler_is_active,
    profiler_save_profile_to_file, profiler_stream_json,
};

/// The error of a writer: the number of bytes after which it failed.
#[derive(Debug)]
struct FailedAt(usize);

impl std::fmt::Display for FailedAt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "no space after {} bytes", self.0)
    }
}

impl std::error::Error for FailedAt {}

/// Accepts a number of bytes, then fails.
struct Failing {
    most: usize,
    taken: Vec<u8>,
    has_failed: bool,
}

impl Failing {
    fn after(most: usize) -> Self {
        Self {
            most,
            taken: Vec::new(),
            has_failed: false,
        }
    }

    fn fail(&mut self) -> Error {
        assert!(
            !self.has_failed,
            "called again after it failed at {}",
            self.most
        );
        self.has_failed = true;
        Error::new(ErrorKind::StorageFull, FailedAt(self.most))
    }
}

impl Write for Failing {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let taken = bytes.len().min(self.most - self.taken.len());
        if taken == 0 && !bytes.is_empty() {
            return Err(self.fail());
        }
        self.taken.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    /// Fails even if all bytes were accepted.
    fn flush(&mut self) -> std::io::Result<()> {
        Err(self.fail())
    }
}

fn without_names() -> SnapshotOptions {
    SnapshotOptions::default().symbolicate(Symbolicate::No)
}

fn assert_error_is_of(error: StreamError, most: usize) {
    let StreamError::Io(error) = error else {
        panic!("{error}")
    };
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    let inner = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<FailedAt>());
    assert_eq!(inner.expect("the writer's own error").0, most);
}

fn check_failure_at_each_cut(profile: &Profile, whole: &[u8]) {
    // A prime number, so that the cuts fall on varying places in a row and in the write buffer.
    let step = [9973, 49_999, 199_999]
        .into_iter()
        .find(|step| whole.len() / step < 150)
        .unwrap_or(999_983);
    let cuts = [0, 1, 2, 32_767, 32_768, 32_769, 65_536]
        .into_iter()
        .chain((step..whole.len()).step_by(step));
    let cuts: Vec<usize> = cuts
        .filter(|&cut| cut < whole.len())
        .chain([whole.len() - 1])
        .collect();
    assert!(cuts.len() > 10, "{cuts:?}");
    // The last writer accepts everything and fails at the flush.
    for cut in cuts.into_iter().chain([whole.len()]) {
        let mut out = Failing::after(cut);
        assert_error_is_of(
            profile
                .write_with(Format::Gecko, &mut out, &without_names())
                .unwrap_err(),
            cut,
        );
        assert!(
            out.has_failed && out.taken == whole[..cut],
            "cut at {cut}: the accepted bytes differ from the whole profile"
        );
    }
}

/// Returns the names of the worker's markers, and the times and stacks of its samples.
fn markers_and_samples(read: &Read) -> (Vec<String>, Vec<(f64, Vec<String>)>) {
    let names = read
        .markers("worker")
        .into_iter()
        .map(|marker| marker.0)
        .collect();
    let samples = read
        .samples("worker")
        .into_iter()
        .map(|sample| (sample.time_ms, sample.stack))
        .collect();
    (names, samples)
}

/// Limits the size of the files that the process writes, until this value is dropped.
struct FileLimit {
    before: libc::rlimit,
}

impl FileLimit {
    fn new(bytes: u64) -> Self {
        let mut before = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: the pointers are to locals, and the signal's action is a constant.
        unsafe {
            assert_eq!(libc::getrlimit(libc::RLIMIT_FSIZE, &mut before), 0);
            // The signal would end the process.
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            let limit = libc::rlimit {
                rlim_cur: bytes,
                ..before
            };
            assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
        }
        Self { before }
    }
}

impl Drop for FileLimit {
    fn drop(&mut self) {
        // SAFETY: the kernel only reads the field.
        unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &self.before) };
    }
}

fn names_in(folder: &Path) -> Vec<PathBuf> {
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder")
        .flatten()
        .map(|entry| entry.path())
        .collect();
    names.sort();
    names
}

fn check_failed_save_leaves_no_file(folder: &Path) {
    for name in ["p.json", "p.json.gz"] {
        let path = folder.join(name);
        profiler_save_profile_to_file(&path).expect("there is space");
        let length = std::fs::metadata(&path).expect("saved").len();
        std::fs::remove_file(&path).expect("removed");
        for limit in [0, 1, length / 2, length * 3 / 4] {
            let saved = {
                let _limit = FileLimit::new(limit);
                profiler_save_profile_to_file(&path)
            };
            let Err(SaveError::Io {
                path: reported,
                action,
                error,
            }) = saved
            else {
                panic!("{limit}: {saved:?}")
            };
            assert_eq!(
                (reported.as_path(), action, error.raw_os_error()),
                (path.as_path(), "write", Some(libc::EFBIG))
            );
            assert_eq!(
                names_in(folder),
                [""; 0].map(PathBuf::from),
                "the failed save left a file"
            );
            assert!(profiler_is_active());
        }
        // An existing file stays whole.
        std::fs::write(&path, "an older file").expect("written");
        {
            let _limit = FileLimit::new(length / 2);
            profiler_save_profile_to_file(&path).unwrap_err();
        }
        assert_eq!(
            std::fs::read(&path).expect("the older file"),
            b"an older file"
        );
        assert_eq!(names_in(folder), std::slice::from_ref(&path));
        profiler_save_profile_to_file(&path).expect("there is space again");
        assert!(std::fs::metadata(&path).expect("saved").len() >= length / 2);
        std::fs::remove_file(&path).expect("removed");
    }
    let text = profiler_save_profile_to_file("/dev/full").unwrap_err();
    assert!(
        matches!(&text, SaveError::Io { error, .. } if error.raw_os_error() == Some(libc::ENOSPC)),
        "{text}"
    );
    let device = std::fs::metadata("/dev/full").expect("the device");
    assert!(
        std::os::unix::fs::FileTypeExt::is_char_device(&device.file_type()),
        "the device was replaced"
    );
}

#[test]
fn failing_writer_returns_its_error_and_the_session_keeps_its_data() {
    isolated(|| {
        // SAFETY: no other thread reads the environment yet.
        unsafe { std::env::set_var("MOZ_PROFILER_SYMBOLICATE", "0") };
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let worker = std::thread::spawn(|| {
            gekkota::register_thread("worker");
            for number in 0..3000 {
                mark(&format!("marker {number}"));
            }
            wait_until("the worker has samples", || {
                work_for_cpu(Duration::from_millis(100));
                Read::of_running().samples("worker").len() > 20
            });
        });
        worker.join().expect("thread");
        // After this loop, the sampler writes nothing more of the thread.
        one_loop();
        let profile = session.snapshot().expect("active");
        let mut whole = Vec::new();
        profile
            .write_with(Format::Gecko, &mut whole, &without_names())
            .expect("a vector never fails");
        let early = markers_and_samples(&Read::from_text(&whole));
        assert!(
            early.0.len() == 3000 && early.1.len() > 20,
            "{} samples",
            early.1.len()
        );

        check_failure_at_each_cut(&profile, &whole);
        // The running session, with writers that fail early and late.
        for most in [0, 1, 100, whole.len() / 2, whole.len() - 1] {
            assert_error_is_of(
                profiler_stream_json(&mut Failing::after(most), &without_names()).unwrap_err(),
                most,
            );
        }
        // With names too, at the first byte and in the middle.
        for most in [0, whole.len() / 2] {
            let mut out = Failing::after(most);
            assert_error_is_of(profile.write(Format::Gecko, &mut out).unwrap_err(), most);
        }
        let folder = std::env::temp_dir().join(format!("gekkota-no-space-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder");
        check_failed_save_leaves_no_file(&folder);
        std::fs::remove_dir(&folder).expect("an empty folder");

        assert!(profiler_is_active());
        let late = Read::of_running();
        assert_eq!(markers_and_samples(&late), early);
        let text = gekkota::profiler_get_profile().expect("active");
        assert_eq!(markers_and_samples(&Read::from_text(&text)).0, early.0);
        let log = &late.0["profilingLog"][std::process::id().to_string()]["buffer"];
        assert_eq!(log["malformed_entries"], 0);
    });
}
