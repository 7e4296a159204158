//! The file for the last profile of the process, and which process it belongs to.
//!
//! Programs that the process starts inherit the variable that names the file. Without `%p` in the
//! name, each of them would overwrite the files of the others. So the first process marks the file
//! as its own, in an environment variable that its children inherit. A child adds its process id to
//! the name. A process that could not set the mark, because it already had threads, notices at its
//! end that another one has written the file in the meantime, and adds its process id then.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::platform::{current_process_id, set_variable_if_only_thread};
use crate::session::env::environment;
use crate::session::saving::save::expand_path;
use crate::util::{PsCell, PsLock};

/// Set for child processes: the id of the process that the file belongs to, a colon, and the file.
/// The prefix differs from that of the profiler's variables, because no user is to set this one.
const OWNER: &str = "GEKKOTA_SHUTDOWN_OWNER";

/// What a process may know of a file before it ends.
#[derive(Clone)]
struct Claim {
    /// The path as given, not expanded.
    path: PathBuf,
    /// The process that made the claim. A child of `fork` inherits the claim.
    process: i32,
    /// The other process that the file belongs to.
    owner: Option<i32>,
    /// The file that the path stood for, and its content.
    file: PathBuf,
    content: Option<Content>,
    claimed_at: SystemTime,
}

/// The time of change and the length of a file, which show a change of its content. `None` in their
/// place means that the file is missing, empty or special.
type Content = (SystemTime, u64);

static CLAIM: PsCell<Option<Claim>> = PsCell::new(None);

fn content_of(path: &Path) -> Option<Content> {
    let metadata = fs::metadata(path).ok()?;
    let has_content = metadata.is_file() && metadata.len() > 0;
    has_content.then(|| Some((metadata.modified().ok()?, metadata.len())))?
}

/// Claims the file for this process, unless it belongs to another one.
pub(crate) fn claim(path: &Path) {
    let process = current_process_id().to_number();
    let mark = environment::variable(OWNER);
    let owner = mark
        .and_then(|mark| owner_in(&mark, path))
        .or_else(|| forking_owner(path));
    if owner.is_none() {
        // The variable is missing in the children of a process that already has threads.
        set_variable_if_only_thread(OWNER, &mark_of(process, path));
    }
    let file = expand_path(path);
    let claim = Claim {
        path: path.to_owned(),
        process,
        owner: owner.filter(|&owner| owner != process),
        content: content_of(&file),
        file,
        claimed_at: SystemTime::now(),
    };
    *CLAIM.get_mut(&mut PsLock::acquire()) = Some(claim);
}

/// Returns whether this process has claimed this path.
pub(crate) fn is_claimed(path: &Path) -> bool {
    let process = current_process_id().to_number();
    let claim = CLAIM.get(&PsLock::acquire()).clone();
    claim.is_some_and(|claim| claim.path == path && claim.process == process)
}

/// Returns the parent process, if this one is the child of its fork and the file was the parent's.
fn forking_owner(path: &Path) -> Option<i32> {
    let claim = CLAIM.get(&PsLock::acquire()).clone()?;
    (claim.path == path).then(|| claim.owner.unwrap_or(claim.process))
}

fn mark_of(process: i32, path: &Path) -> OsString {
    let mut mark = OsString::from(format!("{process}:"));
    mark.push(path);
    mark
}

/// Returns the process that the file belongs to by this mark.
fn owner_in(mark: &OsString, path: &Path) -> Option<i32> {
    let (process, _) = mark.to_str()?.split_once(':')?;
    let process = process.parse().ok()?;
    (*mark == mark_of(process, path)).then_some(process)
}

/// Returns whether this process is the child of a fork, and its parent claimed the file.
pub(crate) fn is_forked() -> bool {
    let process = current_process_id().to_number();
    let claim = CLAIM.get(&PsLock::acquire()).clone();
    claim.is_some_and(|claim| claim.process != process)
}

