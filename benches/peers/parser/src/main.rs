//! Parses the Rust files of a folder several times, on one or more threads.
//!
//! Arguments: the folder, the number of threads, the number of times. With the feature `gekkota`,
//! the environment says whether a profile is recorded and saved, as for any program. With the
//! feature `pprof`, the variables `PPROF_HZ` and `PPROF_FILE` do.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;

fn main() -> Result<(), Box<dyn Error>> {
    #[cfg(feature = "gekkota")]
    let _profiler = gekkota::AutoProfilerInit::new();
    #[cfg(feature = "pprof")]
    let profiler = match std::env::var("PPROF_HZ") {
        Ok(hz) => Some(pprof::ProfilerGuard::new(hz.parse()?)?),
        Err(_) => None,
    };
    #[cfg(feature = "gekkota")]
    if std::env::var_os("MOZ_PROFILER_STARTUP").is_some() && !gekkota::profiler_is_active() {
        return Err("gekkota did not start".into());
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, threads, times] = &arguments[..] else {
        return Err("expected a folder, the number of threads and the number of times".into());
    };
    let (threads, times): (usize, usize) = (threads.parse()?, times.parse()?);
    let mut files = Vec::new();
    read_files(Path::new(folder), &mut files)?;
    let files = Arc::new(files);
    // The main thread works, too.
    let others: Vec<_> = (1..threads)
        .map(|number| {
            let files = Arc::clone(&files);
            let name = format!("parser {number}");
            thread::Builder::new().name(name.clone()).spawn(move || {
                #[cfg(feature = "gekkota")]
                gekkota::register_thread(&name);
                parse(&files, times)
            })
        })
        .collect::<Result<_, _>>()?;
    let mut items = parse(&files, times);
    for other in others {
        items += other.join().map_err(|_| "a thread panicked")?;
    }
    println!("{items} items in {} files", files.len());
    #[cfg(feature = "pprof")]
    if let (Some(profiler), Ok(file)) = (profiler, std::env::var("PPROF_FILE")) {
        use pprof::protos::Message;
        fs::write(file, profiler.report().build()?.pprof()?.encode_to_vec())?;
    }
    Ok(())
}

fn read_files(folder: &Path, files: &mut Vec<String>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            read_files(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(fs::read_to_string(path)?);
        }
    }
    Ok(())
}

/// Returns the number of items in the files, of all times.
fn parse(files: &[String], times: usize) -> usize {
    let mut items = 0;
    for _ in 0..times {
        for file in files {
            items += syn::parse_file(file).map_or(0, |file| file.items.len());
        }
    }
    items
}
