//! Makes a profile of the crash file that a killed or crashed program has left.
//!
//! ```text
//! MOZ_PROFILER_STARTUP=1 MOZ_PROFILER_CRASH_FILE=/tmp/crash your-program
//! cargo run --release --example rescue -- /tmp/crash [out.json]
//! ```

use std::path::PathBuf;
use std::process::ExitCode;

use gekkota::Profile;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let Some(file) = arguments.next() else {
        eprintln!("usage: rescue <crash file> [<profile, by default the crash file with .json>]");
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
    println!("{}", profile.summary());
    println!("saved as {}", out.display());
    ExitCode::SUCCESS
}
