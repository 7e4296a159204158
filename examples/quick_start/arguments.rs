//! Parses and checks the command line, before any work is done.

use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gekkota::profile::Format;

use crate::files;

pub(crate) const USAGE: &str = "\
Searches and compresses the text files of a folder with several threads, profiles these threads,
and prints a summary of where their time went.

usage: cargo run --release --example quick_start -- [PATH] [--seconds N] [--out FILE]

  PATH         folder with text files; default: Rust sources that are on this machine
  --seconds N  duration in seconds, from 0.1 to 3600; default: 5
  --out FILE   file for the profile, compressed if its name ends in .gz; %p stands for the
               process id; default: quick_start.profile.json
  --help       print this help
";

const EXPECTED: &str = "expected [PATH] [--seconds N] [--out FILE] or --help";
const SECONDS: std::ops::RangeInclusive<f64> = 0.1..=3600.0;

pub(crate) enum Command {
    Help,
    Profile(Options),
}

pub(crate) struct Options {
    pub(crate) folder: PathBuf,
    pub(crate) time: Duration,
    pub(crate) out: PathBuf,
}

/// Returns the command, or an error message for the user. Checks everything that would otherwise
/// fail only after the work is done.
pub(crate) fn parse(mut arguments: impl Iterator<Item = OsString>) -> Result<Command, String> {
    let mut folder = None;
    let mut time = Duration::from_secs(5);
    let mut out = OsString::from("quick_start.profile.json");
    let mut options_may_follow = true;
    while let Some(argument) = arguments.next() {
        let is_option = options_may_follow && argument.as_encoded_bytes().starts_with(b"-");
        if !is_option {
            if folder.replace(PathBuf::from(&argument)).is_some() {
                return Err(format!(
                    "cannot use two folders: got {argument:?} after the first PATH, {EXPECTED}"
                ));
            }
            continue;
        }
        if argument == "--" {
            options_may_follow = false;
            continue;
        }
        let (name, mut attached) = split_option(&argument);
        let mut value = |what: &str| {
            let value = attached.take().or_else(|| arguments.next());
            value.ok_or_else(|| format!("cannot use {name}: got no value, expected {name} {what}"))
        };
        match name.as_str() {
            "-h" | "--help" => return Ok(Command::Help),
            "--seconds" => time = parse_seconds(&value("N")?)?,
            "--out" => out = value("FILE")?,
            _ => {
                return Err(format!(
                    "cannot read the command line: got {argument:?}, {EXPECTED}"
                ));
            }
        }
    }
    let out = with_process_id(&out);
    check_out(&out)?;
    let folder = match folder {
        Some(folder) => check_folder(folder)?,
        None => files::default_folder()?,
    };
    Ok(Command::Profile(Options { folder, time, out }))
}

/// Splits `--name=value` into name and value.
fn split_option(argument: &OsStr) -> (String, Option<OsString>) {
    match argument
        .to_str()
        .and_then(|argument| argument.split_once('='))
    {
        Some((name, value)) => (name.to_owned(), Some(value.into())),
        None => (argument.to_string_lossy().into_owned(), None),
    }
}

fn parse_seconds(text: &OsStr) -> Result<Duration, String> {
    let seconds = text.to_str().and_then(|text| text.parse::<f64>().ok());
    match seconds.filter(|seconds| SECONDS.contains(seconds)) {
        Some(seconds) => Ok(Duration::from_secs_f64(seconds)),
        None => {
            let (min, max) = (SECONDS.start(), SECONDS.end());
            Err(format!(
                "cannot use --seconds: got {text:?}, expected a number from {min} to {max}"
            ))
        }
    }
}

fn check_folder(folder: PathBuf) -> Result<PathBuf, String> {
    let expected = "expected a folder with text files";
    if let Err(error) = fs::read_dir(&folder) {
        return Err(format!("cannot read PATH {folder:?}: {error}; {expected}"));
    }
    match files::walk_folder(&folder, 1, None).is_empty() {
        true => Err(format!(
            "cannot use PATH {folder:?}: got no text files, {expected}"
        )),
        false => Ok(folder),
    }
}

/// Replaces `%p` by the process id as the profiler does, so that the printed name is the real one.
fn with_process_id(out: &OsStr) -> PathBuf {
    match out.to_str() {
        Some(text) => text
            .replacen("%p", &std::process::id().to_string(), 1)
            .into(),
        None => out.into(),
    }
}

/// Checks that the profile can be written. The profiler writes a temporary file in the same folder
/// and renames it, so the folder has to be writable.
fn check_out(out: &Path) -> Result<(), String> {
    let expected = "expected the name of a file in a writable folder";
    let problem = |what: &str| Err(format!("cannot write --out {out:?}: {what}; {expected}"));
    let Some(name) = out
        .file_name()
        .filter(|_| !out.as_os_str().as_encoded_bytes().ends_with(b"/"))
    else {
        return problem("got a folder");
    };
    if fs::metadata(out).is_ok_and(|metadata| !metadata.is_file()) {
        return problem("it exists and is not a regular file");
    }
    if Format::of_path(out).is_none() {
        return problem("its ending stands for no format");
    }
    if out.extension().is_some_and(|extension| extension == "gz") && !cfg!(feature = "gzip") {
        return problem("this build lacks the feature gzip");
    }
    let mut probe_name = OsString::from(".");
    probe_name.push(name);
    probe_name.push(format!(".{}-probe", std::process::id()));
    let probe = out.with_file_name(probe_name);
    match OpenOptions::new().write(true).create_new(true).open(&probe) {
        Ok(_) => {
            // A leftover probe file does no harm, so an error here is ignored.
            let _ = fs::remove_file(&probe);
            Ok(())
        }
        Err(error) => problem(&error.to_string()),
    }
}
