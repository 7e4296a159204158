//! The thread that cuts the session into windows, and writes each as a profile.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::platform::{Receiver, Sender};
use crate::pushing::queue::{Item, new_id};
use crate::pushing::sender::{Job, Progress};
use crate::pushing::target::Target;
use crate::session::{FrozenWindow, WindowCutter, freeze_window, is_active, notify};
use crate::types::StartParams;

/// Time between two looks at the session.
const STEP: Duration = Duration::from_millis(250);

/// What other threads tell the cutter.
#[derive(Debug)]
pub(super) enum Command {
    /// The time between two profiles has changed.
    Interval(Duration),
    /// The sessions that the pusher starts have these parameters.
    Session(Box<StartParams>),
    /// The session is about to end: this is its last window.
    Cut(Box<FrozenWindow>),
    /// Cut once more, and end.
    End,
}

pub(super) struct Cutter {
    pub(super) params: StartParams,
    pub(super) interval: Duration,
    /// `None` after the session has ended.
    pub(super) windows: Option<WindowCutter>,
    pub(super) target: Target,
    pub(super) jobs: Arc<Sender<Job>>,
    pub(super) progress: Arc<Progress>,
    /// Whether a session with other parameters is to replace this one, once this one has no other
    /// client.
    pub(super) is_changing: bool,
    /// Whether the pusher has ended its session to start another one.
    pub(super) starts_at_once: bool,
    /// The window of the session that the pusher has ended, up to just before the end.
    pub(super) last: Option<FrozenWindow>,
    /// Whether a notice has said that no session can be started.
    pub(super) is_told: bool,
    /// Whether a notice has said that a window could not be written, since one was.
    pub(super) is_loss_told: bool,
    /// Maximum size of the profiles that wait for the sender, in bytes.
    pub(super) max_bytes: u64,
    /// Whether the sender has ended, so that the cutter ends, too.
    pub(super) is_over: bool,
}

impl Cutter {
    /// Runs until a command ends it. Prints the notices of the sender, too.
    pub(super) fn run(mut self, commands: &Receiver<Command>, notices: &Receiver<String>) {
        let mut last = Instant::now();
        loop {
            let rest = (last + self.interval).saturating_duration_since(Instant::now());
            let command = commands.receive_within(rest.min(STEP));
            while let Some(notice) = notices.receive_within(Duration::ZERO) {
                notify(&notice);
            }
            if command.is_some_and(|command| !self.obey(command)) {
                return self.end(commands);
            }
            let is_due = last + self.interval <= Instant::now();
            if is_due {
                // The schedule does not slip: it skips missed windows.
                let late = last.elapsed().saturating_sub(self.interval);
                last = Instant::now() - late.min(self.interval);
                self.cut();
            }
            if !self.follow_session(commands, is_due) {
                return self.end(commands);
            }
            if self.is_over {
                return;
            }
        }
    }

    /// Writes the last window.
    fn end(&mut self, commands: &Receiver<Command>) {
        let has_left = self.leave_if_alone();
        while let Some(command) = commands.receive_within(Duration::ZERO) {
            if let Command::Cut(window) = command {
                self.write(*window);
            }
        }
        let is_written = match has_left {
            true => self.write_last(),
            // The caller of `stop` waits no longer, and may have begun another pusher.
            false if self.progress.has_ended.load(Ordering::Acquire) => false,
            false => self.cut(),
        };
        self.progress.dropped.add((!is_written).into());
    }

    /// Ends the session if no one else wants it. Returns whether it did.
    fn leave_if_alone(&mut self) -> bool {
        let Some(windows) = &mut self.windows else {
            return false;
        };
        let (has_left, last) = windows.leave_if_alone();
        self.last = last.or(self.last.take());
        has_left
    }

    /// Writes the last window of a session that the pusher has ended, unless the callback for the end
    /// has sent a later one. The application may wait no longer, and have removed the callback. Returns
    /// false if it cannot be written.
    fn write_last(&mut self) -> bool {
        self.last.take().is_none_or(|last| self.write(last))
    }

    /// Returns false if the command ends the cutter.
    fn obey(&mut self, command: Command) -> bool {
        match command {
            Command::Interval(interval) => self.interval = interval,
            Command::Session(params) => {
                self.params = *params;
                self.is_changing = true;
            }
            Command::Cut(window) => _ = self.write(*window),
            Command::End => return false,
        }
        true
    }

    /// Returns false if the window cannot be written.
    fn cut(&mut self) -> bool {
        freeze_window().is_none_or(|window| self.write(window))
    }

    /// Writes a window, and gives it to the sender. Returns false if it cannot be written. Then the next
    /// window has its samples, too.
    fn write(&mut self, window: FrozenWindow) -> bool {
        let Some(windows) = &mut self.windows else {
            return true;
        };
        let id = new_id();
        let format = self.target.format(&id);
        match windows.write(window, &format) {
            Ok(None) => true,
            Ok(Some(written)) => {
                self.is_loss_told = false;
                let is_incomplete = !written.is_complete;
                self.progress.incomplete.add(is_incomplete.into());
                self.hand_over(self.target.item(id, written));
                true
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_loss_told, true) {
                    notify(&format!(
                        "cannot write a profile to push: got \"{error}\", expected memory for it; its samples \
                         are in the next one"
                    ));
                }
                false
            }
        }
    }

    /// Gives a profile to the sender, which may hang in a folder that does not answer.
    fn hand_over(&mut self, item: Item) {
        let bytes = item.bytes();
        if self.progress.handed_over.get() > self.max_bytes {
            self.progress.dropped.add(1);
            return;
        }
        self.progress.handed_over.add(bytes);
        self.is_over = !self.jobs.send(Job::Send(item));
        self.progress.dropped.add(self.is_over.into());
    }

    /// Uses another session once the one before has ended: the application's session at once, or
    /// its own session when the next profile is due. Returns false if a command has ended the
    /// cutter.
    fn follow_session(&mut self, commands: &Receiver<Command>, is_due: bool) -> bool {
        if self.is_changing {
            self.starts_at_once |= self.leave_if_alone();
        }
        if self.windows.as_ref().is_some_and(WindowCutter::is_running) {
            return true;
        }
        // The last window of a session was sent before the session ended.
        while let Some(command) = commands.receive_within(Duration::ZERO) {
            if !self.obey(command) {
                return false;
            }
        }
        self.write_last();
        self.windows = None;
        if self.is_over {
            return true;
        }
        if !is_due && !is_active() && !std::mem::take(&mut self.starts_at_once) {
            return true;
        }
        self.starts_at_once = false;
        self.is_changing = false;
        match WindowCutter::join(&self.params) {
            Ok(windows) => self.windows = Some(windows),
            Err(error) => {
                if !std::mem::replace(&mut self.is_told, true) {
                    notify(&error.to_string());
                }
            }
        }
        true
    }
}
