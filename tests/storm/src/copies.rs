//! Another copy of the profiler in this process, in a library, with sessions of its own. Both
//! copies sample this worker.

use std::time::{Duration, Instant};

use crate::crew::Context;
use crate::plugin::Plugin;
use crate::work::spend_cpu;
use crate::{gate, library, tally};

const SAMPLES: u64 = 5;
const PATIENCE: Duration = Duration::from_secs(60);

pub fn copy_worker(context: &mut Context) {
    // The first start pins the library, so further files would stay for ever.
    let load = || gate::without_profiling_forks(|| Plugin::load_file(&library::path_of_copy(0)));
    let plugin = gate::with_descriptors(load);
    plugin.call(c"plugin_register_thread");
    while context.goes_on() {
        // Sometimes over a running session.
        plugin.start();
        wait_for_samples(&plugin, context);
        tally::COPY_SESSIONS.one();
        if context.random.once_in(2) {
            plugin.call(c"plugin_stop");
            spend_cpu(Duration::from_millis(1));
        }
    }
    plugin.call(c"plugin_stop");
    plugin.call(c"plugin_unregister_thread");
    gate::without_profiling_forks(|| plugin.unload());
}

/// Works until the copy has sampled this thread.
fn wait_for_samples(plugin: &Plugin, context: &mut Context) {
    let start = Instant::now();
    loop {
        spend_cpu(Duration::from_millis(2));
        context.goes_on();
        let samples = plugin.captured_samples();
        if samples >= SAMPLES {
            return tally::COPY_SAMPLES.add(samples);
        }
        assert!(
            start.elapsed() < PATIENCE,
            "the other copy has {samples} samples after {PATIENCE:?}"
        );
    }
}
