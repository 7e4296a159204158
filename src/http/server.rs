//! The server: its two threads, and how they begin and end.
//!
//! The *server* listens, reads requests and sends answers, and waits for no client. The *asker* polls
//! the answers that are being prepared.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use crate::http::connection::Connection;
use crate::http::request::{Access, Asked, HttpAnswer};
use crate::platform::{
    Interest, ListeningSocket, Mailbox, ProfilerThread, Receiver, Sender, channel,
    current_process_id, spawn_profiler_thread, use_own_descriptors, wait_for_sockets,
    with_signals_blocked,
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
        move || prepare_answers(&receive_work, &work, &answers, answer)
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

/// Maximum number of connections at once. A further one gets an error.
const MAX_CONNECTIONS: usize = 32;
/// Time without new connections after the system has refused one, for example because no descriptor
/// is free.
const PAUSE_AFTER_REFUSAL: Duration = Duration::from_secs(1);

struct Server {
    listener: ListeningSocket,
    /// The answers, by the ids of their connections, until the asker has ended.
    mailbox: Mailbox<(u64, HttpAnswer)>,
    access: Access,
    work: Arc<Sender<Work>>,
    connections: Vec<Connection>,
    next_id: u64,
    /// No connection is accepted before.
    accepts_from: Option<Instant>,
}

impl Server {
    /// Runs until the asker has ended, or until the application has closed its descriptors.
    fn run(mut self) {
        let reason = loop {
            let Ok(ready) = self.wait() else {
                break Some("profiles are not served any more: the program closed the connections");
            };
            let [has_mail, has_connection, ready @ ..] = &ready[..] else {
                break None;
            };
            let now = Instant::now();
            for (at, _) in ready.iter().enumerate().filter(|(_, ready)| **ready) {
                let connection = &mut self.connections[at];
                if let Some(asked) = connection.go_on(&self.access, now) {
                    let id = connection.id;
                    self.work.send(Work::Ask { id, asked });
                }
            }
            if *has_mail && !self.handle_mail(now) {
                break None;
            }
            self.remove_over(now);
            if *has_connection {
                self.accept(now);
            }
        };
        self.work.send(Work::End(reason));
    }

    fn wait(&mut self) -> io::Result<Vec<bool>> {
        let now = Instant::now();
        self.accepts_from = self.accepts_from.filter(|from| *from > now);
        let times = self.connections.iter().filter_map(Connection::until);
        let next = times.chain(self.accepts_from).min();
        let limit = next.map(|time| time.saturating_duration_since(now));
        let mut interests = vec![Interest::Bytes(self.mailbox.socket())];
        interests.push(match self.accepts_from {
            None => Interest::Connection(&self.listener),
            // Nothing to learn from it now.
            Some(_) => Interest::Bytes(self.mailbox.socket()),
        });
        interests.extend(self.connections.iter().map(Connection::interest));
        wait_for_sockets(&interests, limit)
    }

    /// Returns false if the server is to end.
    fn handle_mail(&mut self, now: Instant) -> bool {
        let Some(answers) = self.mailbox.take() else {
            return false;
        };
        for (id, answer) in answers {
            let asking = self.connections.iter_mut().find(|asking| asking.id == id);
            if let Some(asking) = asking {
                asking.answer(answer, now);
            }
        }
        true
    }

    fn remove_over(&mut self, now: Instant) {
        let work = &self.work;
        self.connections.retain_mut(|connection| {
            connection.expire(now);
            if connection.is_over() {
                // Without an answer in preparation, this does nothing.
                work.send(Work::Leave(connection.id));
            }
            !connection.is_over()
        });
    }

    fn accept(&mut self, now: Instant) {
        if self.accepts_from.is_some() {
            return;
        }
        // No more at once, so that the others get their turn.
        for _ in 0..MAX_CONNECTIONS {
            match self.listener.accept() {
                Ok(socket) => {
                    let mut connection = Connection::new(self.next_id, socket, now);
                    self.next_id += 1;
                    if self.connections.len() < MAX_CONNECTIONS {
                        self.connections.push(connection);
                    } else {
                        connection.answer(too_many(), now);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    self.accepts_from = Some(now + PAUSE_AFTER_REFUSAL);
                    return;
                }
            }
        }
    }
}

fn too_many() -> HttpAnswer {
    let words = format!(
        "cannot answer: got {MAX_CONNECTIONS} other connections at the same time, expected fewer"
    );
    HttpAnswer::of_words(503, &words)
}

/// An answer that is being prepared. If it is dropped, the client has left.
pub(crate) type Answering = Pin<Box<dyn Future<Output = HttpAnswer> + Send>>;

/// What the asker does next.
#[derive(Debug)]
enum Work {
    Ask {
        id: u64,
        asked: Asked,
    },
    /// The client has left.
    Leave(u64),
    /// An answer may be ready.
    Wake(u64),
    /// Nothing more is asked; for which reason, if nothing has asked the server to end.
    End(Option<&'static str>),
}

struct WakeUp {
    id: u64,
    work: Arc<Sender<Work>>,
}

impl Wake for WakeUp {
    fn wake(self: Arc<Self>) {
        self.work.send(Work::Wake(self.id));
    }
}

/// Prepares answers until [`Work::End`] arrives.
fn prepare_answers(
    receiver: &Receiver<Work>,
    work: &Arc<Sender<Work>>,
    answers: &Sender<(u64, HttpAnswer)>,
    answer: fn(Asked) -> Answering,
) {
    let mut pending = BTreeMap::new();
    while let Some(next) = receiver.receive() {
        let id = match next {
            Work::Ask { id, asked } => {
                pending.insert(id, answer(asked));
                id
            }
            Work::Wake(id) => id,
            Work::Leave(id) => {
                pending.remove(&id);
                continue;
            }
            Work::End(reason) => {
                if let Some(reason) = reason {
                    notify(reason);
                }
                return;
            }
        };
        let Some(answering) = pending.get_mut(&id) else {
            continue;
        };
        let wake_up = WakeUp {
            id,
            work: Arc::clone(work),
        };
        let waker = Waker::from(Arc::new(wake_up));
        let poll = || answering.as_mut().poll(&mut Context::from_waker(&waker));
        let answer = match catch_unwind(AssertUnwindSafe(poll)) {
            Ok(Poll::Pending) => continue,
            Ok(Poll::Ready(answer)) => answer,
            Err(_) => HttpAnswer::of_words(500, "cannot answer: the profiler panicked"),
        };
        pending.remove(&id);
        answers.send((id, answer));
    }
}
