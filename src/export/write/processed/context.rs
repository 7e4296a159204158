//! Facts that the writer collects before it writes the first byte.

use crate::export::options::ExportOptions;
use crate::export::write::processed::categories::Categories;
use crate::export::write::processed::libs::Libs;
use crate::export::write::processed::schemas::Schemas;
use crate::export::write::processed::used_rows::UsedRows;
use crate::model::{ProfileModel, Shown, show_threads};

/// Facts that all parts of the writer read.
pub(super) struct Context<'a> {
    pub(super) profile: &'a ProfileModel,
    pub(super) options: &'a ExportOptions,
    /// Indices of the written threads, in their order.
    pub(super) threads: Vec<usize>,
    /// How the file shows each thread of the profile.
    pub(super) shown: Vec<Shown>,
    pub(super) rows: UsedRows,
    pub(super) libs: Libs,
    pub(super) categories: Categories<'a>,
    pub(super) schemas: Schemas,
}

impl<'a> Context<'a> {
    pub(super) fn new(profile: &'a ProfileModel, options: &'a ExportOptions) -> Self {
        let shown = show_threads(profile.threads.iter().map(|thread| {
            let place = (thread.process, thread.asleep_at?);
            Some((thread.name.as_str(), place))
        }));
        let mut threads = options.tracks(profile);
        if options.thread.is_none() {
            threads.retain(|&index| shown[index] != Shown::ByAnother);
        }
        let rows = UsedRows::of(profile, &threads, options);
        Self {
            categories: Categories::of(profile, &rows),
            libs: Libs::of(profile),
            schemas: Schemas::of(profile),
            profile,
            options,
            threads,
            shown,
            rows,
        }
    }

    /// Returns the index in the file of the main thread of a process, or of its first thread if the
    /// main thread is not written. `None` if the process has no written thread.
    pub(super) fn main_thread(&self, process: usize) -> Option<usize> {
        let threads = self
            .threads
            .iter()
            .map(|&index| &self.profile.threads[index]);
        let mut of_process = threads
            .enumerate()
            .filter(|(_, thread)| thread.process == process);
        let main = of_process.clone().find(|(_, thread)| thread.is_main);
        main.or_else(|| of_process.next()).map(|(index, _)| index)
    }
}
