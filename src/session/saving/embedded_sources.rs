//! Reads the sources of the program's own crates, so that the viewer can show them to the
//! recipients of the profile.
//!
//! A profile from a file may name any path. So a source is read only if the debug information of
//! its module, which is recognized by its build id, names the path, too. A source that is newer
//! than its module is left out: its lines would be other ones.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use crate::export::is_own_source;
use crate::model::{ModuleId, ProfileModel, TextId};
use crate::platform::{
    SharedFile, has_rights_of_another_user, is_memory_available, on_own_descriptors,
};
use crate::session::env::notices::notify;
use crate::symbols::source_paths;
use crate::util::SharedSort;

/// Maximum size of one source, in bytes. Larger ones are generated.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// A time of change, in seconds and nanoseconds.
type ChangeTime = (i64, i64);

/// The paths of a module's sources, and the module's time of change.
struct ModuleSources {
    paths: HashSet<String>,
    /// When the module was last changed.
    changed_at: ChangeTime,
}

/// Returns the sources of the program's own crates, up to this size together: their texts, by the
/// numbers of their names. The files with the most samples come first. Says how many are left out. A
/// program with more rights than the user who started it reads none: that user may have put links in
/// their places.
pub(crate) fn read_sources(profile: &ProfileModel, max_bytes: usize) -> HashMap<u32, String> {
    let mut sources = HashMap::new();
    if has_rights_of_another_user() {
        notify("embeds no sources: the program has more rights than the user who started it");
        return sources;
    }
    let mut modules: HashMap<ModuleId, Option<Arc<ModuleSources>>> = HashMap::new();
    let (mut left_bytes, mut left_out) = (max_bytes, 0);
    let files = files_by_samples(profile);
    if files.is_empty() {
        notify(
            "embeds no sources: got a profile without the names of source files, such as one that was \
             recorded in Gecko's format, expected one that was recorded as .processed.json",
        );
    }
    for (file, module) in files {
        let path = profile.text(file).to_owned();
        if !is_own_source(&path) {
            continue;
        }
        let module_sources = module.and_then(|module| {
            let known = modules.entry(module);
            let known = known.or_insert_with(|| sources_of_module(profile, module));
            known.clone()
        });
        let max_bytes = MAX_FILE_BYTES.min(left_bytes as u64);
        let text = module_sources
            .filter(|sources| max_bytes > 0 && sources.paths.contains(&path))
            .filter(|_| is_memory_available(2 * max_bytes as usize))
            .and_then(|sources| {
                let changed_at = sources.changed_at;
                on_own_descriptors(move || read_unchanged(Path::new(&path), max_bytes, changed_at))
            });
        match text {
            Some(text) => {
                left_bytes -= text.len();
                sources.insert(file.0, text);
            }
            None => left_out += 1,
        }
    }
    if left_out > 0 {
        notify(&format!(
            "left out {left_out} of {} sources: they are missing, newer than the program, not \
             named by its debug information, or larger than the limit",
            left_out + sources.len()
        ));
    }
    sources
}

/// Returns what the debug information of a module says, if its file is the one that was loaded.
fn sources_of_module(profile: &ProfileModel, module: ModuleId) -> Option<Arc<ModuleSources>> {
    let module = profile.module(module);
    let (path, build_id) = (module.path.clone(), module.code_id.clone()?);
    on_own_descriptors(move || {
        let path = Path::new(&path);
        let changed_at = change_time(&SharedFile::open_regular(path).ok()?)?;
        let paths = source_paths(path, &build_id)?;
        Some(Arc::new(ModuleSources { paths, changed_at }))
    })
}

/// Returns the files of the profile's functions with their modules, those with the most samples
/// first.
fn files_by_samples(profile: &ProfileModel) -> Vec<(TextId, Option<ModuleId>)> {
    let file_of = |frame| profile.function(profile.frame(frame).function).file;
    let mut files: HashMap<TextId, (u64, Option<ModuleId>)> = HashMap::new();
    for function in profile.functions() {
        if let Some(file) = function.file {
            let (_, module) = files.entry(file).or_default();
            *module = module.or(function.module);
        }
    }
    for thread in &profile.threads {
        for sample in thread.samples.iter() {
            let frame = sample.stack.map(|stack| profile.stack(stack).1);
            if let Some(file) = frame.and_then(file_of) {
                let (samples, _) = files.entry(file).or_default();
                *samples = samples.saturating_add(thread.samples.count(&sample));
            }
        }
    }
    let mut files: Vec<(TextId, (u64, Option<ModuleId>))> = files.into_iter().collect();
    files.shared_sort_by_key(|&(file, (samples, _))| {
        (std::cmp::Reverse(samples), profile.text(file))
    });
    let files = files.into_iter();
    files.map(|(file, (_, module))| (file, module)).collect()
}

