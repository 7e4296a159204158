//! What the process does as a parent: it begins to listen, passes on what happens, and gathers the
//! profiles of its children for its own.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::family::hub::{Hub, HubCommand, HubCounts};
use crate::family::hub_state::{HubState, States};
use crate::family::jobs::GatherEvent;
use crate::family::member::next_id;
use crate::family::messages::{Invitation, VERSION, WHOLE, token_of};
use crate::family::orders::GatherOrder;
use crate::platform::{
    ListeningSocket, Mailbox, PrivateFolder, ProfilerThread, Receiver, Sender, channel,
    current_process_id, monotonic_now, random_bytes, set_variable_if_only_thread,
    spawn_profiler_thread, use_own_descriptors, with_signals_blocked,
};
use crate::session::{FAMILY_VARIABLE, child_profile, environment};
use crate::state::{ChildProfile, ChildText};
use crate::stream::{FrozenChildren, GatherRequest, Gathering, GatheringLog};
use crate::types::{Generation, ProcessId, TimeStamp};
use crate::util::{PsCell, PsLock, is_any_lock_held_on_current_thread};

/// Maximum time that a start waits until the process listens. The new thread may wait for the
/// loader, whose lock the thread that starts the session may hold.
const MAX_UNTIL_LISTENING: Duration = Duration::from_secs(2);

/// The parent's thread, as other threads see it. The thread ends once this is dropped.
pub(super) struct RunningHub {
    process: ProcessId,
    commands: Sender<HubCommand>,
    thread: ProfilerThread,
    folder: PrivateFolder,
    invitation: Invitation,
    counts: Arc<HubCounts>,
}

/// The hub of this process, from the first session with children to `profiler_shutdown`.
static HUB: PsCell<Option<RunningHub>> = PsCell::new(None);

/// Calls `body` with the hub, if this process has one.
fn with_hub<T>(lock: &PsLock, body: impl FnOnce(&RunningHub) -> T) -> Option<T> {
    let hub = HUB.get(lock).as_ref()?;
    // The child of a fork has the parent's.
    (hub.process == current_process_id()).then(|| body(hub))
}

/// Gives the hub a command. Returns false if this process has no hub.
pub(super) fn give_to_hub(
    command: impl FnOnce(&mut HubState, States<'_, '_>) + Send + 'static,
    lock: &PsLock,
) -> bool {
    let give = |hub: &RunningHub| {
        hub.counts.give();
        hub.commands.send(Box::new(command))
    };
    with_hub(lock, give).unwrap_or(false)
}

/// Begins to listen for children, unless the process does. Called before a session's threads exist,
/// because it may set a variable for child processes. Returns what children cannot do.
pub(super) fn listen() -> Option<&'static str> {
    if with_hub(&PsLock::acquire(), |_| ()).is_some() {
        return None;
    }
    match begin() {
        Ok((hub, is_variable_set)) => {
            let stale = HUB.get_mut(&mut PsLock::acquire()).replace(hub);
            // Leaked: it belongs to the parent process, and its thread does not exist here.
            std::mem::forget(stale);
            (!is_variable_set).then_some(
                "only children with the variables of profiler_command can join: the process had \
                 other threads, so it has not changed its environment",
            )
        }
        Err(_) => Some("child processes cannot join: the system refused a folder or a socket"),
    }
}

/// Returns the hub, and whether the variable for child processes is set.
fn begin() -> std::io::Result<(RunningHub, bool)> {
    let folder = PrivateFolder::create()?;
    let process = current_process_id();
    let invitation = Invitation {
        version: VERSION,
        process: process.to_number(),
        token: token_of(random_bytes()?),
        socket: folder.socket(),
    };
    keep_own_invitation();
    let is_variable_set = set_variable_if_only_thread(FAMILY_VARIABLE, &invitation.to_value());
    let counts = Arc::new(HubCounts::default());
    let (commands, receive) = channel();
    let (is_listening, listens) = channel();
    let run = {
        let (folder, counts) = (folder.clone(), Arc::clone(&counts));
        let token = invitation.token.clone();
        move || run_hub(&folder, receive, counts, token, &is_listening)
    };
    let thread = with_signals_blocked(|| spawn_profiler_thread(c"ProfilerFamily", run));
    let thread = thread.inspect_err(|_| folder.clone().remove())?;
    if listens.receive_within(MAX_UNTIL_LISTENING) == Some(false) {
        thread.join();
        folder.remove();
        return Err(std::io::ErrorKind::AddrNotAvailable.into());
    }
    let hub = RunningHub {
        process,
        commands,
        thread,
        folder,
        invitation,
        counts,
    };
    Ok((hub, is_variable_set))
}

