//! Several copies of the profiler in one process. All of them sample the same thread at the same
//! time, each with a signal of its own.

use std::time::{Duration, Instant};

use gekkota::{ProfilerSession, StartParams};

use super::Orders;
use super::profiled::{Workers, save_and_read};
use crate::children;
use crate::control::captured;
use crate::library;
use crate::plugin::Plugin;
use crate::work::spend_cpu;

const SAMPLES: u64 = 5;
const PATIENCE: Duration = Duration::from_secs(40);

pub fn main(orders: &mut Orders) -> Result<(), String> {
    let random = &mut orders.random;
    gekkota::register_thread("main");
    let count = 1 + random.below(library::COPIES as u64) as usize;
    let mut plugins = Vec::new();
    let mut session = None;
    // The copy that starts first gets the best signal.
    let first = random.below(count as u64 + 1) as usize;
    for number in 0..=count {
        if number == first {
            session = Some(start_own()?);
        } else {
            plugins.push(start_copy(plugins.len()));
        }
    }
    let session = session.ok_or("there is no session")?;
    let workers = Workers::start(2);
    wait_for_all(&session, &plugins)?;
    // Each starts anew while the others sample.
    for plugin in &plugins {
        plugin.call(c"plugin_stop");
        plugin.start();
        wait_for_all(&session, &plugins)?;
    }
    // Runs the fork handlers of each copy.
    let status = children::fork_and_wait(|| i32::from(gekkota::profiler_is_active()));
    if status != 0 {
        return Err(format!(
            "the profiler is active in a child: status {status}"
        ));
    }
    save_and_read(&session, gekkota::profile::Symbolicate::No)?;
    workers.end();
    if let Some(plugin) = plugins.pop() {
        plugin.call(c"plugin_unregister_thread");
        // With a running session, too: the library stays as long as its sampler.
        if random.once_in(2) {
            plugin.call(c"plugin_stop");
        }
        plugin.unload();
    }
    session.finish().map_err(|error| error.to_string())?;
    let session = start_own()?;
    wait_for_all(&session, &plugins)
}

fn start_own() -> Result<ProfilerSession, String> {
    ProfilerSession::start(StartParams::default()).map_err(|error| error.to_string())
}

fn start_copy(number: usize) -> Plugin {
    let plugin = Plugin::load_file(&library::path_of_copy(number));
    plugin.call(c"plugin_register_thread");
    plugin.start();
    plugin
}

/// Works until each copy has some more samples.
fn wait_for_all(session: &ProfilerSession, plugins: &[Plugin]) -> Result<(), String> {
    let counts = || {
        let own = session.snapshot().map_err(|error| error.to_string())?;
        let of_plugins = plugins.iter().map(Plugin::captured_samples);
        Ok::<Vec<u64>, String>([captured(&own)].into_iter().chain(of_plugins).collect())
    };
    let before = counts()?;
    let start = Instant::now();
    loop {
        spend_cpu(Duration::from_millis(5));
        let now = counts()?;
        let each = now.iter().zip(&before);
        if each.clone().all(|(now, before)| *now >= before + SAMPLES) {
            return Ok(());
        }
        if start.elapsed() > PATIENCE {
            return Err(format!(
                "a copy gets no samples: the copies had {before:?}, and have {now:?} after {PATIENCE:?}"
            ));
        }
    }
}
