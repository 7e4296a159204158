//! Opens, names and ends the crash file of a session.
//!
//! While its process lives, the file is locked, and named in its head. So the next start with the
//! same path knows whether it belongs to another process that runs, or was left by one that ended
//! without stopping the profiler. The latter is renamed, not overwritten.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::buffer::{AreaError, AreaHead, AreaOwner, CrashArea};
use crate::platform::{
    FileDescriptor, SharedFile, TemporaryFile, current_process_id, follow_links,
    is_memory_available, map_memory_file, map_new_file, process_start_ticks,
};
use crate::session::env::notices;
use crate::session::saving::save::expand_path;
use crate::session::saving::shutdown_file::with_process_id;
use crate::state::{
    CORE_PS, CrashFacts, CurrentFacts, Fact, Session, describe_session, set_current_facts,
};
use crate::types::ProcessId;
use crate::unwind::registered_code;
use crate::util::{Guard, PsCell, PsLock, SharedMemory};

/// Maximum number of files of ended processes that are kept for one path. The oldest are removed.
const MAX_KEPT: usize = 8;
/// Maximum number of files of a folder that are looked at to find them.
const MAX_FILES: usize = 10_000;

/// The file of the running session.
struct OpenFile {
    file: TemporaryFile,
    /// `None` for a file in memory.
    path: Option<PathBuf>,
    process: ProcessId,
}

/// `None` without a crash file. A thread that changes it also holds the life-cycle lock.
static OPEN: PsCell<Option<OpenFile>> = PsCell::new(None);

/// Begins the crash file that the session's settings ask for, and lets the session's facts go
/// there. Without it, the session runs as well; then its log and a notice say why.
///
/// `types` are the types of markers that exist already. The caller holds the life-cycle lock.
pub(crate) fn begin(session: &mut Session, types: &[Fact]) {
    let Some(asked) = session.settings.crash_file.clone() else {
        if session.settings.has_parent {
            begin_in_memory(session, types);
        }
        return;
    };
    remove_oldest_left(&asked);
    match open(session, &expand_path(&asked), types) {
        Ok(facts) => {
            session.crash_facts = Some(Arc::clone(&facts));
            set_current_facts(Some(facts));
        }
        Err(error) => {
            let notice = format!("{error}; the session has no crash file");
            notices::notify(&notice);
            session.log.add("the crash file could not be created");
        }
    }
}

/// Begins a crash file in memory, which the parent process reads if this process is killed. The
/// session runs even if memory for the file is lacking.
fn begin_in_memory(session: &mut Session, types: &[Fact]) {
    let capacity_bytes = session.settings.capacity_bytes;
    let begun = CrashArea::file_bytes(capacity_bytes).and_then(|bytes| {
        // The addresses that it takes must not be missing elsewhere.
        is_memory_available(2 * bytes).then_some(())?;
        let file = TemporaryFile::create_in_memory()
            .and_then(TemporaryFile::above_standard_streams)
            .ok()?;
        let memory = map_memory_file(&file, bytes).ok()?;
        let facts = describe(session, types, memory)?;
        Some((file, facts))
    });
    let Some((file, facts)) = begun else {
        session
            .log
            .add("the memory that the parent process reads could not be created");
        return;
    };
    keep_open(file, None);
    session.crash_facts = Some(Arc::clone(&facts));
    set_current_facts(Some(facts));
}

fn cannot(path: &Path, got: &dyn std::fmt::Display, expected: &str) -> String {
    format!(
        "cannot use {} as a crash file: got {got}, expected {expected}",
        path.display()
    )
}