/// Returns the text of a file that is not larger than `max_bytes`, and not newer than its module.
/// Also returns `None` if the file is missing, not regular, not UTF-8, or changes during the read.
fn read_unchanged(path: &Path, max_bytes: u64, module_changed_at: ChangeTime) -> Option<String> {
    let file = SharedFile::open_regular(path).ok()?;
    let is_older = || change_time(&file).is_some_and(|changed_at| changed_at <= module_changed_at);
    let bytes = u64::try_from(file.status().ok()?.st_size).ok()?;
    if !is_older() || bytes > max_bytes {
        return None;
    }
    let mut text = String::new();
    // The file may have grown since.
    let read = (&file).take(max_bytes + 1).read_to_string(&mut text).ok()?;
    (read as u64 <= max_bytes && is_older()).then_some(text)
}

fn change_time(file: &SharedFile) -> Option<ChangeTime> {
    let status = file.status().ok()?;
    Some((status.st_mtime, status.st_mtime_nsec))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Function, FunctionKind, Module};
    use crate::platform::TestFolder;

    /// Returns the texts that a profile gets of a library's source, and of a file that the library
    /// does not name. `change` may change the source after the library was compiled.
    fn texts(
        name: &str,
        build_id: &str,
        max_bytes: usize,
        change: fn(&Path),
    ) -> [Option<String>; 2] {
        let folder = TestFolder::new(name);
        let flags = ["-g", "-Wl,--build-id=0x0123456789abcdef"];
        let library = folder.compile("own", "function", &flags);
        let other = folder.path().join("other.c");
        std::fs::write(&other, "secret").expect("written");
        let source = folder.path().join("source.c");
        change(&source);
        let mut profile = ProfileModel::default();
        let module = ModuleId(0);
        profile.modules.push(Module {
            process: 0,
            start: 0,
            end: 0,
            offset: 0,
            name: String::new(),
            path: library.to_str().expect("UTF-8").to_owned(),
            debug_name: String::new(),
            debug_path: String::new(),
            breakpad_id: String::new(),
            code_id: Some(build_id.to_owned()),
            arch: None,
        });
        let files = [&source, &other].map(|path| {
            let file = profile.intern(path.to_str().expect("UTF-8"));
            let mut function = Function::new(file, FunctionKind::Native);
            (function.file, function.module) = (Some(file), Some(module));
            profile.intern_function(function);
            file
        });
        let sources = read_sources(&profile, max_bytes);
        files.map(|file| sources.get(&file.0).cloned())
    }

    const BUILD_ID: &str = "0123456789abcdef";

    #[test]
    fn source_is_read_only_if_its_module_names_it() {
        let [source, other] = texts("sources", BUILD_ID, 1_000, |_| ());
        assert!(source.is_some_and(|text| text.contains("int enter(int x)")));
        assert_eq!(other, None, "the library does not name it");
        let of_other_build = texts("sources-id", "fedcba9876543210", 1_000, |_| ());
        assert_eq!(of_other_build, [None, None]);
    }

    #[test]
    fn source_that_is_newer_than_its_module_or_too_large_is_left_out() {
        let newer = texts("sources-newer", BUILD_ID, 1_000, |source| {
            let later = std::time::SystemTime::now() + std::time::Duration::from_secs(9);
            let file = std::fs::File::options()
                .append(true)
                .open(source)
                .expect("the source");
            file.set_modified(later).expect("a time");
        });
        assert_eq!(newer, [None, None]);
        assert_eq!(texts("sources-size", BUILD_ID, 10, |_| ()), [None, None]);
        let pipe = texts("sources-pipe", BUILD_ID, 1_000, |source| {
            std::fs::remove_file(source).expect("removed");
            let made = std::process::Command::new("mkfifo").arg(source).status();
            assert!(made.expect("a pipe").success());
        });
        assert_eq!(pipe, [None, None]);
    }
}