fn run_hub(
    folder: &PrivateFolder,
    commands: Receiver<HubCommand>,
    counts: Arc<HubCounts>,
    token: String,
    is_listening: &Sender<bool>,
) {
    use_own_descriptors();
    let opened = ListeningSocket::bind(&folder.socket())
        .and_then(|listener| Ok((listener, Mailbox::open(commands)?)));
    is_listening.send(opened.is_ok());
    if let Ok((listener, mailbox)) = opened {
        folder.remove_stale_ones();
        Hub::new(listener, mailbox, counts, token).run();
    }
}

/// The variable as this process got it, before it set the variable for its own children.
static OWN_INVITATION: PsCell<Option<(ProcessId, Option<OsString>)>> = PsCell::new(None);

fn keep_own_invitation() {
    let process = current_process_id();
    let value = environment::variable(FAMILY_VARIABLE);
    let mut lock = PsLock::acquire();
    let kept = OWN_INVITATION.get_mut(&mut lock);
    if kept.as_ref().is_none_or(|(of, _)| *of != process) {
        *kept = Some((process, value));
    }
}

/// Returns the parent's invitation to this process.
pub(super) fn own_invitation() -> Option<Invitation> {
    let kept = OWN_INVITATION.get(&PsLock::acquire()).clone();
    let value = match kept {
        Some((process, value)) if process == current_process_id() => value,
        // A program with the rights of another user reads no variable, and so never joins.
        _ => environment::variable(FAMILY_VARIABLE),
    };
    Invitation::parse(&value?)
}

/// Returns the variable for child processes, if this process listens for them.
pub(super) fn invitation() -> Option<OsString> {
    with_hub(&PsLock::acquire(), |hub| hub.invitation.to_value())
}

/// Returns whether this is the invitation of this process.
pub(super) fn is_own_invitation(invitation: &Invitation) -> bool {
    with_hub(&PsLock::acquire(), |hub| hub.invitation == *invitation).unwrap_or(false)
}

/// Closes all connections, and stops listening.
pub(super) fn stop_listening() {
    let process = current_process_id();
    let is_own = |hub: &mut RunningHub| hub.process == process;
    let hub = HUB.get_mut(&mut PsLock::acquire()).take_if(is_own);
    if let Some(hub) = hub {
        drop(hub.commands);
        hub.folder.remove();
        // Its thread waits for no other thread.
        hub.thread.join();
    }
}

/// Removes the socket and its folder. The process is about to end.
pub(super) fn remove_socket() {
    let folder = {
        let lock = PsLock::acquire();
        with_hub(&lock, |hub| hub.folder.clone())
    };
    if let Some(folder) = folder {
        folder.remove();
    }
}

/// Forgets the parent's hub in the child of a fork, which the parent thereby invites.
pub(super) fn forget_hub_in_child(lock: &mut PsLock) {
    let Some(hub) = HUB.get_mut(lock).take() else {
        return;
    };
    let invitation = (current_process_id(), Some(hub.invitation.to_value()));
    std::mem::forget(OWN_INVITATION.get_mut(lock).replace(invitation));
    std::mem::forget(hub);
}

/// Waits until the sampler of each child that records the session has run, or for this time at
/// most. Returns of how many it has.
pub(crate) fn wait_for_sampling_of_children(limit: Duration) -> usize {
    if is_any_lock_held_on_current_thread() {
        return 0;
    }
    let mut sampled = Arc::new(AtomicUsize::new(0));
    let of_hub = Arc::clone(&sampled);
    let is_asked = give_to_hub(
        move |hub, states| hub.await_sampling(of_hub, states),
        &PsLock::acquire(),
    );
    if !is_asked {
        return 0;
    }
    // The hub and its children that have not answered have the number, too.
    wait_within(limit, || Arc::get_mut(&mut sampled).is_some());
    sampled.load(Ordering::Relaxed)
}