fn open(session: &Session, path: &Path, types: &[Fact]) -> Result<Arc<CrashFacts>, String> {
    let failed = |error: io::Error| {
        let got = format!("\"{error}\"");
        cannot(path, &got, "a file that can be created and mapped")
    };
    let path = follow_links(path.to_owned()).map_err(failed)?;
    let free = make_room(&path)?;
    let capacity_bytes = session.settings.capacity_bytes;
    let too_large = || failed(io::ErrorKind::OutOfMemory.into());
    let bytes = CrashArea::file_bytes(capacity_bytes).ok_or_else(too_large)?;
    let mut file = TemporaryFile::create_for(&free).map_err(failed)?;
    let memory = map_new_file(&file, bytes).map_err(failed)?;
    let facts = describe(session, types, memory).ok_or_else(too_large)?;
    let published = publish(&mut file, &free).map_err(failed)?;
    // Without the new lock, the process's id in the file tells that it is in use.
    let _ = file.lock_without_mapping(&published);
    let file = file.above_standard_streams().map_err(|error| {
        let _ = fs::remove_file(&published);
        failed(error)
    })?;
    keep_open(file, Some(published));
    Ok(facts)
}

/// Begins a file, whose memory is zeroed, and describes the session in it. Returns `None` without
/// memory.
fn describe(session: &Session, types: &[Fact], memory: SharedMemory) -> Option<Arc<CrashFacts>> {
    let capacity_bytes = session.settings.capacity_bytes;
    let owner = AreaOwner {
        process: current_process_id().to_number().unsigned_abs().into(),
        ticks: process_start_ticks(current_process_id()).unwrap_or(0),
    };
    let area = CrashArea::begin(memory, capacity_bytes, session.generation, owner);
    let facts = Arc::new(CrashFacts::new(area?));
    facts.add_all(&describe_session(session));
    {
        let lock = PsLock::acquire();
        if let Some(core) = CORE_PS.get(&lock) {
            facts.add_process(core);
            core.pages.iter().for_each(|page| facts.add_page(page));
        }
    }
    session
        .counters
        .iter()
        .for_each(|counter| facts.add_counter(counter));
    facts.follow();
    facts.add_all(types);
    facts.add_application_counters();
    registered_code().for_each(&mut |code| facts.add_code(code));
    Some(facts)
}

fn keep_open(file: TemporaryFile, path: Option<PathBuf>) {
    let opened = OpenFile {
        file,
        path,
        process: current_process_id(),
    };
    let before = OPEN.get_mut(&mut PsLock::acquire()).replace(opened);
    drop(before);
}

/// Returns the descriptor of the running session's crash file, for the parent process.
pub(crate) fn open_crash_file() -> Option<FileDescriptor> {
    let lock = PsLock::acquire();
    let open = OPEN.get(&lock).as_ref()?;
    let is_own = open.process == current_process_id();
    is_own.then(|| open.file.as_file().descriptor().ok())?
}

/// Gives the file its name. Another process may have taken it in the meantime: then the name gets
/// the process id.
fn publish(file: &mut TemporaryFile, path: &Path) -> io::Result<PathBuf> {
    match file.publish_new(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let path = with_process_id(path, current_process_id().to_number());
            file.publish_new(&path).map(|()| path)
        }
        published => published.map(|()| path.to_owned()),
    }
}

/// Ends the crash file of the session that ends now, and removes it. The caller holds the
/// life-cycle lock.
pub(crate) fn end() {
    set_current_facts(None);
    remove();
}

/// Removes the file from its folder, if it is still there: its content was saved, or is not wanted.
pub(crate) fn remove() {
    let process = current_process_id();
    let open = OPEN
        .get_mut(&mut PsLock::acquire())
        .take_if(|open| open.process == process);
    if let Some(open) = open
        && let Some(path) = open.path
        && open.file.is_at(&path)
    {
        let _ = fs::remove_file(&path);
    }
}

/// Closes the descriptor of the parent's file in the child of a fork: otherwise the file's lock
/// would outlive the parent. Leaves the file itself unchanged.
pub(crate) fn forget_in_child(mut facts: Guard<'static, CurrentFacts>, lock: &mut PsLock) {
    // Leaked: a thread of the parent may have been using it.
    std::mem::forget(facts.take());
    drop(OPEN.get_mut(lock).take());
}

