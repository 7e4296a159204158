//! Loads libraries in C, calls them and unloads them, hundreds of times a second. Their code runs
//! while the loader initializes and finalizes them, too.

use std::time::Duration;

use crate::crew::Context;
use crate::loader::{Loaded, call};
use crate::{gate, library, peer, tally};

const AT_ONCE: usize = 5;
/// Pause between two groups of libraries, in which the others get the loader's lock.
const PAUSE: Duration = Duration::from_millis(5);
const ROUNDS: u64 = 5000;

pub fn plugin_worker(context: &mut Context) {
    let paths = library::in_c();
    while context.goes_on() {
        peer::while_absent(|| {
            for _ in 0..AT_ONCE {
                let path = paths[context.random.below(paths.len() as u64) as usize];
                let (kind, seed) = (context.random.below(3), context.random.next());
                gate::with_descriptors(|| {
                    gate::without_profiling_forks(|| {
                        let loaded = Loaded::open(path);
                        call(loaded.work(), kind, seed, ROUNDS);
                    })
                });
                tally::PLUGINS.one();
            }
        });
        std::thread::sleep(PAUSE);
    }
}
