//! Facts that the writer collects before it writes the first byte.

use crate::export::options::ExportOptions;
use crate::export::write::processed::categories::Categories;
use crate::export::write::processed::libs::Libs;
use crate::export::write::processed::schemas::Schemas;
use crate::export::write::processed::used_rows::UsedRows;
use crate::model::{
    FunctionId, MAX_ASLEEP_CPU_NS, MAX_SYSTEM_CALL_BYTES, ModuleId, ProfileModel, Shown, StackId,
    Thread, WeightUnit, show_threads,
};

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
        let shown = show_threads(profile.threads.iter().map(|thread| asleep(profile, thread)));
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

/// Where a thread slept: its process, its callers' stack, and its innermost frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    process: usize,
    callers: Option<StackId>,
    leaf: Leaf,
}

/// A frame of a system call.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Leaf {
    At(Option<ModuleId>, u64),
    /// The address is not known.
    In(FunctionId),
}

impl Place {
    fn of(profile: &ProfileModel, process: usize, stack: StackId) -> Self {
        let (callers, frame) = profile.stack(stack);
        let frame = profile.frame(frame);
        let leaf = match frame.address {
            Some(address) => Leaf::At(profile.function(frame.function).module, address),
            None => Leaf::In(frame.function),
        };
        Self {
            process,
            callers,
            leaf,
        }
    }

    /// Returns this place or the other one, whichever is behind the instruction of the system call, if
    /// the other place is at most as far from it as that instruction is long. A signal may find a
    /// sleeping thread at the instruction.
    fn merged_with(self, other: Self) -> Option<Self> {
        let callers = |place: &Self| (place.process, place.callers);
        match (self.leaf, other.leaf) {
            _ if self == other => Some(self),
            (Leaf::At(module, one), Leaf::At(of_other, two))
                if callers(&self) == callers(&other)
                    && module == of_other
                    && one.abs_diff(two) <= MAX_SYSTEM_CALL_BYTES =>
            {
                Some(if one < two { other } else { self })
            }
            _ => None,
        }
    }
}

/// Returns a thread's name and the place where it slept, if it slept throughout the profile.
fn asleep<'a>(profile: &ProfileModel, thread: &'a Thread) -> Option<(&'a str, Place)> {
    let samples = &thread.samples;
    let (begin_ns, _) = profile.meta.session_ns?;
    let of_process = profile.processes[thread.process].session_start_ns;
    let begin_ns = of_process.map_or(begin_ns, |own_ns| own_ns.max(begin_ns));
    let was_there = thread.registered_ns.is_some_and(|at| at <= begin_ns)
        && thread.unregistered_ns.is_none()
        && !thread.is_main
        && samples.weight_unit == WeightUnit::Samples;
    if !was_there || !thread.markers.is_empty() {
        return None;
    }
    let place = |stack: StackId| Place::of(profile, thread.process, stack);
    let first = place(samples.iter().next()?.stack?);
    let mut asleep_at = first;
    let mut ran_ns = 0u64;
    for sample in samples.iter() {
        let here = place(sample.stack?);
        // Both must be at the same call, so that small steps do not add up.
        first.merged_with(here)?;
        asleep_at = asleep_at.merged_with(here)?;
        ran_ns = ran_ns.saturating_add(sample.cpu_delta_ns?);
        if sample.event_delay_ns.is_some() || ran_ns > MAX_ASLEEP_CPU_NS {
            return None;
        }
    }
    Some((thread.name.as_str(), asleep_at))
}
