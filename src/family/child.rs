//! What the process does as a child: it joins its parent, and listens to it.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::buffer::UpdateReader;
use crate::family::executor::{Executor, GatherState, Task};
use crate::family::ledger::{take_chunk_report, want_chunk_reports};
use crate::family::link::{ChildControl, Link, PartWriter, SendJob, run_sender};
use crate::family::messages::{FrameDecoder, Invitation, VERSION};
use crate::family::orders::{NumberedOrder, Order, order_limits};
use crate::family::parent::give_to_hub;
use crate::family::reports::{Hello, LAST_PROFILE, Report, TextPart};
use crate::platform::{
    Interest, Receiver, Sender, Socket, channel, current_process_id, spawn_profiler_thread,
    use_own_descriptors, wait_for_sockets, with_signals_blocked,
};
use crate::session::{
    FrozenProfile, WriteOptions, default_options, running_session, watch_ends_for_parent,
};
use crate::state::{CorePs, Session, core_buffer};
use crate::stream::StreamOptions;
use crate::types::{ProcessId, Symbolicate};
use crate::util::{ProgressLogger, PsCell, PsLock, SharedProgress};

/// Maximum time that `profiler_init` waits until the process has connected. The new thread may wait
/// for the loader, whose lock the calling thread may hold.
const MAX_UNTIL_CONNECTED: Duration = Duration::from_secs(2);
/// Times after which the last profile is given up: without any progress, and in all.
const MAX_WITHOUT_PROGRESS: Duration = Duration::from_secs(2);
const MAX_UNTIL_HANDED_OVER: Duration = Duration::from_secs(10);
/// Time after which a child of this process is left out of the last profile.
const CHILD_TIMEOUT_AT_END: Duration = Duration::from_millis(400);
/// Size of a read, in bytes.
const READ_BYTES: usize = 16 << 10;

/// The membership in the parent's family, as other threads see it.
#[derive(Debug)]
struct Membership {
    process: ProcessId,
    jobs: Arc<Sender<SendJob>>,
    control: Arc<ChildControl>,
}

static MEMBERSHIP: PsCell<Option<Membership>> = PsCell::new(None);

/// Calls `body` with the membership of this process, if it has one.
fn with_membership<T>(lock: &PsLock, body: impl FnOnce(&Membership) -> T) -> Option<T> {
    let membership = MEMBERSHIP.get(lock).as_ref()?;
    // The child of a fork has the parent's.
    (membership.process == current_process_id()).then(|| body(membership))
}

/// Joins the family that has invited this process. Returns once the parent's socket has the first
/// message, but does not wait for an answer.
pub(super) fn join(invitation: Invitation) {
    let control = Arc::new(ChildControl::default());
    let (jobs, receive_jobs) = channel();
    let jobs = Arc::new(jobs);
    let (tasks, receive_tasks) = channel();
    let (connected, is_connected) = channel();
    let executor = Executor::new(Arc::clone(&control), Arc::clone(&jobs));
    let of_executor = Arc::clone(&control);
    let execute = move || {
        executor.run(&receive_tasks);
        forget(&of_executor);
    };
    let of_reader = (Arc::clone(&control), Arc::clone(&jobs));
    let read = move || {
        use_own_descriptors();
        let (control, jobs) = of_reader;
        let link = connect(&invitation, control, receive_jobs);
        connected.send(link.is_ok());
        if let Ok(link) = link {
            Reader::new(link, jobs, tasks).run();
        }
    };
    let membership = Membership {
        process: current_process_id(),
        jobs,
        control,
    };
    let stale = {
        let mut lock = PsLock::acquire();
        if with_membership(&lock, |_| ()).is_some() {
            return;
        }
        MEMBERSHIP.get_mut(&mut lock).replace(membership)
    };
    // Leaked: it belongs to the parent process, and its threads do not exist here.
    std::mem::forget(stale);
    // If the system refuses a thread, the other one ends with the channel.
    let spawned = with_signals_blocked(|| {
        spawn_profiler_thread(c"ProfilerOrders", execute)?;
        spawn_profiler_thread(c"ProfilerParent", read)
    });
    let is_member =
        spawned.is_ok() && is_connected.receive_within(MAX_UNTIL_CONNECTED) != Some(false);
    match is_member {
        // A refusal leaves the profile to the parent's own orders.
        true => drop(watch_ends_for_parent()),
        false => drop(MEMBERSHIP.get_mut(&mut PsLock::acquire()).take()),
    }
}

