//! The thread that connects to the server and waits for its answers.

use std::io;
use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::time::Instant;

use crate::platform::{Receiver, Sender};
use crate::pushing::exchange::{Answer, Exchange};
use crate::pushing::item::Item;
use crate::pushing::messages::Job;
use crate::pushing::progress::Progress;
use crate::pushing::target::Target;
use crate::pushing::transport::Transport;

/// Tells the sender to end when it is dropped. After a panic, no answer would arrive.
struct EndOfConnector<'a>(&'a Sender<Job>);

impl Drop for EndOfConnector<'_> {
    fn drop(&mut self) {
        self.0.send(Job::End(Instant::now()));
    }
}

pub(super) struct Connector {
    pub(super) target: Target,
    pub(super) transport: Transport,
    pub(super) progress: Arc<Progress>,
}

impl Connector {
    /// Sends the profiles that it gets, and reports each answer, until the sender has ended.
    pub(super) fn run(mut self, items: &Receiver<Item>, jobs: &Sender<Job>) {
        let _end = EndOfConnector(jobs);
        while let Some(item) = items.receive() {
            jobs.send(Job::Answered(self.send(&item)));
        }
    }

    /// Sends a profile to the first address of the server that can be reached.
    fn send(&mut self, item: &Item) -> io::Result<Answer> {
        self.transport.renew()?;
        let server = &self.target.address;
        // An address stays itself.
        let addresses = (&*server.host, server.port).to_socket_addrs()?;
        let request = self.target.request(item);
        let reads_body = self.target.reads_answers();
        // What TLS refuses says more than that another address does not answer.
        let (mut refused, mut failed) = (None, None);
        for address in addresses {
            let now = Instant::now();
            match Exchange::begin(&self.transport, address, &request, reads_body, now) {
                Ok(mut exchange) => match exchange.finish(&self.progress.is_over) {
                    Err(error) if exchange.is_connecting() => {
                        match self.transport.note_failure(&error) {
                            true => refused = Some(error),
                            false => failed = Some(error),
                        }
                    }
                    answered => return answered,
                },
                Err(error) => failed = Some(error),
            }
        }
        let error = refused.or(failed);
        Err(error.unwrap_or_else(|| io::Error::other("no address")))
    }
}
