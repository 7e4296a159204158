//! Closes all descriptors that it does not know, with `close_range`, while it is profiled.

use super::Orders;
use super::profiled::{Workers, choose_names, save_and_read, start_session, wait_for_samples};
use crate::children;
use crate::host_files::HostFiles;

pub fn main(orders: &mut Orders) -> Result<(), String> {
    gekkota::register_thread("main");
    let session = start_session(&mut orders.random)?;
    let workers = Workers::start(4);
    wait_for_samples(&session, 2)?;
    // SAFETY: this program has opened nothing.
    let files = unsafe { HostFiles::replace_all() }?;
    wait_for_samples(&session, 2)?;
    if orders.random.once_in(2) {
        let status = children::fork_and_wait(|| i32::from(files.check("in a child").is_err()));
        if status != 0 {
            return Err(format!("a file was damaged in a child: status {status}"));
        }
    }
    workers.end();
    files.check("after threads have ended")?;
    let workers = Workers::start(3);
    wait_for_samples(&session, 2)?;
    files.check("after threads have started")?;
    save_and_read(&session, choose_names(&mut orders.random))?;
    files.check("after a save")?;
    if orders.random.once_in(2) {
        workers.end();
        session.finish().map_err(|error| error.to_string())?;
        files.check("after the session has ended")?;
        let session = start_session(&mut orders.random)?;
        let _workers = Workers::start(2);
        wait_for_samples(&session, 2)?;
        files.check("in the next session")?;
    }
    files.check("in the end")
}
