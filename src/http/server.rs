//! The server's thread: it listens, reads requests and sends answers, and waits for no client.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::http::access::Access;
use crate::http::answer::HttpAnswer;
use crate::http::asker::Work;
use crate::http::connection::Connection;
use crate::platform::{Interest, ListeningSocket, Mailbox, Sender, wait_for_sockets};

/// Maximum number of connections at once. A further one gets an error.
const MAX_CONNECTIONS: usize = 32;
/// Time without new connections after the system has refused one, for example because no descriptor
/// is free.
const PAUSE_AFTER_REFUSAL: Duration = Duration::from_secs(1);

pub(super) struct Server {
    pub(super) listener: ListeningSocket,
    /// The answers, by the ids of their connections, until the asker has ended.
    pub(super) mailbox: Mailbox<(u64, HttpAnswer)>,
    pub(super) access: Access,
    pub(super) work: Arc<Sender<Work>>,
    pub(super) connections: Vec<Connection>,
    pub(super) next_id: u64,
    /// No connection is accepted before.
    pub(super) accepts_from: Option<Instant>,
}

impl Server {
    /// Runs until the asker has ended, or until the application has closed its descriptors.
    pub(super) fn run(mut self) {
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
