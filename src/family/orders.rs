//! What a parent tells its children to do.

use std::time::Duration;

use serde_json::{Value, json};

use crate::family::fields::{Fields, MessageError};
use crate::family::frames::{Frame, frame};
use crate::family::messages::{MAX_MESSAGE_BYTES, MAX_SESSION_BYTES, VERSION};
use crate::platform::ProcessStart;
use crate::state::SessionSettings;
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

    fn read(fields: &Fields) -> Result<Self, MessageError> {
        let duration = fields.number_if_any("duration")?;
        let filters = fields.list("filters", |filter| Some(filter.as_str()?.to_owned()))?;
        let mut params = StartParams::default()
            .capacity_bytes(fields.number("capacity")?)
            .interval(Duration::from_nanos(fields.number("interval")?))
            .features(Features::from_bits(fields.number("features")?))
            .filters(filters)
            .duration(Duration::from_nanos(duration.unwrap_or(0)))
            .allocation_interval_bytes(fields.number("allocationInterval")?)
            .active_tab_id(fields.number("activeTabId")?)
            .record_overheads(fields.flag("overheads")?)
            .max_markers_per_second(u32::try_from(fields.number("maxMarkers")?).unwrap_or(u32::MAX))
            .children(true);
        let max_cpu_bits = fields.number_if_any("maxCpuBits")?;
        params.max_cpu_percent = max_cpu_bits.map(f64::from_bits);
        Ok(Self {
            params,
            max_exit_bytes: fields.number("maxExit")?,
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
    pub(crate) since: Option<TimeStamp>,
    pub(crate) max_rows: u64,
    pub(crate) symbolicate: Symbolicate,
    pub(crate) child_timeout: Duration,
    /// Whether threads that sleep alike may be shown as one track.
    pub(crate) merges_alike: bool,
    pub(crate) clock: ProcessStart,
}

const HOW_NAMED: [Symbolicate; 3] = [Symbolicate::Full, Symbolicate::NamesOnly, Symbolicate::No];

impl GatherOrder {
    fn to_json(self) -> Value {
        let names = HOW_NAMED.iter().position(|how| *how == self.symbolicate);
        json!({
            "frozen": self.frozen,
            "since": self.since.map(|since| since.0),
            "maxRows": self.max_rows,
            "names": names,
            "timeout": ns(self.child_timeout),
            "mergesAlike": self.merges_alike,
            "clock": self.clock.monotonic.0,
            // As bits, because the parser of floats is not exact.
            "epochBits": self.clock.epoch_ms.to_bits(),
            "isClockKnown": self.clock.is_known,
        })
    }

    fn read(fields: &Fields) -> Result<Self, MessageError> {
        let names = usize::try_from(fields.number("names")?).unwrap_or(usize::MAX);
        let epoch_ms = f64::from_bits(fields.number("epochBits")?);
        let valid = |name, is_valid| match is_valid {
            true => Ok(()),
            false => Err(MessageError::Field { name }),
        };
        valid("names", names < HOW_NAMED.len())?;
        valid("epochBits", epoch_ms.is_finite())?;
        Ok(Self {
            frozen: fields.number("frozen")?,
            since: fields.number_if_any("since")?.map(TimeStamp),
            max_rows: fields.number("maxRows")?,
            symbolicate: HOW_NAMED[names],
            child_timeout: Duration::from_nanos(fields.number("timeout")?),
            merges_alike: fields.flag("mergesAlike")?,
            clock: ProcessStart {
                monotonic: TimeStamp(fields.number("clock")?),
                epoch_ms,
                is_known: fields.flag("isClockKnown")?,
            },
        })
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
const STOP: u8 = 4;
const PAUSE: u8 = 5;
const RESUME: u8 = 6;
const PAUSE_SAMPLING: u8 = 7;
const RESUME_SAMPLING: u8 = 8;
const WAIT_FOR_SAMPLING: u8 = 9;
const AWAIT_CHUNK_UPDATE: u8 = 10;
const DESTROY_CHUNKS: u8 = 11;
const FREEZE: u8 = 12;
const GATHER: u8 = 13;
const ASK_PROGRESS: u8 = 14;
const CANCEL: u8 = 15;
const RELEASE: u8 = 16;
const CLEAR_PAGES: u8 = 17;
const STOP_INHERITED: u8 = 18;

/// Returns the maximum length of an order's frame.
pub(crate) fn order_limits(kind: u8) -> Option<usize> {
    match kind {
        START | ENSURE_STARTED => Some(MAX_SESSION_BYTES),
        WELCOME..=STOP_INHERITED => Some(MAX_MESSAGE_BYTES),
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
            Order::Stop => (STOP, json!({})),
            Order::StopInherited => (STOP_INHERITED, json!({})),
            Order::Pause => (PAUSE, json!({})),
            Order::Resume => (RESUME, json!({})),
            Order::PauseSampling => (PAUSE_SAMPLING, json!({})),
            Order::ResumeSampling => (RESUME_SAMPLING, json!({})),
            Order::WaitForSampling => (WAIT_FOR_SAMPLING, json!({})),
            Order::AwaitChunkUpdate => (AWAIT_CHUNK_UPDATE, json!({})),
            Order::DestroyChunks(until) => (DESTROY_CHUNKS, json!({ "until": until.0 })),
            Order::Freeze => (FREEZE, json!({})),
            Order::Gather(gather) => (GATHER, gather.to_json()),
            Order::AskProgress => (ASK_PROGRESS, json!({})),
            Order::Cancel => (CANCEL, json!({})),
            Order::Release => (RELEASE, json!({})),
            Order::ClearPages => (CLEAR_PAGES, json!({})),
        };
        fields["id"] = self.id.into();
        let content = fields.to_string().into_bytes();
        let is_accepted = order_limits(kind).is_some_and(|max_bytes| content.len() <= max_bytes);
        is_accepted.then(|| frame(kind, &content))
    }

    /// Reads the order in a frame.
    pub(crate) fn decode(frame: Frame<'_>) -> Result<Self, MessageError> {
        let fields = Fields::parse(frame.content)?;
        let order = match frame.kind {
            WELCOME => match fields.number("version")? {
                VERSION => Order::Welcome,
                _ => return Err(MessageError::Field { name: "version" }),
            },
            START => Order::Start(ChildSession::read(&fields)?),
            ENSURE_STARTED => Order::EnsureStarted(ChildSession::read(&fields)?),
            STOP => Order::Stop,
            STOP_INHERITED => Order::StopInherited,
            PAUSE => Order::Pause,
            RESUME => Order::Resume,
            PAUSE_SAMPLING => Order::PauseSampling,
            RESUME_SAMPLING => Order::ResumeSampling,
            WAIT_FOR_SAMPLING => Order::WaitForSampling,
            AWAIT_CHUNK_UPDATE => Order::AwaitChunkUpdate,
            DESTROY_CHUNKS => Order::DestroyChunks(TimeStamp(fields.number("until")?)),
            FREEZE => Order::Freeze,
            GATHER => Order::Gather(GatherOrder::read(&fields)?),
            ASK_PROGRESS => Order::AskProgress,
            CANCEL => Order::Cancel,
            RELEASE => Order::Release,
            CLEAR_PAGES => Order::ClearPages,
            _ => return Err(MessageError::Content),
        };
        let id = fields.number("id")?;
        Ok(Self { id, order })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::family::frames::FrameDecoder;

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