/// Removes the membership whose connection has ended.
fn forget(control: &Arc<ChildControl>) {
    let is_it = |membership: &mut Membership| Arc::ptr_eq(&membership.control, control);
    let gone = MEMBERSHIP.get_mut(&mut PsLock::acquire()).take_if(is_it);
    drop(gone);
}

/// Connects to the parent, and says hello. Starts the thread that sends.
fn connect(
    invitation: &Invitation,
    control: Arc<ChildControl>,
    jobs: Receiver<SendJob>,
) -> io::Result<Arc<Link>> {
    let link = Arc::new(Link {
        socket: Socket::connect(&invitation.socket)?,
        control,
    });
    let (_, name) = CorePs::process_type_and_name();
    let hello = Report::Hello(Hello {
        version: VERSION,
        process: current_process_id().to_number(),
        token: invitation.token.clone(),
        name,
    });
    link.send(&hello.encode())?;
    let of_sender = Arc::clone(&link);
    let send = move || run_sender(&of_sender, &jobs);
    with_signals_blocked(|| spawn_profiler_thread(c"ProfilerSender", send))?;
    Ok(link)
}

/// The thread that reads the parent's orders.
struct Reader {
    link: Arc<Link>,
    jobs: Arc<Sender<SendJob>>,
    decoder: FrameDecoder,
    tasks: Sender<Task>,
    is_welcome: bool,
    /// The order to tell of changed chunks that was not answered.
    awaits_chunks: Option<u64>,
    /// Time until the next look at the chunks.
    chunk_look: Duration,
    /// The orders to answer once the sampler of the session has run so many ticks.
    awaited_samplings: Vec<(u64, Arc<Session>, u64)>,
    looked_at_chunks: Instant,
    /// The profiles that are being written.
    gathers: Vec<Weak<GatherState>>,
}

/// Shortest and longest time between two looks at the chunks.
const CHUNK_LOOKS: [Duration; 2] = [Duration::from_millis(25), Duration::from_millis(400)];

/// Maximum number of orders to wait for the sampler that are not answered.
const MAX_AWAITED_SAMPLINGS: usize = 64;

/// Maximum number of orders that are not answered: a callback of the application may hold up the
/// executor, and the parent may not read.
const MAX_UNANSWERED: usize = 1000;

impl Reader {
    fn new(link: Arc<Link>, jobs: Arc<Sender<SendJob>>, tasks: Sender<Task>) -> Self {
        Self {
            link,
            jobs,
            decoder: FrameDecoder::new(order_limits),
            tasks,
            is_welcome: false,
            awaits_chunks: None,
            chunk_look: CHUNK_LOOKS[0],
            awaited_samplings: Vec::new(),
            looked_at_chunks: Instant::now(),
            gathers: Vec::new(),
        }
    }

