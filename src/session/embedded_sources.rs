//! Reads the sources of the program's own crates, so that the viewer can show them to whoever gets
//! the profile.
//!
//! A source that has changed since the recording is left out: its lines would be other ones.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use crate::model::{ProfileModel, SourceText, TextId};
use crate::platform::{SharedFile, is_memory_available, on_own_descriptors};

/// Beginnings of the paths of sources that belong to Rust or to the system.
const FOREIGN_ROOTS: [&str; 3] = ["/rustc/", "/usr/", "/nix/store/"];
/// Folders that hold the sources of Rust, and those in which Cargo keeps packages of others.
const FOREIGN_FOLDERS: [&str; 3] = ["/rustlib/src/", "/registry/src/", "/.cargo/git/checkouts/"];
/// Maximum size of one source, in bytes. Larger ones are generated.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Returns the sources of the program's own crates with their texts, up to this size together. The
/// files with the most samples come first.
pub(super) fn read_sources(
    profile: &ProfileModel,
    max_bytes: usize,
) -> HashMap<TextId, SourceText> {
    let mut sources = HashMap::new();
    let mut left_bytes = max_bytes;
    let recorded_at_ms = profile.meta.start_epoch_ms;
    for file in files_by_samples(profile) {
        let path = profile.text(file).to_owned();
        if !is_own(&path) {
            continue;
        }
        let max_bytes = MAX_FILE_BYTES.min(left_bytes as u64);
        if !is_memory_available(2 * max_bytes as usize) {
            break;
        }
        let text =
            on_own_descriptors(move || read_unchanged(Path::new(&path), max_bytes, recorded_at_ms));
        if let Some(text) = text {
            left_bytes -= text.len();
            sources.insert(file, SourceText(text));
        }
    }
    sources
}

/// Returns the files of the profile's functions, those with the most samples first.
fn files_by_samples(profile: &ProfileModel) -> Vec<TextId> {
    let file_of = |frame| profile.function(profile.frame(frame).function).file;
    let mut samples: HashMap<TextId, u64> = HashMap::new();
    for function in profile.functions() {
        samples.extend(function.file.map(|file| (file, 0)));
    }
    for thread in &profile.threads {
        for sample in thread.samples.iter() {
            let frame = sample.stack.map(|stack| profile.stack(stack).1);
            if let Some(file) = frame.and_then(file_of) {
                *samples.entry(file).or_default() += thread.samples.count(&sample);
            }
        }
    }
    let mut files: Vec<(TextId, u64)> = samples.into_iter().collect();
    files.sort_by_key(|&(file, samples)| (std::cmp::Reverse(samples), profile.text(file)));
    files.into_iter().map(|(file, _)| file).collect()
}

/// Returns whether a file belongs to the program's own crates, by its path.
fn is_own(path: &str) -> bool {
    path.starts_with('/')
        && !FOREIGN_ROOTS.iter().any(|root| path.starts_with(root))
        && !FOREIGN_FOLDERS.iter().any(|folder| path.contains(folder))
}

/// Returns the text of a file that is not larger than `max_bytes` and that was last changed before
/// the recording began. `None` also if the file is missing, is no regular file, or is not UTF-8.
fn read_unchanged(path: &Path, max_bytes: u64, recorded_at_ms: f64) -> Option<String> {
    let file = SharedFile::open_regular(path).ok()?;
    let status = file.status().ok()?;
    let changed_at_ms = status.st_mtime as f64 * 1e3 + status.st_mtime_nsec as f64 / 1e6;
    if changed_at_ms >= recorded_at_ms || u64::try_from(status.st_size).ok()? > max_bytes {
        return None;
    }
    let mut text = String::new();
    // The file may have grown since.
    let read = file.take(max_bytes + 1).read_to_string(&mut text).ok()?;
    (read as u64 <= max_bytes).then_some(text)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use super::*;
    use crate::model::{Function, FunctionKind};
    use crate::platform::TestFolder;

    #[test]
    fn own_sources_are_told_by_their_paths() {
        for own in ["/home/me/program/src/main.rs", "/build/registry/main.c"] {
            assert!(is_own(own), "{own}");
        }
        for foreign in [
            "/rustc/0123/library/core/src/iter/range.rs",
            "/root/.rustup/toolchains/stable/lib/rustlib/src/rust/library/std/src/rt.rs",
            "/home/me/.cargo/registry/src/index.crates.io-6f17d22bba15001f/regex-1.0.0/src/lib.rs",
            "/home/me/.cargo/git/checkouts/crate-0123/0123/src/lib.rs",
            "/usr/include/c++/12/bits/stl_vector.h",
            "src/main.rs",
            "",
        ] {
            assert!(!is_own(foreign), "{foreign}");
        }
    }

    #[test]
    fn unchanged_own_sources_are_read_within_the_size() {
        let folder = TestFolder::new("sources");
        let mut profile = ProfileModel::default();
        let mut files = Vec::new();
        for (name, text) in [
            ("a.rs", "fn a() {}"),
            ("b.rs", "fn b() {}"),
            ("bytes.rs", "\u{0}"),
        ] {
            let path = folder.path().join(name);
            let bytes = if name == "bytes.rs" {
                &[0xff, 0xfe][..]
            } else {
                text.as_bytes()
            };
            std::fs::write(&path, bytes).expect("written");
            files.push(profile.intern(path.to_str().expect("UTF-8")));
        }
        files.push(profile.intern("/no/such/file.rs"));
        for &file in &files {
            let mut function = Function::new(file, FunctionKind::Native);
            function.file = Some(file);
            profile.intern_function(function);
        }
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("after 1970");
        let mut texts_at = |recorded_at: Duration, max_bytes| -> Vec<Option<String>> {
            profile.meta.start_epoch_ms = recorded_at.as_secs_f64() * 1e3;
            let sources = read_sources(&profile, max_bytes);
            let texts = files.iter().map(|file| sources.get(file));
            texts.map(|text| text.map(|text| text.0.clone())).collect()
        };
        let (a, b) = (Some("fn a() {}".to_owned()), Some("fn b() {}".to_owned()));
        let (later, earlier) = (now + Duration::from_secs(9), now - Duration::from_secs(9));
        assert_eq!(texts_at(later, 100), [a.clone(), b, None, None]);
        assert_eq!(texts_at(later, 9), [a, None, None, None]);
        assert_eq!(texts_at(later, 0), [None, None, None, None]);
        assert_eq!(
            texts_at(earlier, 100),
            [None, None, None, None],
            "changed since"
        );
    }
}
