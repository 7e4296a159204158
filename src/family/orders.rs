//! What a parent tells its children to do.

use std::mem::discriminant;
use std::time::Duration;

use serde_json::{Value, json};

use crate::family::messages::{
    Frame, MAX_MESSAGE_BYTES, MAX_SESSION_BYTES, VERSION, fields_of, frame, if_any, text,
};
use crate::platform::ProcessStart;
use crate::state::SessionSettings;
use crate::stream::GatherRequest;
use crate::types::{Features, StartParams, Symbolicate, TimeStamp};

/// A session as a child is to record it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ChildSession {
    pub(crate) params: StartParams,
    /// Maximum size of the profile that the child sends when it ends, in bytes.
    pub(crate) max_exit_bytes: u64,
}

impl ChildSession {
    /// Returns the session of the children of a process that has a session with these settings.
    pub(crate) fn of_parent(settings: &SessionSettings, max_exit_bytes: u64) -> Self {
        let mut params = StartParams::default()
            .capacity_bytes(settings.capacity_bytes)
            .interval(settings.interval)
            .features(settings.features)
            .filters(settings.filters.iter().cloned())
            .duration(settings.duration.unwrap_or_default())
            .allocation_interval_bytes(settings.allocation_interval_bytes)
            .active_tab_id(settings.active_tab_id)
            .record_overheads(settings.records_overheads)
            .max_markers_per_second(settings.max_markers_per_second)
            .children(true);
        params.max_cpu_percent = settings.max_cpu_percent();
        Self {
            params,
            max_exit_bytes,
        }
    }

    fn to_json(&self) -> Value {
        let params = &self.params;
        json!({
            "capacity": params.capacity_bytes,
            "interval": ns(params.interval),
            // As bits, because the parser of floats is not exact.
            "maxCpuBits": params.max_cpu_percent.map(f64::to_bits),
            "maxMarkers": params.max_markers_per_second,
            "features": params.features.bits(),
            "filters": params.filters,
            "duration": params.duration.map(ns),
            "allocationInterval": params.allocation_interval_bytes,
            "activeTabId": params.active_tab_id,
            "overheads": params.record_overheads,
            "maxExit": self.max_exit_bytes,
        })
    }

    fn read(fields: &Value) -> Option<Self> {
        let duration = if_any(&fields["duration"], Value::as_u64)?;
        let filters = fields["filters"].as_array()?.iter().map(text);
        let mut params = StartParams::default()
            .capacity_bytes(fields["capacity"].as_u64()?)
            .interval(Duration::from_nanos(fields["interval"].as_u64()?))
            .features(Features::from_bits(fields["features"].as_u64()?))
            .filters(filters.collect::<Option<Vec<_>>>()?)
            .duration(Duration::from_nanos(duration.unwrap_or(0)))
            .allocation_interval_bytes(fields["allocationInterval"].as_u64()?)
            .active_tab_id(fields["activeTabId"].as_u64()?)
            .record_overheads(fields["overheads"].as_bool()?)
            .max_markers_per_second(
                u32::try_from(fields["maxMarkers"].as_u64()?).unwrap_or(u32::MAX),
            )
            .children(true);
        params.max_cpu_percent = if_any(&fields["maxCpuBits"], Value::as_u64)?.map(f64::from_bits);
        Some(Self {
            params,
            max_exit_bytes: fields["maxExit"].as_u64()?,
        })
    }
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// What a parent wants of the profile that a child has frozen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GatherOrder {
    /// Number of the order to freeze.
    pub(crate) frozen: u64,
    pub(crate) request: GatherRequest,
}

const HOW_NAMED: [Symbolicate; 3] = [Symbolicate::Full, Symbolicate::NamesOnly, Symbolicate::No];

