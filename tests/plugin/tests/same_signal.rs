//! Two copies of the profiler sample the same thread with the same signal, which the application
//! handles, too.

#[path = "../src/captured.rs"]
mod captured;
mod common;

use captured::captured_samples;
use common::{Plugin, hosts_calls_of_one_signal, install_hosts_handler, work_until};
use gekkota::{StartParams, profiler_start, profiler_stop};

const SAMPLES: u64 = 100;

fn start() {
    profiler_start(StartParams::default().signal(libc::SIGUSR1)).expect("start");
}

#[test]
fn two_copies_sample_with_the_same_signal() {
    install_hosts_handler();
    gekkota::register_thread("of the application");
    start();
    let plugin = Plugin::load();
    plugin.call(c"plugin_register_thread");
    assert!(plugin.ask(c"plugin_start_by_usr1"));
    let before = captured_samples();
    work_until(|| plugin.captured_samples() > SAMPLES && captured_samples() > before + SAMPLES);
    // The handler of the other copy stays over that of this one.
    plugin.call(c"plugin_stop");
    let before = captured_samples();
    work_until(|| captured_samples() > before + SAMPLES);
    profiler_stop();
    // The copies do not install their handlers over each other again and again.
    for _ in 0..10 {
        start();
        assert!(plugin.ask(c"plugin_start_by_usr1"));
        profiler_stop();
        plugin.call(c"plugin_stop");
        assert_eq!(hosts_calls_of_one_signal(), 1);
    }
    start();
    work_until(|| captured_samples() > SAMPLES);
    profiler_stop();
}
