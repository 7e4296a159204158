//! The same signal starts two copies of the profiler, and reaches the application's handler.

mod common;

use common::{Plugin, hosts_calls_of_one_signal, install_hosts_handler, work_until};
use gekkota::{ControlSignals, profiler_control_by_signals, profiler_is_active, profiler_stop};

#[test]
fn signal_starts_both_copies_and_reaches_the_hosts_handler_once() {
    install_hosts_handler();
    let control = || profiler_control_by_signals(ControlSignals::default()).expect("control");
    control();
    let plugin = Plugin::load();
    for _ in 0..3 {
        assert!(plugin.ask(c"plugin_control"));
        assert_eq!(hosts_calls_of_one_signal(), 1);
        work_until(|| profiler_is_active() && plugin.ask(c"plugin_is_active"));
        profiler_stop();
        plugin.call(c"plugin_stop");
        control();
    }
}
