//! The thread that cuts the session into windows, and writes each as a profile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::platform::{Receiver, Sender};
use crate::pushing::item::new_id;
use crate::pushing::messages::{Command, Job};
use crate::pushing::progress::Progress;
use crate::pushing::target::Target;
use crate::session::{FrozenWindow, WindowCutter, freeze_window, is_active, notify};
use crate::types::StartParams;

/// Time between two looks at the session.
const STEP: Duration = Duration::from_millis(250);

pub(super) struct Cutter {
    pub(super) params: StartParams,
    pub(super) interval: Duration,
    /// `None` after the session has ended.
    pub(super) windows: Option<WindowCutter>,
    pub(super) target: Target,
    pub(super) jobs: Arc<Sender<Job>>,
    pub(super) progress: Arc<Progress>,
    /// Whether a notice has said that no session can be started.
    pub(super) is_told: bool,
    /// Whether the sender has ended, so that nothing is left to do.
    pub(super) is_over: bool,
}

impl Cutter {
    /// Runs until a command ends it.
    pub(super) fn run(mut self, commands: &Receiver<Command>) {
        let mut last = Instant::now();
        loop {
            let rest = (last + self.interval).saturating_duration_since(Instant::now());
            match commands.receive_within(rest.min(STEP)) {
                Some(Command::Interval(interval)) => self.interval = interval,
                Some(Command::Cut(window)) => self.write(*window),
                Some(Command::End) => return self.cut(),
                None => {}
            }
            let is_due = last + self.interval <= Instant::now();
            if is_due {
                // The schedule does not slip, but skips what it has missed.
                let late = last.elapsed().saturating_sub(self.interval);
                last = Instant::now() - late.min(self.interval);
                self.cut();
            }
            self.follow_session(is_due);
            if self.is_over {
                return;
            }
        }
    }

    fn cut(&mut self) {
        if let Some(window) = freeze_window() {
            self.write(window);
        }
    }

    fn write(&mut self, window: FrozenWindow) {
        let Some(windows) = &mut self.windows else {
            return;
        };
        let id = new_id();
        let format = self.target.format(&id);
        // Without memory, the next window has the samples, too.
        if let Ok(Some(written)) = windows.write(window, &format) {
            self.progress
                .incomplete
                .add(u64::from(!written.is_complete));
            self.is_over = !self.jobs.send(Job::Send(self.target.item(id, written)));
            self.progress.dropped.add(self.is_over.into());
        }
    }

    /// Uses another session once the one before has ended: that of the application at once, and one
    /// of its own when the next profile is due.
    fn follow_session(&mut self, is_due: bool) {
        if self.windows.as_ref().is_some_and(WindowCutter::is_running) {
            return;
        }
        self.windows = None;
        if !is_due && !is_active() {
            return;
        }
        match WindowCutter::join(&self.params) {
            Ok(windows) => self.windows = Some(windows),
            Err(error) => {
                if !std::mem::replace(&mut self.is_told, true) {
                    notify(&error.to_string());
                }
            }
        }
    }
}
