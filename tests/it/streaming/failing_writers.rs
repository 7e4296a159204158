//! A writer may fail after any number of bytes: its error is told, and the session goes on with all that it has.

use std::io::{Error, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::{Read, isolated, mark, work_for_cpu};
use gekkota::profile::{Format, SnapshotOptions, Symbolicate};
use gekkota::{
    Profile, ProfilerSession, SaveError, StartParams, StreamError, profiler_is_active,
    profiler_save_profile_to_file, profiler_stream_json,
};

/// What a writer fails with: which one it was.
#[derive(Debug)]
struct FailedAt(usize);

impl std::fmt::Display for FailedAt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "no room after {} bytes", self.0)
    }
}

impl std::error::Error for FailedAt {}

/// Takes so many bytes and no more.
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
            "asked again after it failed at {}",
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

    /// Of one that took everything, at last.
    fn flush(&mut self) -> std::io::Result<()> {
        Err(self.fail())
    }
}

fn without_names() -> SnapshotOptions {
    SnapshotOptions::default().symbolicate(Symbolicate::No)
}

fn assert_is_of(error: StreamError, most: usize) {
    let StreamError::Io(error) = error else {
        panic!("{error}")
    };
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    let inner = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<FailedAt>());
    assert_eq!(inner.expect("the very error").0, most);
}

fn fails_wherever_it_is_cut(profile: &Profile, whole: &[u8]) {
    // A prime, so that all places in a row and in the buffer come up.
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
    // The last takes everything, and fails when it is flushed.
    for cut in cuts.into_iter().chain([whole.len()]) {
        let mut out = Failing::after(cut);
        assert_is_of(
            profile
                .write_with(Format::Gecko, &mut out, &without_names())
                .unwrap_err(),
            cut,
        );
        assert!(
            out.has_failed && out.taken == whole[..cut],
            "what came before is as it would have been"
        );
    }
}

fn of_worker(read: &Read) -> (Vec<String>, Vec<(f64, Vec<String>)>) {
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

/// Keeps the process from making files larger than this, while it lives.
struct FileLimit {
    before: libc::rlimit,
}

impl FileLimit {
    fn new(bytes: u64) -> Self {
        let mut before = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: reads and writes locals; the signal's action is a constant.
        unsafe {
            assert_eq!(libc::getrlimit(libc::RLIMIT_FSIZE, &mut before), 0);
            // Without it the process would end.
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
        // SAFETY: reads a field.
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

fn a_file_that_finds_no_room_leaves_nothing(folder: &Path) {
    for name in ["p.json", "p.json.gz"] {
        let path = folder.join(name);
        profiler_save_profile_to_file(&path).expect("there is room");
        let length = std::fs::metadata(&path).expect("saved").len();
        std::fs::remove_file(&path).expect("removed");
        for limit in [0, 1, length / 2, length * 3 / 4] {
            let saved = {
                let _limit = FileLimit::new(limit);
                profiler_save_profile_to_file(&path)
            };
            let Err(SaveError::Io {
                path: told,
                action,
                error,
            }) = saved
            else {
                panic!("{limit}: {saved:?}")
            };
            assert_eq!(
                (told.as_path(), action, error.raw_os_error()),
                (path.as_path(), "write", Some(libc::EFBIG))
            );
            assert_eq!(
                names_in(folder),
                [""; 0].map(PathBuf::from),
                "nothing is left, hidden or not"
            );
            assert!(profiler_is_active());
        }
        // What was there stays, whole.
        std::fs::write(&path, "an older one").expect("written");
        {
            let _limit = FileLimit::new(length / 2);
            profiler_save_profile_to_file(&path).unwrap_err();
        }
        assert_eq!(
            std::fs::read(&path).expect("the older one"),
            b"an older one"
        );
        assert_eq!(names_in(folder), std::slice::from_ref(&path));
        profiler_save_profile_to_file(&path).expect("there is room again");
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
        "a device stays a device"
    );
}

#[test]
fn what_fails_is_told_and_what_was_recorded_stays() {
    isolated(|| {
        // SAFETY: no other thread reads the environment yet.
        unsafe { std::env::set_var("MOZ_PROFILER_SYMBOLICATE", "0") };
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let worker = std::thread::spawn(|| {
            gekkota::register_thread("worker");
            for number in 0..3000 {
                mark(&format!("marker {number}"));
            }
            work_for_cpu(Duration::from_millis(300));
        });
        worker.join().expect("thread");
        let profile = session.snapshot().expect("active");
        let mut whole = Vec::new();
        profile
            .write_with(Format::Gecko, &mut whole, &without_names())
            .expect("a vector never fails");
        let early = of_worker(&Read::from_text(&whole));
        assert!(
            early.0.len() == 3000 && early.1.len() > 20,
            "{} samples",
            early.1.len()
        );

        fails_wherever_it_is_cut(&profile, &whole);
        // The running session itself is asked, and writers fail early and late.
        for most in [0, 1, 100, whole.len() / 2, whole.len() - 1] {
            assert_is_of(
                profiler_stream_json(&mut Failing::after(most), &without_names()).unwrap_err(),
                most,
            );
        }
        // With names too, at the first look and in the middle.
        for most in [0, whole.len() / 2] {
            let mut out = Failing::after(most);
            assert_is_of(profile.write(Format::Gecko, &mut out).unwrap_err(), most);
        }
        let folder = std::env::temp_dir().join(format!("gekkota-no-room-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder");
        a_file_that_finds_no_room_leaves_nothing(&folder);
        std::fs::remove_dir(&folder).expect("an empty folder");

        assert!(profiler_is_active());
        let late = Read::of_running();
        assert_eq!(of_worker(&late), early);
        let text = gekkota::profiler_get_profile().expect("active");
        assert_eq!(of_worker(&Read::from_text(&text)).0, early.0);
        let log = &late.0["profilingLog"][std::process::id().to_string()]["buffer"];
        assert_eq!(log["malformed_entries"], 0);
    });
}