/// Returns where to save the last profile, so that it replaces no file of another process, and the
/// reason if that is not the file that was asked for.
pub(crate) fn destination(path: &Path) -> (PathBuf, Option<String>) {
    let claim = CLAIM.get(&PsLock::acquire()).clone();
    let reason = claim
        .filter(|claim| claim.path == path && !has_own_id(path))
        .and_then(|claim| reason_to_step_aside(&claim, &expand_path(path)));
    let path = match &reason {
        Some(_) => with_process_id(path, current_process_id().to_number()),
        None => path.to_owned(),
    };
    (path, reason)
}

/// Returns whether the name contains the process id.
pub(crate) fn has_own_id(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.contains("%p"))
}

fn reason_to_step_aside(claim: &Claim, path: &Path) -> Option<String> {
    let process = current_process_id().to_number();
    let forked = (claim.process != process).then_some(claim.process);
    if let Some(owner) = claim.owner.or(forked) {
        // The name or the type of this process may tell the files apart, but its siblings may have
        // the same.
        let reason = match claim.file == path {
            true => format!(
                "because {} belongs to process {owner}, which started this one",
                path.display()
            ),
            false => format!(
                "because process {owner}, which started this one, may have started others of this \
                 name and type"
            ),
        };
        return Some(format!(
            "{reason}; a %p in the name stands for the process id"
        ));
    }
    let content = content_of(path);
    // The name or type of the process may have changed since, so that this is another file.
    let is_changed = |(modified, _): Content| match claim.file == path {
        true => content != claim.content,
        false => modified > claim.claimed_at,
    };
    content.is_some_and(is_changed).then(|| {
        format!(
            "because {} was written while this process ran; a %p in the name stands for the \
             process id",
            path.display()
        )
    })
}

/// Notes that this process has written a file, so that it may write it again. `saved` is the
/// expanded path.
pub(crate) fn note_saved(saved: &Path) {
    let claimed = CLAIM.get(&PsLock::acquire()).clone();
    let is_claimed = claimed.is_some_and(|claim| expand_path(&claim.path) == saved);
    let content = is_claimed.then(|| content_of(saved)).flatten();
    if is_claimed && let Some(claim) = CLAIM.get_mut(&mut PsLock::acquire()) {
        claim.file = saved.to_owned();
        claim.content = content;
    }
}

/// Returns the path with a process id before the ending, which selects the format.
pub(crate) fn with_process_id(path: &Path, process: i32) -> PathBuf {
    let Some(name) = path.file_name() else {
        return path.to_owned();
    };
    let Some(name) = name.to_str() else {
        let mut name = name.to_owned();
        name.push(format!(".{process}"));
        return path.with_file_name(name);
    };
    let (stem, compression) = match name.strip_suffix(".gz") {
        Some(stem) => (stem, ".gz"),
        None => (name, ""),
    };
    // A dot in front hides a file, and begins no ending.
    let at = stem.rfind('.').filter(|&at| at > 0).unwrap_or(stem.len());
    let (stem, ending) = stem.split_at(at);
    path.with_file_name(format!("{stem}.{process}{ending}{compression}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_id_comes_before_the_ending() {
        for (given, expected) in [
            ("/a.b/out.json", "/a.b/out.7.json"),
            ("out.json.gz", "out.7.json.gz"),
            ("my.flame.svg", "my.flame.7.svg"),
            ("out", "out.7"),
            (".out", ".out.7"),
            (".gz", ".7.gz"),
        ] {
            let named = with_process_id(Path::new(given), 7);
            assert_eq!(named, Path::new(expected), "{given}");
        }
    }

    #[test]
    fn mark_names_the_owner_of_its_own_file_only() {
        let path = Path::new("/a:b/out.json");
        let mark = mark_of(12, path);
        assert_eq!(owner_in(&mark, path), Some(12));
        assert_eq!(owner_in(&mark, Path::new("/a:b/out.json.gz")), None);
        for other in ["", "12", "x:/a:b/out.json", ":/a:b/out.json"] {
            assert_eq!(owner_in(&OsString::from(other), path), None, "{other}");
        }
    }
}
