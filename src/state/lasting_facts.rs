//! The choice of the facts of a session's crash file that still matter.

use std::collections::HashSet;

use crate::state::active_ps::ActivePs;
use crate::state::core_ps::CORE_PS;
use crate::state::crash_file::{Fact, KeepsFact};
use crate::state::session::Session;
use crate::threads::OffThreadRef;
use crate::types::TimeStamp;
use crate::unwind::registered_code;

/// Returns a function that decides whether a fact still matters: facts of threads, pages and code that
/// the session no longer keeps do not. Called by the sampler, without a lock.
pub(crate) fn lasting_facts(session: &Session) -> KeepsFact {
    let known = ActivePs::with(session, |active, lock| {
        let threads = active.threads.borrow().all();
        let serials: HashSet<u64> = threads.iter().map(OffThreadRef::serial).collect();
        let core = CORE_PS.get(lock);
        let pages = core.iter().flat_map(|core| &core.pages);
        let ended = active.ended_pages.borrow();
        let pages = pages
            .chain(ended.since(0, TimeStamp(0)))
            .map(|page| page.inner_window_id);
        (serials, pages.collect::<HashSet<u64>>())
    });
    let Some((serials, pages)) = known else {
        return Box::new(|_| true);
    };
    let code = registered_code();
    Box::new(move |fact| match fact {
        Fact::Thread(thread) => serials.contains(&thread.serial),
        Fact::Page(page) => pages.contains(&page.inner_window_id),
        Fact::Code(fact) => code
            .find(fact.start)
            .is_some_and(|known| *known.name == *fact.name),
        _ => true,
    })
}