/// Returns a path where no file is: `path` itself, after a file of a process that has ended was
/// renamed, or with this process's id if another process uses it.
fn make_room(path: &Path) -> Result<PathBuf, String> {
    let own = with_process_id(path, current_process_id().to_number());
    for candidate in [path, &own] {
        match occupant(candidate)? {
            Occupant::Nothing => return Ok(candidate.to_owned()),
            Occupant::Left(process, file) if is_at(&file, candidate) => {
                keep_aside(candidate, process)?;
                return Ok(candidate.to_owned());
            }
            // Another process has renamed it in the meantime, and uses the name.
            Occupant::Left(..) => {}
            Occupant::Running => {}
        }
    }
    Err(cannot(
        path,
        &"files of processes that run",
        "a path of its own for each process; a %p in it stands for the process id",
    ))
}

/// What is at a path.
#[derive(Debug)]
enum Occupant {
    Nothing,
    /// The crash file of a process that runs.
    Running,
    /// The crash file that a process with this id has left. It is locked, so that no other process
    /// renames it, too.
    Left(u64, SharedFile),
}

fn occupant(path: &Path) -> Result<Occupant, String> {
    let expected = "no file, or a crash file of gekkota";
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Occupant::Nothing),
        Err(error) => return Err(cannot(path, &format!("\"{error}\""), expected)),
    };
    if !metadata.is_file() {
        return Err(cannot(path, &"something that is not a file", expected));
    }
    let opened = SharedFile::open(OpenOptions::new().read(true).write(true), path);
    let file = opened.map_err(|error| cannot(path, &format!("\"{error}\""), expected))?;
    let Some(file) = file.lock() else {
        return Ok(Occupant::Running);
    };
    match read_head(&file) {
        Ok(head) if is_of_other_running_process(head.owner()) => Ok(Occupant::Running),
        Ok(head) => Ok(Occupant::Left(head.owner().process, file)),
        Err(AreaError::Version(_)) => Ok(Occupant::Left(0, file)),
        Err(error) => Err(cannot(path, &error, expected)),
    }
}

fn read_head(file: &SharedFile) -> Result<AreaHead, AreaError> {
    let bytes = u64::try_from(file.status()?.st_size).unwrap_or(0);
    AreaHead::read(&|target, position| file.read_at(target, position), bytes)
}

/// Returns whether the process that wrote a file still runs.
pub(crate) fn is_running(owner: AreaOwner) -> bool {
    let process = i32::try_from(owner.process).ok().filter(|id| *id > 0);
    let ticks = process.and_then(|id| process_start_ticks(ProcessId::from_number(id)));
    ticks.is_some_and(|ticks| ticks == owner.ticks)
}

/// Returns whether another process than this one wrote a file and still runs. A program that
/// replaces itself by `exec` has the id and the start of the one before; a file that it uses is
/// locked.
fn is_of_other_running_process(owner: AreaOwner) -> bool {
    let own = current_process_id().to_number().unsigned_abs();
    owner.process != u64::from(own) && is_running(owner)
}

fn is_at(file: &SharedFile, path: &Path) -> bool {
    let named = fs::symlink_metadata(path);
    named.is_ok_and(|named| file.is_file_of(&named))
}

/// Renames the file that a process has left, and says so.
fn keep_aside(path: &Path, process: u64) -> Result<(), String> {
    let mut names = (0..100).map(|attempt| kept_path(path, process, attempt));
    let free = names.find(|path| fs::symlink_metadata(path).is_err());
    let kept = free.ok_or_else(|| cannot(path, &"too many kept files", "a free name"))?;
    fs::rename(path, &kept).map_err(|error| {
        cannot(
            path,
            &format!("\"{error}\""),
            "a folder where files can be renamed",
        )
    })?;
    remove_oldest_kept(path);
    notices::notify(&format!(
        "process {process} ended without stopping the profiler; its data are kept in {}, and \
         gekkota::Profile::rescue or gekkota's example rescue makes a profile of them",
        kept.display()
    ));
    Ok(())
}