/// Waits until all children that have joined have answered the newest start, or for this time at
/// most. Returns how many children record the session.
pub(crate) fn wait_for_children(limit: Duration) -> usize {
    if is_any_lock_held_on_current_thread() {
        return 0;
    }
    let counts = with_hub(&PsLock::acquire(), |hub| Arc::clone(&hub.counts));
    let Some(counts) = counts else {
        return 0;
    };
    let given = counts.given();
    let mut running = 0;
    wait_within(limit, || {
        let (now, is_all) = counts.running_after(given);
        running = now;
        is_all
    });
    running as usize
}

/// Waits until `is_over` returns true, or for this time at most.
fn wait_within(limit: Duration, mut is_over: impl FnMut() -> bool) {
    const LOOK: Duration = Duration::from_millis(1);
    let begin = Instant::now();
    while !is_over() && begin.elapsed() < limit {
        std::thread::sleep(LOOK);
    }
}

/// Asks all children for snapshots. Returns `None` if this process has no hub.
pub(super) fn freeze_children(
    _session: Generation,
    at: TimeStamp,
) -> Option<Arc<dyn FrozenChildren>> {
    if is_any_lock_held_on_current_thread() {
        return None;
    }
    let id = next_id();
    let is_asked = give_to_hub(
        move |hub, states| hub.freeze(id, at, states),
        &PsLock::acquire(),
    );
    is_asked.then(|| Arc::new(Snapshots { id }) as Arc<dyn FrozenChildren>)
}

/// The snapshots that the children hold, by the number of the order.
#[derive(Debug)]
struct Snapshots {
    id: u64,
}

impl FrozenChildren for Snapshots {
    fn gather(&self, request: &GatherRequest) -> Box<dyn Gathering> {
        let (send, events) = channel();
        let proportion = Arc::new(AtomicU32::new(0));
        let order = GatherOrder {
            frozen: self.id,
            request: *request,
        };
        if !is_any_lock_held_on_current_thread() {
            let proportion = Arc::clone(&proportion);
            give_to_hub(
                move |hub, states| hub.gather(order, send, proportion, states),
                &PsLock::acquire(),
            );
        }
        Box::new(RunningGathering {
            events,
            proportion,
            begun: monotonic_now(),
            arrived: VecDeque::new(),
            log: Vec::new(),
        })
    }
}

impl Drop for Snapshots {
    fn drop(&mut self) {
        if !is_any_lock_held_on_current_thread() {
            let id = self.id;
            give_to_hub(
                move |hub, states| hub.release(id, states),
                &PsLock::acquire(),
            );
        }
    }
}

/// A gathering, on the thread that writes the profile. The hub gives it up once this is dropped.
#[derive(Debug)]
struct RunningGathering {
    events: Receiver<GatherEvent>,
    proportion: Arc<AtomicU32>,
    begun: TimeStamp,
    /// Profiles that arrived while the thread waited for the times.
    arrived: VecDeque<GatherEvent>,
    log: Vec<(TimeStamp, String)>,
}

impl RunningGathering {
    fn note(&mut self, event: String) {
        self.log.push((monotonic_now(), event));
    }
}

impl Gathering for RunningGathering {
    fn times(&mut self) -> Option<(TimeStamp, TimeStamp)> {
        // The hub tells them within the time-out, or is gone.
        while let Some(event) = self.events.receive() {
            match event {
                GatherEvent::Times(times) => return times,
                GatherEvent::Happened(at, event) => self.log.push((at, event)),
                profile => self.arrived.push_back(profile),
            }
        }
        None
    }

    fn next_profile(&mut self) -> Option<ChildProfile> {
        loop {
            let arrived = self.arrived.pop_front();
            match arrived.or_else(|| self.events.receive())? {
                GatherEvent::Times(_) => {}
                GatherEvent::Happened(at, event) => self.log.push((at, event)),
                GatherEvent::Profile(profile) => return Some(profile),
                GatherEvent::Text(process, text) => match child_profile(ChildText::File(text)) {
                    Ok(profile) => return Some(profile),
                    Err(error) => self.note(format!("{process}: left out, because {error}")),
                },
            }
        }
    }

    fn proportion(&self) -> f32 {
        self.proportion.load(Ordering::Relaxed) as f32 / WHOLE as f32
    }

    fn take_log(&mut self) -> GatheringLog {
        while let Some(event) = self.events.receive_within(std::time::Duration::ZERO) {
            if let GatherEvent::Happened(at, event) = event {
                self.log.push((at, event));
            }
        }
        GatheringLog {
            begun: self.begun,
            ended: monotonic_now(),
            events: std::mem::take(&mut self.log),
        }
    }
}
