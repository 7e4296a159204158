//! Two copies of the profiler sample the same thread at the same time.

#[path = "../src/captured.rs"]
mod captured;
mod common;

use captured::captured_samples;
use common::{Plugin, work_until};

#[test]
fn two_copies_sample_the_same_thread() {
    const SAMPLES: u64 = 100;
    gekkota::register_thread("of the application");
    gekkota::profiler_start(gekkota::StartParams::default()).expect("start");
    let plugin = Plugin::load();
    plugin.call(c"plugin_register_thread");
    plugin.start();
    let before = captured_samples();
    work_until(|| plugin.captured_samples() > SAMPLES && captured_samples() > before + SAMPLES);
    // Neither copy keeps the other one from sampling when it starts anew.
    gekkota::profiler_stop();
    gekkota::profiler_start(gekkota::StartParams::default()).expect("start");
    let before = plugin.captured_samples();
    work_until(|| captured_samples() > SAMPLES && plugin.captured_samples() > before + SAMPLES);
    gekkota::profiler_stop();
    plugin.call(c"plugin_stop");
    plugin.unload();
}
