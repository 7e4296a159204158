//! A marker's way into the buffer.

use crate::base::{Generation, ProfilingCategoryPair, TimeStamp};
use crate::buffer::{EntryHead, EntryKind};
use crate::markers::decode::{PAYLOAD_NONE, PAYLOAD_TEXT};
use crate::markers::options::{MarkerPhase, MarkerTiming};

/// A marker that is being added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewMarker<'a> {
    pub(crate) session: Generation,
    /// The registration of the thread that it is of.
    pub(crate) thread: u64,
    pub(crate) name: &'a str,
    pub(crate) category: ProfilingCategoryPair,
    pub(crate) timing: MarkerTiming,
    pub(crate) text: Option<&'a str>,
}

/// Has a marker `put` into its session; true when it is stored. `now` fills in the times that were left open; times in the
/// buffer count from `process_start`.
#[inline]
pub(crate) fn put_marker(
    put: impl FnOnce(Generation, TimeStamp, &[&[u8]]) -> bool,
    now: TimeStamp,
    process_start: TimeStamp,
    marker: &NewMarker<'_>,
) -> bool {
    let timing = marker.timing;
    let or_now = |time: Option<_>| time.map_or(now, |time: crate::base::ProfilerTime| time.timestamp());
    let (start, end) = match timing.phase {
        MarkerPhase::Instant | MarkerPhase::IntervalStart => (or_now(timing.start), process_start),
        MarkerPhase::Interval => (or_now(timing.start), or_now(timing.end)),
        MarkerPhase::IntervalEnd => (process_start, or_now(timing.end)),
    };
    let (category, subcategory) = marker.category.indices();
    let head = EntryHead::new(EntryKind::Marker)
        .number(marker.thread)
        .byte(timing.phase as u8)
        .number(start.since_ns(process_start))
        .number(end.since_ns(process_start))
        .byte(category)
        .byte(subcategory)
        .number(marker.name.len() as u64);
    let payload = match marker.text {
        None => EntryHead::bare().byte(PAYLOAD_NONE),
        Some(text) => EntryHead::bare().byte(PAYLOAD_TEXT).number(text.len() as u64),
    };
    let text = marker.text.unwrap_or_default().as_bytes();
    put(marker.session, now, &[head.bytes(), marker.name.as_bytes(), payload.bytes(), text])
}