    /// Runs until the connection has ended.
    fn run(mut self) {
        // Neither the sampler nor the buffer wakes this thread, so it looks at them.
        const LOOKS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];
        let mut look = LOOKS[0];
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let chunks = self.awaits_chunks.map(|_| self.chunk_look);
            let sampling = (!self.awaited_samplings.is_empty()).then_some(look);
            let limit = chunks.into_iter().chain(sampling).min();
            let interests = [Interest::Bytes(&self.link.socket)];
            let Ok(ready) = wait_for_sockets(&interests, limit) else {
                break;
            };
            look = match ready[..] {
                [true] => LOOKS[0],
                _ => (look * 2).min(LOOKS[1]),
            };
            let told = self.tell_samplings().and_then(|()| self.tell_chunks());
            if told.is_err() {
                break;
            }
            if ready == [true] && self.read(&mut buffer).is_err() {
                break;
            }
        }
        want_chunk_reports(false);
        for gather in self.gathers.iter().filter_map(Weak::upgrade) {
            gather.is_cancelled.store(true, Ordering::Release);
        }
        // The sender may wait for space.
        self.link.socket.shut_down();
    }

    /// Answers the orders to wait for the sampler.
    fn tell_samplings(&mut self) -> io::Result<()> {
        for (id, session, ticks) in std::mem::take(&mut self.awaited_samplings) {
            match has_sampled(&session, ticks) {
                None => self.awaited_samplings.push((id, session, ticks)),
                Some(has_sampled) => self.tell_sampling(id, has_sampled)?,
            }
        }
        Ok(())
    }

    fn tell_sampling(&self, id: u64, has_sampled: bool) -> io::Result<()> {
        let failure = (!has_sampled).then(|| "its sampler has not run".to_owned());
        self.answer(&Report::Done { id, failure })
    }

    fn answer(&self, report: &Report<'_>) -> io::Result<()> {
        self.link.control.unanswered.fetch_add(1, Ordering::AcqRel);
        self.send(SendJob::Answer(report.encode()))
    }

    fn send(&self, job: SendJob) -> io::Result<()> {
        match self.jobs.send(job) {
            true => Ok(()),
            false => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Tells the parent of changed chunks, if it waits for that.
    fn tell_chunks(&mut self) -> io::Result<()> {
        let Some(id) = self.awaits_chunks else {
            return Ok(());
        };
        if self.looked_at_chunks.elapsed() < self.chunk_look {
            return Ok(());
        }
        self.looked_at_chunks = Instant::now();
        // Read in any case, so that it does not grow.
        let (update, _) = core_buffer().read_update(UpdateReader::Parent);
        let Some(report) = take_chunk_report(update) else {
            self.chunk_look = (self.chunk_look * 2).min(CHUNK_LOOKS[1]);
            return Ok(());
        };
        self.chunk_look = CHUNK_LOOKS[0];
        self.awaits_chunks = None;
        let mut parts = report.split();
        let last = parts.pop();
        // They are one answer to one order.
        for chunks in parts {
            self.send(SendJob::Message(Report::Chunks { id, chunks }.encode()))?;
        }
        last.map_or(Ok(()), |chunks| self.answer(&Report::Chunks { id, chunks }))
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        match self.link.socket.receive(buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => self.decoder.push(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error),
        }
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        loop {
            let order = match self.decoder.next_frame() {
                Ok(Some(frame)) => NumberedOrder::decode(frame).ok_or_else(invalid)?,
                Ok(None) => return Ok(()),
                Err(_) => return Err(invalid()),
            };
            self.handle(order)?;
        }
    }

    fn handle(&mut self, order: NumberedOrder) -> io::Result<()> {
        let is_first = matches!(order.order, Order::Welcome);
        let unanswered = &self.link.control.unanswered;
        if is_first == self.is_welcome || unanswered.load(Ordering::Acquire) >= MAX_UNANSWERED {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let id = order.id;
        let mut gathers = self.gathers.iter().filter_map(Weak::upgrade);
        let known = gathers.find(|gather| gather.id == id);
        let gather = match &order.order {
            Order::Welcome => {
                self.is_welcome = true;
                return Ok(());
            }
            Order::AskProgress => {
                return match known {
                    Some(gather) => self.answer(&gather.report()),
                    None => Ok(()),
                };
            }
            Order::AwaitChunkUpdate => {
                if self.awaits_chunks.replace(id).is_none() {
                    want_chunk_reports(true);
                }
                return Ok(());
            }
            Order::WaitForSampling => {
                let has_space = self.awaited_samplings.len() < MAX_AWAITED_SAMPLINGS;
                let Some((_, session)) = running_session().filter(|_| has_space) else {
                    return self.tell_sampling(id, false);
                };
                // The tick in progress may have begun before the order.
                let ticks = session.counts.ticks.load(Ordering::Relaxed) + 2;
                self.awaited_samplings.push((id, session, ticks));
                return Ok(());
            }
            Order::DestroyChunks(until) => {
                let until = *until;
                core_buffer().destroy_chunks_at_or_before(until);
                give_to_hub(
                    move |hub, states| hub.destroy_chunks(until, states),
                    &PsLock::acquire(),
                );
                return Ok(());
            }
            Order::Cancel => {
                if let Some(gather) = known {
                    gather.is_cancelled.store(true, Ordering::Release);
                }
                return Ok(());
            }
            Order::Gather(_) => {
                self.gathers.retain(|gather| gather.strong_count() > 0);
                let gather = Arc::new(GatherState::new(id));
                self.gathers.push(Arc::downgrade(&gather));
                Some(gather)
            }
            _ => None,
        };
        unanswered.fetch_add(1, Ordering::AcqRel);
        match self.tasks.send(Task { order, gather }) {
            true => Ok(()),
            false => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

/// Returns whether the sampler of a session has run so many ticks; `None` if it may still do so.
fn has_sampled(session: &Session, ticks: u64) -> Option<bool> {
    if session.counts.ticks.load(Ordering::Relaxed) >= ticks {
        return Some(true);
    }
    let is_running =
        running_session().is_some_and(|(generation, _)| generation == session.generation);
    (!is_running).then_some(false)
}

/// Tells the parent the new name of this process.
pub(super) fn tell_name(name: &str, lock: &PsLock) {
    let report = || Report::Named {
        name: name.to_owned(),
    };
    with_membership(lock, |membership| {
        membership.jobs.send(SendJob::Message(report().encode()))
    });
}

/// Returns whether the parent takes the last profile of this process.
pub(super) fn has_parent() -> bool {
    let takes = |membership: &Membership| {
        let max_bytes = membership.control.max_exit_bytes.load(Ordering::Acquire);
        max_bytes > 0 && !membership.control.gives_up.load(Ordering::Acquire)
    };
    with_membership(&PsLock::acquire(), takes).unwrap_or(false)
}

/// Sends the last profile to the parent, within a bounded time: the parent may be stopped. Returns
/// whether it was sent.
pub(super) fn hand_over(profile: FrozenProfile) -> bool {
    let parts = |membership: &Membership| {
        (
            Arc::clone(&membership.jobs),
            Arc::clone(&membership.control),
        )
    };
    let Some((jobs, control)) = with_membership(&PsLock::acquire(), parts) else {
        return false;
    };
    control.is_exiting.store(true, Ordering::Release);
    let progress = SharedProgress::new();
    let (send, is_sent) = channel();
    let write = {
        let (progress, control) = (progress.clone(), Arc::clone(&control));
        move || _ = send.send(write_last(profile, &progress, &jobs, &control).is_ok())
    };
    if with_signals_blocked(|| spawn_profiler_thread(c"ProfilerLast", write)).is_err() {
        control.is_exiting.store(false, Ordering::Release);
        return false;
    }
    let begin = Instant::now();
    let look = || {
        let sent = control.sent_bytes.load(Ordering::Relaxed);
        (sent, progress.proportion(), progress.last_location())
    };
    let (mut seen, mut since) = (look(), begin);
    loop {
        if let Some(is_sent) = is_sent.receive_within(Duration::from_millis(20)) {
            control.is_exiting.store(false, Ordering::Release);
            return is_sent;
        }
        let (now, current) = (Instant::now(), look());
        if current != seen {
            (seen, since) = (current, now);
        }
        if now - since > MAX_WITHOUT_PROGRESS || now - begin > MAX_UNTIL_HANDED_OVER {
            control.gives_up.store(true, Ordering::Release);
            return false;
        }
    }
}

/// Writes the last profile. If it is too long for the parent, leaves out the older half, again and
/// again.
fn write_last(
    mut profile: FrozenProfile,
    progress: &SharedProgress,
    jobs: &Sender<SendJob>,
    control: &ChildControl,
) -> io::Result<()> {
    let gives_up = || control.gives_up.load(Ordering::Acquire);
    let max_bytes = control.max_exit_bytes.load(Ordering::Acquire);
    loop {
        let mut out = PartWriter::new(jobs, LAST_PROFILE, max_bytes, &gives_up);
        out.send(TextPart::Begins)?;
        let stream = StreamOptions {
            child_timeout: CHILD_TIMEOUT_AT_END,
            // The parent may write any format from it.
            merges_alike: false,
            progress: ProgressLogger::for_job(Some(progress)),
            ..StreamOptions::whole(Symbolicate::Full)
        };
        let options = WriteOptions {
            stream,
            ..default_options()
        };
        let written = profile.write(&options, &mut out);
        match written.and_then(|()| out.finish()) {
            Err(error)
                if error.kind() == io::ErrorKind::FileTooLarge
                    && profile.leave_out_older_half() => {}
            Err(error) => {
                let _ = out.send(TextPart::Failed(error.to_string()));
                return Err(error);
            }
            Ok(()) => return Ok(()),
        }
    }
}

/// Leaves the parent's family.
pub(super) fn leave() {
    let process = current_process_id();
    let is_own = |membership: &mut Membership| membership.process == process;
    let membership = MEMBERSHIP.get_mut(&mut PsLock::acquire()).take_if(is_own);
    if let Some(Membership { jobs, control, .. }) = membership {
        control.is_leaving.store(true, Ordering::Release);
        control.gives_up.store(true, Ordering::Release);
        jobs.send(SendJob::Leave);
    }
}

/// Forgets the parent's membership in the child of a fork.
pub(super) fn forget_membership_in_child(lock: &mut PsLock) {
    std::mem::forget(MEMBERSHIP.get_mut(lock).take());
}
