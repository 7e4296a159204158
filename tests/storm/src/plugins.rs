//! Loads libraries in C, calls them and unloads them, as often as the machine manages. Their code runs
//! while the loader initializes and finalizes them, too.

use crate::crew::Context;
use crate::loader::{Loaded, call};
use crate::{gate, library, peer, tally};

const AT_ONCE: usize = 20;
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
    }
}