impl GatherOrder {
    fn to_json(self) -> Value {
        let Self { frozen, request } = self;
        let names = HOW_NAMED.iter().position(|how| *how == request.symbolicate);
        json!({
            "frozen": frozen,
            "since": request.since.map(|since| since.0),
            "maxRows": request.max_rows,
            "names": names,
            "timeout": ns(request.child_timeout),
            "mergesAlike": request.merges_alike,
            "clock": request.clock.monotonic.0,
            // As bits, because the parser of floats is not exact.
            "epochBits": request.clock.epoch_ms.to_bits(),
            "isClockKnown": request.clock.is_known,
        })
    }

    fn read(fields: &Value) -> Option<Self> {
        let names = usize::try_from(fields["names"].as_u64()?).ok()?;
        let epoch_ms = f64::from_bits(fields["epochBits"].as_u64()?);
        let request = GatherRequest {
            since: if_any(&fields["since"], Value::as_u64)?.map(TimeStamp),
            max_rows: fields["maxRows"].as_u64()?,
            symbolicate: *HOW_NAMED.get(names)?,
            child_timeout: Duration::from_nanos(fields["timeout"].as_u64()?),
            merges_alike: fields["mergesAlike"].as_bool()?,
            clock: ProcessStart {
                monotonic: TimeStamp(fields["clock"].as_u64()?),
                epoch_ms: Some(epoch_ms).filter(|ms| ms.is_finite())?,
                is_known: fields["isClockKnown"].as_bool()?,
            },
        };
        let frozen = fields["frozen"].as_u64()?;
        Some(Self { frozen, request })
    }
}

/// What a parent tells a child to do.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    /// The first message: the parent has accepted the child.
    Welcome,
    Start(ChildSession),
    /// Starts a session, unless one with these settings runs.
    EnsureStarted(ChildSession),
    Stop,
    /// Stops the session that the parent's variables have started. A child that has started its
    /// session itself keeps it.
    StopInherited,
    Pause,
    Resume,
    PauseSampling,
    ResumeSampling,
    /// Answers after the sampler has run once.
    WaitForSampling,
    /// Answers once the chunks of the buffer have changed.
    AwaitChunkUpdate,
    /// Drops the chunks that were complete at this time.
    DestroyChunks(TimeStamp),
    /// Takes a snapshot, for a later `Gather`.
    Freeze,
    Gather(GatherOrder),
    /// Asks how far the order to gather with the same number is.
    AskProgress,
    /// Gives up the order to gather with the same number.
    Cancel,
    /// Drops the snapshot of the order to freeze with the same number.
    Release,
    ClearPages,
}

/// An order and its number.
#[derive(Clone, Debug)]
pub(crate) struct NumberedOrder {
    pub(crate) id: u64,
    pub(crate) order: Order,
}

const WELCOME: u8 = 1;
const START: u8 = 2;
const ENSURE_STARTED: u8 = 3;
const DESTROY_CHUNKS: u8 = 11;
const GATHER: u8 = 13;
const LAST: u8 = 18;

/// The orders that have no content but their number.
static PLAIN: [(u8, Order); 13] = [
    (4, Order::Stop),
    (5, Order::Pause),
    (6, Order::Resume),
    (7, Order::PauseSampling),
    (8, Order::ResumeSampling),
    (9, Order::WaitForSampling),
    (10, Order::AwaitChunkUpdate),
    (12, Order::Freeze),
    (14, Order::AskProgress),
    (15, Order::Cancel),
    (16, Order::Release),
    (17, Order::ClearPages),
    (LAST, Order::StopInherited),
];

/// Returns the maximum length of an order's frame.
pub(crate) fn order_limits(kind: u8) -> Option<usize> {
    match kind {
        START | ENSURE_STARTED => Some(MAX_SESSION_BYTES),
        WELCOME..=LAST => Some(MAX_MESSAGE_BYTES),
        _ => None,
    }
}

