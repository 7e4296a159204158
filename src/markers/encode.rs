//! A marker's way into the buffer.

use crate::base::{Generation, ProfilerTime, ProfilingCategoryPair, TimeStamp};
use crate::buffer::{Entry, EntryCursor, EntryKind, large_bytes, number_bytes};
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

/// A marker as it stands in the buffer.
#[derive(Debug)]
pub(crate) struct MarkerEntry<'a> {
    marker: &'a NewMarker<'a>,
    start_ns: u64,
    end_ns: u64,
}

impl Entry for MarkerEntry<'_> {
    #[inline(always)]
    fn bytes(&self) -> usize {
        let Self { marker, start_ns, end_ns } = self;
        let text_bytes = marker.text.map_or(0, |text| number_bytes(text.len() as u64) + text.len());
        // Kind, phase, category, subcategory and payload take one each.
        5 + number_bytes(marker.thread)
            + large_bytes(*start_ns)
            + large_bytes(*end_ns)
            + number_bytes(marker.name.len() as u64)
            + marker.name.len()
            + text_bytes
    }

    #[inline(always)]
    fn write(&self, out: &mut EntryCursor<'_>) {
        let Self { marker, start_ns, end_ns } = self;
        let (category, subcategory) = marker.category.indices();
        out.byte(EntryKind::Marker as u8);
        out.number(marker.thread);
        out.byte(marker.timing.phase as u8);
        out.large(*start_ns);
        out.large(*end_ns);
        out.byte(category);
        out.byte(subcategory);
        out.byte(if marker.text.is_some() { PAYLOAD_TEXT } else { PAYLOAD_NONE });
        out.number(marker.name.len() as u64);
        if let Some(text) = marker.text {
            out.number(text.len() as u64);
        }
        out.raw(marker.name.as_bytes());
        if let Some(text) = marker.text {
            out.raw(text.as_bytes());
        }
    }
}

/// Has a marker `put` into its session; true when it is stored. `now` fills in the times that were left open; times in the
/// buffer count from `process_start`.
#[inline(always)]
pub(crate) fn put_marker<'a>(
    put: impl FnOnce(Generation, TimeStamp, &MarkerEntry<'a>) -> bool,
    now: TimeStamp,
    process_start: TimeStamp,
    marker: &'a NewMarker<'a>,
) -> bool {
    let timing = marker.timing;
    let or_now = |time: Option<ProfilerTime>| time.map_or(now, ProfilerTime::timestamp);
    let (start, end) = match timing.phase {
        MarkerPhase::Instant | MarkerPhase::IntervalStart => (or_now(timing.start), process_start),
        MarkerPhase::Interval => (or_now(timing.start), or_now(timing.end)),
        MarkerPhase::IntervalEnd => (process_start, or_now(timing.end)),
    };
    let (start_ns, end_ns) = (start.since_ns(process_start), end.since_ns(process_start));
    put(marker.session, now, &MarkerEntry { marker, start_ns, end_ns })
}
