//! The command line, and what can be wrong with it before any work is done.

use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::files;

pub(crate) const USAGE: &str = "\
Profiles threads that search and compress the text files of a folder.

usage: cargo run --release --example quick_start [-- [PATH] [--seconds N] [--out FILE]]

  PATH         the folder; without it, Rust sources that are on this machine
  --seconds N  for how long, from 0.1 to 3600; without it, 5
  --out FILE   the profile's file, compressed if it ends in .gz, %p in it is the process's id;
               without it, quick_start.profile.json
  --help       prints this
";

const ACCEPTED: &str = "accepted are [PATH] [--seconds N] [--out FILE] and --help";
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

/// The command, with everything checked that would else fail when the work is done; or what is wrong, for people.
pub(crate) fn parse(mut arguments: impl Iterator<Item = OsString>) -> Result<Command, String> {
    let mut folder = None;
    let mut time = Duration::from_secs(5);
    let mut out = OsString::from("quick_start.profile.json");
    let mut options_may_follow = true;
    while let Some(argument) = arguments.next() {
        let is_option = options_may_follow && argument.as_encoded_bytes().starts_with(b"-");
        if !is_option {
            if folder.replace(PathBuf::from(&argument)).is_some() {
                return Err(format!("{argument:?} is a second PATH; {ACCEPTED}"));
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
            value.ok_or_else(|| format!("{name} has nothing after it; accepted is {name} {what}"))
        };
        match name.as_str() {
            "-h" | "--help" => return Ok(Command::Help),
            "--seconds" => time = parse_seconds(&value("N")?)?,
            "--out" => out = value("FILE")?,
            _ => return Err(format!("{argument:?} is no option; {ACCEPTED}")),
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

/// `--name=value` in two.
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
            let (least, most) = (SECONDS.start(), SECONDS.end());
            Err(format!(
                "--seconds is {text:?}; accepted is a number from {least} to {most}"
            ))
        }
    }
}

fn check_folder(folder: PathBuf) -> Result<PathBuf, String> {
    let accepted = "accepted is a folder with text files";
    if let Err(error) = fs::read_dir(&folder) {
        return Err(format!(
            "PATH {folder:?} cannot be read: {error}; {accepted}"
        ));
    }
    match files::walk_folder(&folder, 1, None).is_empty() {
        true => Err(format!("PATH {folder:?} has no text files; {accepted}")),
        false => Ok(folder),
    }
}

/// What the profiler makes of the name, so that the name that is printed is the file's.
fn with_process_id(out: &OsStr) -> PathBuf {
    match out.to_str() {
        Some(text) => text
            .replacen("%p", &std::process::id().to_string(), 1)
            .into(),
        None => out.into(),
    }
}

/// The profile is written beside its place and moved there, so the folder is what has to be writable.
fn check_out(out: &Path) -> Result<(), String> {
    let accepted = "accepted is the name of a file in a folder that can be written to";
    let problem = |what: &str| Err(format!("--out is {out:?}, {what}; {accepted}"));
    let Some(name) = out
        .file_name()
        .filter(|_| !out.as_os_str().as_encoded_bytes().ends_with(b"/"))
    else {
        return problem("which names no file");
    };
    if fs::metadata(out).is_ok_and(|metadata| !metadata.is_file()) {
        return problem("which is there and is no file");
    }
    if out.extension().is_some_and(|extension| extension == "gz") && !cfg!(feature = "gzip") {
        return problem("and this build lacks the feature gzip");
    }
    let mut probe_name = OsString::from(".");
    probe_name.push(name);
    probe_name.push(format!(".{}-probe", std::process::id()));
    let probe = out.with_file_name(probe_name);
    match OpenOptions::new().write(true).create_new(true).open(&probe) {
        Ok(_) => {
            // A probe that stays is no reason not to profile.
            let _ = fs::remove_file(&probe);
            Ok(())
        }
        Err(error) => problem(&format!("which cannot be written: {error}")),
    }
}