/// The part of a kept file's name before the process id.
const KEPT: &str = ".left-by-";

fn kept_path(path: &Path, process: u64, attempt: u32) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!("{KEPT}{process}"));
    if attempt > 0 {
        name.push(format!("-{attempt}"));
    }
    path.with_file_name(name)
}

/// Removes the oldest files that were kept for a path, beyond [`MAX_KEPT`].
fn remove_oldest_kept(path: &Path) {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        return;
    };
    let begin = format!("{name}{KEPT}");
    let is_kept = |name: &OsStr| name.to_str().is_some_and(|name| name.starts_with(&begin));
    for path in oldest_beyond_kept(path, is_kept) {
        // Only a crash file is removed, whatever its name is.
        let file = SharedFile::open_regular(&path);
        if file.is_ok_and(|file| read_head(&file).is_ok()) {
            let _ = fs::remove_file(path);
        }
    }
}

/// Removes the oldest files that ended processes have left for a path whose name has the process
/// id, beyond [`MAX_KEPT`]: no later start has the same path, and renames them.
fn remove_oldest_left(asked: &Path) {
    /// Takes the place of the process id. No path contains this character.
    const MARK: char = '\0';
    let marked = asked
        .to_str()
        .map(|text| expand_path(Path::new(&text.replacen("%p", &MARK.to_string(), 1))));
    let Some(marked) = marked else {
        return;
    };
    let name = marked.file_name().and_then(|name| name.to_str());
    // Without the mark, every start has the same path, or its own folder.
    let Some((before, after)) = name.and_then(|name| name.split_once(MARK)) else {
        return;
    };
    let is_of_pattern = |name: &OsStr| {
        let process = name.to_str().and_then(|name| {
            let rest = name.strip_prefix(before)?;
            rest.strip_suffix(after)
        });
        process.is_some_and(|id| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()))
    };
    for path in oldest_beyond_kept(&marked, is_of_pattern) {
        // Files of another kind, and those that a process uses, stay.
        if let Ok(Occupant::Left(_, file)) = occupant(&path)
            && is_at(&file, &path)
        {
            let _ = fs::remove_file(path);
        }
    }
}

/// Returns the files of a folder whose names are of a kind, the oldest first, without the newest
/// [`MAX_KEPT`]. `path` is any path in that folder.
fn oldest_beyond_kept(path: &Path, is_of_kind: impl Fn(&OsStr) -> bool) -> Vec<PathBuf> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let entries = entries.take(MAX_FILES).filter_map(Result::ok);
    let mut files: Vec<_> = entries
        .filter(|entry| is_of_kind(&entry.file_name()))
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    files.sort_unstable();
    files.truncate(files.len().saturating_sub(MAX_KEPT));
    files.into_iter().map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::TestFolder;

    #[test]
    fn file_that_is_no_crash_file_is_refused() {
        let folder = TestFolder::new("crash-occupied");
        let path = folder.path().join("file");
        assert!(matches!(occupant(&path), Ok(Occupant::Nothing)));
        fs::write(&path, b"something else").expect("written");
        let error = occupant(&path).expect_err("another file");
        assert!(
            error.contains("got another kind of file, expected a crash file"),
            "{error}"
        );
        assert!(fs::read(&path).is_ok_and(|bytes| bytes == b"something else"));
        assert!(occupant(folder.path()).is_err());
    }

    #[test]
    fn oldest_kept_files_that_are_no_crash_files_stay() {
        let folder = TestFolder::new("crash-kept");
        let path = folder.path().join("file");
        for process in 0..20 {
            fs::write(kept_path(&path, process, 0), b"not ours").expect("written");
        }
        remove_oldest_kept(&path);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 20);
    }
}
