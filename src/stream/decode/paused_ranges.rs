//! The profile's list of pauses.

use crate::buffer::EntryKind;
use crate::json::JsonWriter;
use crate::state::OpenPauses;
use crate::types::TimeStamp;

/// The reason for a pause, as the format names it. The format has no name for a pause of sampling
/// alone, during which markers are still recorded; `Collecting` is the nearest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reason {
    Paused,
    Collecting,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PausedRange {
    /// Start of the pause, in ns since the process began; `None` where the buffer does not reach
    /// back to it.
    start_ns: Option<u64>,
    /// End of the pause, in ns since the process began; `None` while the pause lasts.
    end_ns: Option<u64>,
    is_open: bool,
    reason: Reason,
}

/// The pauses of a session.
#[derive(Debug, Default)]
pub(crate) struct PausedRanges {
    ranges: Vec<PausedRange>,
    /// Starts of the pauses that no entry has ended so far, by [`Reason`].
    unended: [Option<u64>; 2],
}

impl PausedRanges {
    /// Adds an entry of the buffer for the beginning or the end of a pause.
    pub(crate) fn add(&mut self, kind: EntryKind, time_ns: u64) {
        let (reason, begins) = match kind {
            EntryKind::Pause => (Reason::Paused, true),
            EntryKind::Resume => (Reason::Paused, false),
            EntryKind::PauseSampling => (Reason::Collecting, true),
            EntryKind::ResumeSampling => (Reason::Collecting, false),
            _ => return,
        };
        let unended = &mut self.unended[reason as usize];
        if begins {
            // If an earlier pause has no end so far, that end is no longer in the buffer: drop the
            // pause.
            *unended = Some(time_ns);
        } else {
            // The beginning may no longer be in the buffer.
            let start_ns = unended.take();
            self.ranges.push(PausedRange {
                start_ns,
                end_ns: Some(time_ns),
                is_open: false,
                reason,
            });
        }
    }

    /// Adds the pauses that were open when the profile was taken, and drops other pauses without an
    /// end: the buffer no longer has their ends. Then sorts all pauses by their start. The starts
    /// of open pauses come from the session, because the buffer may not reach back to them.
    pub(crate) fn add_open(&mut self, open: OpenPauses, process_start: TimeStamp) {
        self.unended = [None; 2];
        for (since, reason) in [
            (open.paused_since, Reason::Paused),
            (open.sampling_paused_since, Reason::Collecting),
        ] {
            if let Some(since) = since {
                let start_ns = Some(since.since_ns(process_start));
                self.ranges.push(PausedRange {
                    start_ns,
                    end_ns: None,
                    is_open: true,
                    reason,
                });
            }
        }
        // Pauses whose start is lost come first.
        self.ranges.sort_by_key(|range| range.start_ns);
    }

    /// Removes the pauses that ended before `cut_ns`. A pause that began earlier and ended later
    /// keeps its end and loses its start.
    pub(crate) fn cut(&mut self, cut_ns: u64) {
        self.ranges
            .retain(|range| range.is_open || range.end_ns.is_some_and(|end_ns| end_ns >= cut_ns));
        for range in &mut self.ranges {
            range.start_ns = range.start_ns.filter(|&start_ns| start_ns >= cut_ns);
        }
    }

    pub(crate) fn write(&self, json: &mut JsonWriter<'_>) {
        let time = |json: &mut JsonWriter<'_>, time_ns| match time_ns {
            Some(time_ns) => json.time_ms(time_ns),
            None => json.null(),
        };
        json.array(|json| {
            for range in &self.ranges {
                json.object(|json| {
                    time(json.key("startTime"), range.start_ns);
                    time(json.key("endTime"), range.end_ns);
                    json.key("reason").string(match range.reason {
                        Reason::Paused => "profiler-paused",
                        Reason::Collecting => "collecting",
                    });
                });
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS_START: TimeStamp = TimeStamp(77);

    fn at(ms: u64) -> Option<TimeStamp> {
        Some(PROCESS_START.plus_ns(ms * 1_000_000))
    }

    fn written(entries: &[(EntryKind, u64)], open: OpenPauses) -> String {
        written_since(0, entries, open)
    }

    fn written_since(cut_ms: u64, entries: &[(EntryKind, u64)], open: OpenPauses) -> String {
        let mut ranges = PausedRanges::default();
        entries
            .iter()
            .for_each(|&(kind, ms)| ranges.add(kind, ms * 1_000_000));
        ranges.add_open(open, PROCESS_START);
        ranges.cut(cut_ms * 1_000_000);
        let mut text = Vec::new();
        let mut json = JsonWriter::new(&mut text);
        ranges.write(&mut json);
        json.finish().expect("a vector never fails");
        String::from_utf8(text).expect("UTF-8")
    }

    #[test]
    fn pauses_of_both_kinds_overlap_and_may_lack_an_end() {
        use EntryKind::{Pause, PauseSampling, Resume, ResumeSampling};
        let none = OpenPauses::default();
        assert_eq!(written(&[], none), "[]");
        let paused = OpenPauses {
            paused_since: at(5),
            ..none
        };
        assert_eq!(
            written(
                &[
                    (PauseSampling, 1),
                    (Pause, 2),
                    (ResumeSampling, 3),
                    (Resume, 4),
                    (Pause, 5)
                ],
                paused
            ),
            r#"[{"startTime":1,"endTime":3,"reason":"collecting"},{"startTime":2,"endTime":4,"reason":"profiler-paused"},{"startTime":5,"endTime":null,"reason":"profiler-paused"}]"#
        );
        assert_eq!(
            written(&[(ResumeSampling, 3)], paused),
            r#"[{"startTime":null,"endTime":3,"reason":"collecting"},{"startTime":5,"endTime":null,"reason":"profiler-paused"}]"#
        );
        // The ends of these pauses are no longer in the buffer.
        assert_eq!(written(&[(Pause, 2)], none), "[]");
        assert_eq!(
            written(&[(Pause, 2), (Pause, 3), (Resume, 4)], none),
            r#"[{"startTime":3,"endTime":4,"reason":"profiler-paused"}]"#
        );
        // Both pauses began before the oldest entry; the pause of sampling began first.
        let both = OpenPauses {
            sampling_paused_since: at(4),
            ..paused
        };
        assert_eq!(
            written(&[], both),
            r#"[{"startTime":4,"endTime":null,"reason":"collecting"},{"startTime":5,"endTime":null,"reason":"profiler-paused"}]"#
        );
        assert_eq!(
            written(&[(PauseSampling, 6), (ResumeSampling, 7)], paused),
            r#"[{"startTime":5,"endTime":null,"reason":"profiler-paused"},{"startTime":6,"endTime":7,"reason":"collecting"}]"#
        );
        assert_eq!(
            written_since(5, &[], both),
            r#"[{"startTime":null,"endTime":null,"reason":"collecting"},{"startTime":5,"endTime":null,"reason":"profiler-paused"}]"#
        );
        assert_eq!(
            written_since(
                5,
                &[(Pause, 1), (Resume, 3), (Pause, 4), (Resume, 6), (Pause, 7)],
                OpenPauses {
                    paused_since: at(7),
                    ..none
                }
            ),
            r#"[{"startTime":null,"endTime":6,"reason":"profiler-paused"},{"startTime":7,"endTime":null,"reason":"profiler-paused"}]"#
        );
    }
}
