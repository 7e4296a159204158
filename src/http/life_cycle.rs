//! Begins and ends the server.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use crate::http::access::Access;
use crate::http::answer::HttpAnswer;
use crate::http::asker::{self, Answering, Work};
use crate::http::request::Asked;
use crate::http::server::Server;
use crate::platform::{
    ListeningSocket, Mailbox, ProfilerThread, Receiver, Sender, channel, current_process_id,
    spawn_profiler_thread, use_own_descriptors, with_signals_blocked,
};
use crate::session::notify;
use crate::types::ProcessId;
use crate::util::{PsCell, PsLock, is_any_lock_held_on_current_thread};

/// Maximum time that [`serve`] waits until the process listens. The new thread may wait for the
/// loader, whose lock the caller may hold.
const MAX_UNTIL_LISTENING: Duration = Duration::from_secs(2);

/// The threads of the server, as others see them.
#[derive(Debug)]
struct RunningServer {
    process: ProcessId,
    work: Arc<Sender<Work>>,
    threads: [ProfilerThread; 2],
}

/// The server of this process, from `profiler_init` to `profiler_shutdown`.
static SERVER: PsCell<Option<RunningServer>> = PsCell::new(None);

/// The process that has begun to serve, or is about to; 0 for none.
static SERVED_IN: AtomicI32 = AtomicI32::new(0);

/// Serves the answers of `answer` at this address, unless the process does already. A notice says
/// where, or why not. The child of a fork has no server until it calls this.
pub(crate) fn serve(address: &str, token: Option<&str>, answer: fn(Asked) -> Answering) {
    if is_any_lock_held_on_current_thread() {
        return;
    }
    let process = current_process_id().to_number();
    if SERVED_IN.swap(process, Ordering::AcqRel) == process {
        return;
    }
    let begun = Access::new(address, token).and_then(|access| {
        let refused = |error| format!("got \"{error}\" for {address}, expected a free address");
        begin(access, answer).map_err(refused)
    });
    match begun {
        Ok(server) => {
            let stale = SERVER.get_mut(&mut PsLock::acquire()).replace(server);
            // Leaked: it belongs to the parent process, and its threads do not exist here.
            std::mem::forget(stale);
        }
        Err(problem) => {
            SERVED_IN.store(0, Ordering::Release);
            notify(&format!("cannot serve profiles: {problem}"));
        }
    }
}

fn begin(access: Access, answer: fn(Asked) -> Answering) -> io::Result<RunningServer> {
    let (answers, receive_answers) = channel();
    let (work, receive_work) = channel();
    let (is_listening, listens) = channel();
    let work = Arc::new(work);
    let run_asker = {
        let work = Arc::clone(&work);
        move || asker::run(&receive_work, &work, &answers, answer)
    };
    let end = EndOfServer(Arc::clone(&work));
    let run_server = move || {
        use_own_descriptors();
        run_server(access, receive_answers, &end, &is_listening);
    };
    let [server, asker] = with_signals_blocked(|| -> io::Result<_> {
        let asker = spawn_profiler_thread(c"ProfilerAsker", run_asker)?;
        // If this fails, dropping `end` ends the asker.
        Ok([spawn_profiler_thread(c"ProfilerHttp", run_server)?, asker])
    })?;
    match listens.receive_within(MAX_UNTIL_LISTENING) {
        Some(Ok(bound)) => notify(&format!("serving profiles at http://{bound}/debug/pprof/")),
        Some(Err(error)) => {
            // The server has told the asker to end.
            server.join();
            asker.join();
            return Err(error);
        }
        None => {}
    }
    Ok(RunningServer {
        process: current_process_id(),
        work,
        threads: [server, asker],
    })
}

/// Tells the asker to end when it is dropped, also if the server panics or cannot begin.
struct EndOfServer(Arc<Sender<Work>>);

impl Drop for EndOfServer {
    fn drop(&mut self) {
        self.0.send(Work::End(None));
    }
}

fn run_server(
    access: Access,
    answers: Receiver<(u64, HttpAnswer)>,
    end: &EndOfServer,
    is_listening: &Sender<io::Result<SocketAddr>>,
) {
    let bound = ListeningSocket::bind_tcp(access.address);
    let opened = bound.and_then(|(listener, bound)| Ok((listener, bound, Mailbox::open(answers)?)));
    match opened {
        Ok((listener, bound, mailbox)) => {
            is_listening.send(Ok(bound));
            let server = Server {
                listener,
                mailbox,
                access,
                work: Arc::clone(&end.0),
                connections: Vec::new(),
                next_id: 0,
                accepts_from: None,
            };
            server.run();
        }
        Err(error) => {
            is_listening.send(Err(error));
        }
    }
}

/// Closes all connections, and stops listening.
pub(crate) fn stop_serving() {
    if is_any_lock_held_on_current_thread() {
        return;
    }
    let process = current_process_id();
    let is_own = |server: &mut RunningServer| server.process == process;
    let server = SERVER.get_mut(&mut PsLock::acquire()).take_if(is_own);
    if let Some(RunningServer { work, threads, .. }) = server {
        // When the asker ends, the server ends, too.
        work.send(Work::End(None));
        // They wait for no other thread.
        threads.into_iter().for_each(ProfilerThread::join);
        SERVED_IN.store(0, Ordering::Release);
    }
}
