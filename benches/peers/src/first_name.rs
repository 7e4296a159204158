//! `first_name`: time from `profiler_save_profile_to_file` to the file, with the first names of the
//! process.
//!
//! Eight threads with deep, varied stacks work for 10 s (2 s with `--quick`) and are sampled every
//! millisecond: 12 to 40 calls deep, and below that in the standard library, regex, flate2 and
//! serde_json. Then they end, as at the end of a program, and the profile is saved twice in the
//! same session. The program has all its debug information.
//!
//! `ours` is the first save, in full. `names` is the first save with `Symbolicate::NamesOnly`, in
//! another process. `second` and `second_names` are the second saves, minus `writing`: a save of
//! the same session without names. So they are the remaining time for the names, and the time for
//! the longer text. `while_busy` is a first save in full while the eight threads still work, so it
//! gets only a share of the processors.
//!
//! Each run is a process of its own; the kinds of runs alternate. The program's file is in the
//! system's cache. The profile goes to a temporary folder.

use gekkota::profile::{SnapshotOptions, Symbolicate};
use gekkota::{AutoProfilerInit, profiler_save_profile_to_file};

use crate::deep::{self, Rhythm};
use crate::own_program::OwnProgram;
use crate::prelude::*;

pub(crate) const MEASUREMENT: Measurement = Measurement {
    name: "first_name",
    unit: "seconds from the call to the file",
    goal: "ours <= 3, names <= 1, second and second_names <= 0.2",
    is_met: |study| {
        study.at_most(&["ours"], 3.0)
            && study.at_most(&["names"], 1.0)
            && study.at_most(&["second", "second_names"], 0.2)
    },
    rounds: [2, 5],
    sizes: [&[2000], &[10000]],
    size_names: &["ms of 8 threads"],
    arms: &["ours", "names", "while_busy"],
    part: run,
    ..Measurement::LONG
};

/// Makes one recording. Arguments: the kind of run, and the milliseconds.
fn run(arguments: &Arguments) -> Fallible<Value> {
    let kind = arguments.text(0)?;
    let _profiler = AutoProfilerInit::new();
    let session =
        ProfilerSession::start(StartParams::default().interval(INTERVAL).filters(["deep"]))?;
    let working = deep::start(8, Rhythm::Jobs)?;
    std::thread::sleep(arguments.milliseconds(1)?);
    let working = (kind == "while_busy").then_some(working);

    let file = Temporary::new(".json");
    let save_with = |symbolicate| -> Fallible<()> {
        let options = SnapshotOptions::default().symbolicate(symbolicate);
        Ok(session.snapshot()?.save_with(&*file, &options)?)
    };
    let save = || match kind {
        "names" => save_with(Symbolicate::NamesOnly),
        _ => Ok(profiler_save_profile_to_file(&*file)?),
    };
    let seconds = |save: &dyn Fn() -> Fallible<()>| -> Fallible<f64> {
        file.remove();
        let begin = Instant::now();
        save()?;
        Ok(begin.elapsed().as_secs_f64())
    };
    let mut answer = json!({ kind: seconds(&save)? });
    let bytes = file.metadata()?.len();
    answer["also"] = json!({
        format!("mb_{kind}"): bytes as f64 / 1e6,
        "debug_mb": OwnProgram::read()?.debug_bytes as f64 / 1e6,
    });
    drop(working);
    let again = seconds(&save)?;
    let writing = seconds(&|| save_with(Symbolicate::No))?;
    match kind {
        "ours" => {
            answer["second"] = json!(again - writing);
            answer["writing"] = json!(writing);
        }
        "names" => answer["second_names"] = json!(again - writing),
        _ => {}
    }
    Ok(answer)
}