impl NumberedOrder {
    /// Returns the order as a frame, or `None` if it is longer than a child accepts.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let (kind, mut fields) = match &self.order {
            Order::Welcome => (WELCOME, json!({ "version": VERSION })),
            Order::Start(session) => (START, session.to_json()),
            Order::EnsureStarted(session) => (ENSURE_STARTED, session.to_json()),
            Order::DestroyChunks(until) => (DESTROY_CHUNKS, json!({ "until": until.0 })),
            Order::Gather(gather) => (GATHER, gather.to_json()),
            plain => {
                let mut known = PLAIN.iter();
                let same = known.find(|(_, known)| discriminant(known) == discriminant(plain));
                (same?.0, json!({}))
            }
        };
        fields["id"] = self.id.into();
        let content = fields.to_string().into_bytes();
        let is_accepted = order_limits(kind).is_some_and(|max_bytes| content.len() <= max_bytes);
        is_accepted.then(|| frame(kind, &content))
    }

    /// Reads the order in a frame; `None` if it is malformed.
    pub(crate) fn decode(frame: Frame<'_>) -> Option<Self> {
        let fields = fields_of(frame.content)?;
        let order = match frame.kind {
            WELCOME => (fields["version"].as_u64()? == VERSION).then_some(Order::Welcome)?,
            START => Order::Start(ChildSession::read(&fields)?),
            ENSURE_STARTED => Order::EnsureStarted(ChildSession::read(&fields)?),
            DESTROY_CHUNKS => Order::DestroyChunks(TimeStamp(fields["until"].as_u64()?)),
            GATHER => Order::Gather(GatherOrder::read(&fields)?),
            kind => PLAIN.iter().find(|(known, _)| *known == kind)?.1.clone(),
        };
        let id = fields["id"].as_u64()?;
        Some(Self { id, order })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::family::messages::FrameDecoder;

    #[test]
    fn orders_round_trip() {
        let params = StartParams::default()
            .filters(["a", "", "ö\"", "pid:7"])
            .interval(Duration::from_nanos(1_234_567))
            .duration(Duration::from_secs(u64::MAX))
            .features(Features::from_bits(u64::MAX))
            .record_overheads(true)
            .max_cpu_percent(0.07)
            .max_markers_per_second(u32::MAX)
            .children(true);
        let session = ChildSession {
            params,
            max_exit_bytes: 1 << 40,
        };
        let gather = GatherOrder {
            frozen: 3,
            request: GatherRequest {
                since: Some(TimeStamp(u64::MAX)),
                max_rows: 5,
                symbolicate: Symbolicate::NamesOnly,
                child_timeout: Duration::from_millis(1500),
                merges_alike: true,
                clock: ProcessStart {
                    monotonic: TimeStamp(7),
                    epoch_ms: 1_732_650_000_123.456_7,
                    is_known: true,
                },
            },
        };
        for order in [
            Order::Welcome,
            Order::Start(session.clone()),
            Order::EnsureStarted(session),
            Order::Stop,
            Order::StopInherited,
            Order::Pause,
            Order::Resume,
            Order::PauseSampling,
            Order::ResumeSampling,
            Order::WaitForSampling,
            Order::AwaitChunkUpdate,
            Order::DestroyChunks(TimeStamp(9)),
            Order::Freeze,
            Order::Gather(gather),
            Order::AskProgress,
            Order::Cancel,
            Order::Release,
            Order::ClearPages,
        ] {
            let numbered = NumberedOrder { id: 11, order };
            let bytes = numbered.encode().expect("short");
            let mut decoder = FrameDecoder::new(order_limits);
            decoder.push(&bytes);
            let frame = decoder.next_frame().expect("accepted").expect("whole");
            let read = NumberedOrder::decode(frame).expect("valid");
            // The longest duration is rounded to the longest one in ns.
            let expected =
                format!("{numbered:?}").replace("18446744073709551615s", "18446744073.709551615s");
            assert_eq!(format!("{read:?}"), expected);
        }
    }

    #[test]
    fn session_with_filters_that_are_too_long_has_no_message() {
        let session = ChildSession {
            params: StartParams::default().filters(["x".repeat(MAX_SESSION_BYTES)]),
            max_exit_bytes: 0,
        };
        let order = Order::Start(session);
        assert!(NumberedOrder { id: 1, order }.encode().is_none());
    }
}
