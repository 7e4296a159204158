//! Makes a profile of the crash file that a killed or crashed program has left.
//!
//! ```text
//! MOZ_PROFILER_STARTUP=1 MOZ_PROFILER_CRASH_FILE=/tmp/crash your-program
//! cargo run --release --example rescue -- [--remove] /tmp/crash [out.json]
//! ```
//!
//! With `--remove`, the crash file is removed once the profile is saved.

use std::path::PathBuf;
use std::process::ExitCode;

use gekkota::Profile;

fn main() -> ExitCode {
    let is_option = |argument: &PathBuf| argument.to_string_lossy().starts_with('-');
    let (options, files): (Vec<_>, Vec<_>) = std::env::args_os()
        .skip(1)
        .map(PathBuf::from)
        .partition(is_option);
    let removes = !options.is_empty();
    let mut arguments = files.into_iter();
    let (Some(file), true) = (
        arguments.next(),
        options
            .iter()
            .all(|option| option.as_os_str() == "--remove"),
    ) else {
        eprintln!(
            "usage: rescue [--remove] <crash file> [<profile, by default the crash file with .json>]"
        );
        return ExitCode::FAILURE;
    };
    let out = arguments.next().unwrap_or_else(|| {
        let mut name = file.clone().into_os_string();
        name.push(".json");
        name.into()
    });
    let profile = match Profile::rescue(&file) {
        Ok(profile) => profile,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    if let Err(error) = profile.save(&out) {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    if removes && let Err(error) = std::fs::remove_file(&file) {
        eprintln!("cannot remove {}: {error}", file.display());
    }
    println!("{}", profile.summary());
    println!("saved as {}", out.display());
    ExitCode::SUCCESS
}
