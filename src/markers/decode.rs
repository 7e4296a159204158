//! A marker's way out of the buffer.

use std::borrow::Cow;

use crate::buffer::EntryReader;
use crate::markers::options::MarkerPhase;

pub(super) const PAYLOAD_NONE: u8 = 0;
pub(super) const PAYLOAD_TEXT: u8 = 1;

/// What a marker carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MarkerPayload<'a> {
    None,
    Text(Cow<'a, str>),
}

/// A marker as it was put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DecodedMarker<'a> {
    pub(crate) thread: u64,
    pub(crate) phase: MarkerPhase,
    /// Nanoseconds since the process began; 0 where the phase has no start.
    pub(crate) start_ns: u64,
    /// Likewise for the end.
    pub(crate) end_ns: u64,
    pub(crate) category: u8,
    pub(crate) name: Cow<'a, str>,
    pub(crate) payload: MarkerPayload<'a>,
}

impl<'a> DecodedMarker<'a> {
    /// The marker of an entry whose kind was read already; `None` when it is malformed.
    pub(crate) fn read(entry: &mut EntryReader<'a>) -> Option<Self> {
        let thread = entry.number()?;
        let phase = match entry.byte()? {
            0 => MarkerPhase::Instant,
            1 => MarkerPhase::Interval,
            2 => MarkerPhase::IntervalStart,
            3 => MarkerPhase::IntervalEnd,
            _ => return None,
        };
        let (start_ns, end_ns) = (entry.large()?, entry.large()?);
        let category = entry.byte()?;
        let _subcategory = entry.byte()?;
        let payload = entry.byte()?;
        let name_bytes = entry.number()?;
        let text_bytes = match payload {
            PAYLOAD_NONE => None,
            PAYLOAD_TEXT => Some(entry.number()?),
            _ => return None,
        };
        let name = String::from_utf8_lossy(entry.bytes(name_bytes)?);
        let payload = match text_bytes {
            None => MarkerPayload::None,
            Some(bytes) => MarkerPayload::Text(String::from_utf8_lossy(entry.bytes(bytes)?)),
        };
        Some(Self { thread, phase, start_ns, end_ns, category, name, payload })
    }

    /// The last moment that it tells of, in nanoseconds since the process began.
    pub(crate) fn last_ns(&self) -> u64 {
        match self.phase {
            MarkerPhase::Instant | MarkerPhase::IntervalStart => self.start_ns,
            MarkerPhase::Interval | MarkerPhase::IntervalEnd => self.end_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{ProfilerTime, ProfilingCategoryPair, TimeStamp};
    use crate::buffer::{ChunkedBuffer, EntryKind};
    use crate::markers::encode::MarkerEntry;
    use crate::markers::{MarkerTiming, NewMarker, put_marker};

    #[test]
    fn markers_read_back_with_the_times_of_their_phase() {
        let time = ProfilerTime::from_monotonic_ns;
        let cases = [
            (MarkerTiming::instant_now(), (MarkerPhase::Instant, 900, 0)),
            (MarkerTiming::instant_at(time(150)), (MarkerPhase::Instant, 50, 0)),
            (MarkerTiming::interval(time(200), time(300)), (MarkerPhase::Interval, 100, 200)),
            (MarkerTiming::interval_until_now_from(time(200)), (MarkerPhase::Interval, 100, 900)),
            (MarkerTiming::interval_start(time(200)), (MarkerPhase::IntervalStart, 100, 0)),
            (MarkerTiming::interval_end(time(200)), (MarkerPhase::IntervalEnd, 0, 100)),
        ];
        for (timing, (phase, start_ns, end_ns)) in cases {
            let buffer = ChunkedBuffer::for_test(1 << 20);
            let category = ProfilingCategoryPair::Network(None);
            let session = ChunkedBuffer::TEST_SESSION;
            let marker =
                NewMarker { session, thread: 3, name: "name µ", category, timing, text: Some("text") };
            let lane = buffer.take_lane();
            let put = |session, now, entry: &MarkerEntry<'_>| lane.put(session, now, entry).is_some();
            assert!(put_marker(put, TimeStamp(1000), TimeStamp(100), &marker));
            let mut seen = 0;
            for block in buffer.snapshot().chunks().flatten() {
                let mut entry = block.expect("well formed").entry;
                assert_eq!(entry.kind(), Some(EntryKind::Marker));
                let decoded = DecodedMarker::read(&mut entry).expect("well formed");
                let payload = MarkerPayload::Text("text".into());
                let name = "name µ".into();
                assert_eq!(
                    decoded,
                    DecodedMarker { thread: 3, phase, start_ns, end_ns, category: 6, name, payload }
                );
                seen += 1;
            }
            assert_eq!(seen, 1);
        }
    }
}
