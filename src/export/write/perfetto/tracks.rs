//! The tracks of processes, threads and counters, and the ids that Perfetto knows them by.

use super::messages::{
    CounterDescriptor, ProcessDescriptor, TaskContext, ThreadDescriptor, TracePacket,
    TrackDescriptor,
};
use crate::model::{Counter, Process, ProfileModel, Thread};

const UNIT_SIZE_BYTES: i32 = 3;

/// Ids that are no numbers are replaced by numbers from here on, beyond those of Linux.
const FIRST_REPLACED_ID: u32 = 1 << 30;

/// Returns the track of a process, by its index.
pub(super) fn process_track(index: usize) -> u64 {
    1 << 40 | index as u64
}

/// Returns a track of a thread, by its index: lane 0 is the thread's own track, and the others are
/// below it.
pub(super) fn thread_track(index: usize, lane: usize) -> u64 {
    2 << 40 | (index as u64) << 8 | lane as u64
}

/// Returns the track of a counter, by its index.
pub(super) fn counter_track(index: usize) -> u64 {
    3 << 40 | index as u64
}

/// Returns the process and the thread that a sample belongs to.
pub(super) fn task_context(profile: &ProfileModel, index: usize) -> TaskContext {
    let thread = &profile.threads[index];
    TaskContext {
        pid: Some(id_number(&profile.process_of(thread).pid, thread.process)),
        tid: Some(id_number(&thread.tid, index)),
    }
}

/// Returns the number that an id begins with. Firefox's own ids may have a suffix.
fn id_number(id: &str, index: usize) -> u32 {
    let end = id.find(|digit: char| !digit.is_ascii_digit());
    let number = id[..end.unwrap_or(id.len())].parse::<i32>();
    let number = number.ok().filter(|number| *number != 0);
    let replaced = FIRST_REPLACED_ID | index as u32;
    number.map_or(replaced, i32::unsigned_abs)
}

fn describe(descriptor: TrackDescriptor) -> TracePacket {
    TracePacket {
        track_descriptor: Some(Box::new(descriptor)),
        ..TracePacket::default()
    }
}

pub(super) fn process_packet(process: &Process, index: usize) -> TracePacket {
    describe(TrackDescriptor {
        uuid: process_track(index),
        process: Some(ProcessDescriptor {
            pid: id_number(&process.pid, index) as i32,
            process_name: process.name.clone(),
        }),
        ..TrackDescriptor::default()
    })
}

pub(super) fn thread_packet(profile: &ProfileModel, thread: &Thread, index: usize) -> TracePacket {
    let TaskContext { pid, tid } = task_context(profile, index);
    describe(TrackDescriptor {
        uuid: thread_track(index, 0),
        parent_uuid: Some(process_track(thread.process)),
        thread: Some(ThreadDescriptor {
            pid: pid.unwrap_or_default() as i32,
            tid: tid.unwrap_or_default().into(),
            thread_name: thread.name.clone(),
        }),
        ..TrackDescriptor::default()
    })
}

/// Describes a track for the markers of a thread that overlap those on its other tracks.
pub(super) fn lane_packet(index: usize, lane: usize) -> TracePacket {
    describe(TrackDescriptor {
        uuid: thread_track(index, lane),
        parent_uuid: Some(thread_track(index, 0)),
        name: Some(format!("overlapping markers {lane}")),
        ..TrackDescriptor::default()
    })
}

pub(super) fn counter_packet(counter: &Counter, index: usize) -> TracePacket {
    let categories = Some(counter.category.clone()).filter(|name| !name.is_empty());
    describe(TrackDescriptor {
        uuid: counter_track(index),
        parent_uuid: Some(process_track(counter.process)),
        name: Some(counter.name.clone()),
        description: Some(counter.description.clone()).filter(|text| !text.is_empty()),
        counter: Some(CounterDescriptor {
            categories: categories.into_iter().collect(),
            unit: counter.is_bytes().then_some(UNIT_SIZE_BYTES),
        }),
        ..TrackDescriptor::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_become_numbers() {
        assert_eq!(id_number("4711", 0), 4711);
        assert_eq!(id_number("4711-2", 0), 4711);
        assert_eq!(id_number("0", 1), FIRST_REPLACED_ID + 1);
        assert_eq!(id_number("é", 2), FIRST_REPLACED_ID + 2);
        assert_eq!(id_number("99999999999", 3), FIRST_REPLACED_ID + 3);
    }

    #[test]
    fn tracks_of_all_kinds_differ() {
        let tracks = [
            process_track(0),
            thread_track(0, 0),
            thread_track(0, 1),
            thread_track(1, 0),
            counter_track(0),
        ];
        let unique: std::collections::HashSet<_> = tracks.into_iter().collect();
        assert_eq!(unique.len(), tracks.len());
    }
}
