//! The messages between a parent and its children, and their encoding.
//!
//! A message is a frame whose content is a JSON object, or a part of a profile's text as it is. The
//! parent sends orders, and a child sends reports. Each order has a number, which the report about
//! it repeats.

use std::time::Duration;

use serde_json::{Value, json};

use crate::buffer::{ChunkMetadata, Update};
use crate::family::fields::{Fields, MessageError};
use crate::family::frames::{Frame, frame};
use crate::platform::{FileDescriptor, ProcessStart};
use crate::state::SessionSettings;
use crate::types::{Features, StartParams, Symbolicate, TimeStamp};

/// The version of the messages. A parent and a child of different versions do not understand each
/// other.
pub(crate) const VERSION: u64 = 1;

/// Maximum length of a part of a profile's text, in bytes.
pub(crate) const MAX_DATA_BYTES: usize = 64 << 10;
/// Maximum length of a message with the settings of a session, in bytes.
const MAX_SESSION_BYTES: usize = 256 << 10;
/// Maximum length of any message's content, in bytes.
#[cfg(any(test, fuzzing))]
pub(crate) const MAX_MESSAGE_CONTENT: usize = MAX_SESSION_BYTES;
/// Maximum length of any other message, in bytes.
const MAX_MESSAGE_BYTES: usize = 16 << 10;
/// Maximum number of characters in a name or a reason.
const MAX_TEXT: usize = 400;
/// Progress that is complete.
pub(crate) const WHOLE: u32 = 1_000_000;

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
        let params = StartParams::default()
            .capacity_bytes(settings.capacity_bytes)
            .interval(settings.interval)
            .features(settings.features)
            .filters(settings.filters.iter().cloned())
            .duration(settings.duration.unwrap_or_default())
            .allocation_interval_bytes(settings.allocation_interval_bytes)
            .active_tab_id(settings.active_tab_id)
            .record_overheads(settings.records_overheads)
            .children(true);
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
        let params = StartParams::default()
            .capacity_bytes(fields.number("capacity")?)
            .interval(Duration::from_nanos(fields.number("interval")?))
            .features(Features::from_bits(fields.number("features")?))
            .filters(filters)
            .duration(Duration::from_nanos(duration.unwrap_or(0)))
            .allocation_interval_bytes(fields.number("allocationInterval")?)
            .active_tab_id(fields.number("activeTabId")?)
            .record_overheads(fields.flag("overheads")?)
            .children(true);
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

/// Returns the maximum length of an order's frame.
pub(crate) fn order_limits(kind: u8) -> Option<usize> {
    match kind {
        START | ENSURE_STARTED => Some(MAX_SESSION_BYTES),
        WELCOME..=CLEAR_PAGES => Some(MAX_MESSAGE_BYTES),
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

/// What a child says first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Hello {
    pub(crate) version: u64,
    pub(crate) process: i32,
    pub(crate) token: String,
    pub(crate) name: String,
    pub(crate) process_type: String,
    /// Whether a session runs.
    pub(crate) is_active: bool,
}

/// The chunks of a child's buffer. Updates that follow each other are folded into one.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct ChunkReport {
    pub(crate) unreleased_bytes: u64,
    pub(crate) released_bytes: u64,
    pub(crate) oldest_done: Option<TimeStamp>,
    /// When each newly released chunk was done, and its size in bytes.
    pub(crate) newly_released: Vec<(TimeStamp, u64)>,
}

impl ChunkReport {
    /// Returns what an update says.
    pub(crate) fn of(update: Update) -> Self {
        let Update::Changed {
            unreleased_bytes,
            released_bytes,
            oldest_done,
            newly_released,
        } = update
        else {
            return Self::default();
        };
        let pair = |ChunkMetadata { done_at, bytes }| (done_at, bytes);
        Self {
            unreleased_bytes,
            released_bytes,
            oldest_done,
            newly_released: newly_released.into_iter().map(pair).collect(),
        }
    }

    /// Returns reports that say the same, and are short enough for a message.
    pub(crate) fn split(mut self) -> Vec<Self> {
        const MAX_CHUNKS: usize = 256;
        let mut reports = Vec::new();
        let newly = std::mem::take(&mut self.newly_released);
        for part in newly.chunks(MAX_CHUNKS) {
            let newly_released = part.to_vec();
            reports.push(Self {
                newly_released,
                ..self.clone()
            });
        }
        if reports.is_empty() {
            reports.push(self);
        }
        reports
    }
}

/// What a child tells its parent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Report<'a> {
    Hello(Hello),
    /// The process has another name or type.
    Named {
        name: String,
        process_type: String,
    },
    /// An order was carried out, or failed for a reason.
    Done {
        id: u64,
        failure: Option<String>,
    },
    /// An order to freeze was carried out: the session's start, and the time of the snapshot.
    Frozen {
        id: u64,
        started_at: TimeStamp,
        taken_at: TimeStamp,
    },
    /// How far an order to gather is, in millionths, and what it works on.
    Progress {
        id: u64,
        done: u32,
        location: String,
    },
    /// The parts of a profile follow, for an order to gather.
    ProfileBegins {
        id: u64,
    },
    ProfileData {
        id: u64,
        part: &'a [u8],
    },
    ProfileEnds {
        id: u64,
    },
    ProfileFailed {
        id: u64,
        reason: String,
    },
    /// The parts of the child's last profile follow. Begins anew if it has begun before.
    ExitBegins,
    ExitData(&'a [u8]),
    ExitEnds,
    ExitFailed {
        reason: String,
    },
    Chunks {
        id: u64,
        chunks: ChunkReport,
    },
    /// The open file from which the parent can rescue the profile if the child is killed.
    CrashFile(FileDescriptor),
}

const HELLO: u8 = 64;
const DONE: u8 = 65;
const FROZEN: u8 = 66;
const PROGRESS: u8 = 67;
const PROFILE_BEGINS: u8 = 68;
const PROFILE_DATA: u8 = 69;
const PROFILE_ENDS: u8 = 70;
const PROFILE_FAILED: u8 = 71;
const EXIT_BEGINS: u8 = 72;
const EXIT_DATA: u8 = 73;
const EXIT_ENDS: u8 = 74;
const EXIT_FAILED: u8 = 75;
const CHUNKS: u8 = 76;
const NAMED: u8 = 77;
const CRASH_FILE: u8 = 78;

/// Returns the maximum length of a report's frame.
pub(crate) fn report_limits(kind: u8) -> Option<usize> {
    match kind {
        PROFILE_DATA => Some(size_of::<u64>() + MAX_DATA_BYTES),
        EXIT_DATA => Some(MAX_DATA_BYTES),
        HELLO..=CRASH_FILE => Some(MAX_MESSAGE_BYTES),
        _ => None,
    }
}

/// Returns the beginning of a text that may be too long for a message.
fn shortened(text: &str) -> &str {
    text.char_indices()
        .nth(MAX_TEXT)
        .map_or(text, |(end, _)| &text[..end])
}

impl Report<'_> {
    /// Returns the report as a frame.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (kind, fields) = match self {
            Self::ProfileData { id, part } => {
                return frame(PROFILE_DATA, &[&id.to_le_bytes(), *part].concat());
            }
            Self::ExitData(part) => return frame(EXIT_DATA, part),
            Self::Hello(hello) => {
                let fields = json!({
                    "version": hello.version,
                    "pid": hello.process,
                    "token": shortened(&hello.token),
                    "name": shortened(&hello.name),
                    "type": shortened(&hello.process_type),
                    "isActive": hello.is_active,
                });
                (HELLO, fields)
            }
            Self::Named { name, process_type } => {
                let (name, process_type) = (shortened(name), shortened(process_type));
                (NAMED, json!({ "name": name, "type": process_type }))
            }
            Self::CrashFile(file) => {
                let (number, device, inode) = (file.number, file.device, file.inode);
                let fields = json!({ "number": number, "device": device, "inode": inode });
                (CRASH_FILE, fields)
            }
            Self::Done { id, failure } => {
                let failure = failure.as_deref().map(shortened);
                (DONE, json!({ "id": id, "failure": failure }))
            }
            Self::Frozen {
                id,
                started_at,
                taken_at,
            } => {
                let fields = json!({ "id": id, "start": started_at.0, "taken": taken_at.0 });
                (FROZEN, fields)
            }
            Self::Progress { id, done, location } => {
                let location = shortened(location);
                (
                    PROGRESS,
                    json!({ "id": id, "done": done, "location": location }),
                )
            }
            Self::ProfileBegins { id } => (PROFILE_BEGINS, json!({ "id": id })),
            Self::ProfileEnds { id } => (PROFILE_ENDS, json!({ "id": id })),
            Self::ProfileFailed { id, reason } => (
                PROFILE_FAILED,
                json!({ "id": id, "reason": shortened(reason) }),
            ),
            Self::ExitBegins => (EXIT_BEGINS, json!({})),
            Self::ExitEnds => (EXIT_ENDS, json!({})),
            Self::ExitFailed { reason } => (EXIT_FAILED, json!({ "reason": shortened(reason) })),
            Self::Chunks { id, chunks } => {
                let newly = chunks.newly_released.iter();
                let newly: Vec<_> = newly.map(|(done, bytes)| json!([done.0, bytes])).collect();
                let fields = json!({
                    "id": id,
                    "unreleased": chunks.unreleased_bytes,
                    "released": chunks.released_bytes,
                    "oldest": chunks.oldest_done.map(|done| done.0),
                    "newly": newly,
                });
                (CHUNKS, fields)
            }
        };
        frame(kind, fields.to_string().as_bytes())
    }
}

impl<'a> Report<'a> {
    /// Reads the report in a frame.
    pub(crate) fn decode(frame: Frame<'a>) -> Result<Self, MessageError> {
        let fields = match frame.kind {
            PROFILE_DATA => {
                let (id, part) = frame
                    .content
                    .split_first_chunk()
                    .ok_or(MessageError::Content)?;
                let id = u64::from_le_bytes(*id);
                return Ok(Self::ProfileData { id, part });
            }
            EXIT_DATA => return Ok(Self::ExitData(frame.content)),
            _ => Fields::parse(frame.content)?,
        };
        let id = || fields.number("id");
        Ok(match frame.kind {
            HELLO => Self::Hello(Hello {
                version: fields.number("version")?,
                process: fields.process("pid")?,
                token: fields.text("token")?,
                name: fields.text("name")?,
                process_type: fields.text("type")?,
                is_active: fields.flag("isActive")?,
            }),
            NAMED => Self::Named {
                name: fields.text("name")?,
                process_type: fields.text("type")?,
            },
            DONE => Self::Done {
                id: id()?,
                failure: fields.text_if_any("failure")?,
            },
            FROZEN => Self::Frozen {
                id: id()?,
                started_at: TimeStamp(fields.number("start")?),
                taken_at: TimeStamp(fields.number("taken")?),
            },
            PROGRESS => Self::Progress {
                id: id()?,
                done: u32::try_from(fields.number("done")?)
                    .ok()
                    .filter(|&done| done <= WHOLE)
                    .ok_or(MessageError::Field { name: "done" })?,
                location: fields.text("location")?,
            },
            PROFILE_BEGINS => Self::ProfileBegins { id: id()? },
            PROFILE_ENDS => Self::ProfileEnds { id: id()? },
            PROFILE_FAILED => Self::ProfileFailed {
                id: id()?,
                reason: fields.text("reason")?,
            },
            EXIT_BEGINS => Self::ExitBegins,
            EXIT_ENDS => Self::ExitEnds,
            EXIT_FAILED => Self::ExitFailed {
                reason: fields.text("reason")?,
            },
            CHUNKS => {
                let pair = |value: &Value| match value.as_array()?.as_slice() {
                    [done, bytes] => Some((TimeStamp(done.as_u64()?), bytes.as_u64()?)),
                    _ => None,
                };
                let chunks = ChunkReport {
                    unreleased_bytes: fields.number("unreleased")?,
                    released_bytes: fields.number("released")?,
                    oldest_done: fields.number_if_any("oldest")?.map(TimeStamp),
                    newly_released: fields.list("newly", pair)?,
                };
                Self::Chunks { id: id()?, chunks }
            }
            CRASH_FILE => Self::CrashFile(FileDescriptor {
                number: fields.process("number")?,
                device: fields.number("device")?,
                inode: fields.number("inode")?,
            }),
            _ => return Err(MessageError::Content),
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::family::frames::{FrameDecoder, Limits};

    fn with_frame<T>(bytes: &[u8], limits: Limits, read: impl FnOnce(Frame<'_>) -> T) -> T {
        let mut decoder = FrameDecoder::new(limits);
        decoder.push(bytes);
        let frame = decoder.next_frame().expect("accepted").expect("whole");
        read(frame)
    }

    #[track_caller]
    fn assert_round_trips(report: &Report<'_>) {
        let bytes = report.encode();
        with_frame(&bytes, report_limits, |frame| {
            assert_eq!(Report::decode(frame).as_ref(), Ok(report));
        });
    }

    #[test]
    fn reports_round_trip() {
        let text = "wörker \"1\"\n\0".to_owned();
        let hello = Hello {
            version: VERSION,
            process: 12,
            token: "ab".repeat(16),
            name: text.clone(),
            process_type: "tab".to_owned(),
            is_active: true,
        };
        let chunks = ChunkReport {
            unreleased_bytes: 1,
            released_bytes: u64::MAX,
            oldest_done: Some(TimeStamp(3)),
            newly_released: vec![(TimeStamp(3), 4), (TimeStamp(u64::MAX), 5)],
        };
        let id = u64::MAX;
        for report in [
            Report::Hello(hello),
            Report::Named {
                name: text.clone(),
                process_type: String::new(),
            },
            Report::Done { id, failure: None },
            Report::Done {
                id,
                failure: Some(text.clone()),
            },
            Report::Frozen {
                id,
                started_at: TimeStamp(1),
                taken_at: TimeStamp(u64::MAX),
            },
            Report::Progress {
                id,
                done: WHOLE,
                location: text.clone(),
            },
            Report::ProfileBegins { id },
            Report::ProfileData {
                id,
                part: b"\x00\xff part",
            },
            Report::ProfileEnds { id },
            Report::ProfileFailed {
                id,
                reason: text.clone(),
            },
            Report::ExitBegins,
            Report::ExitData(&[7; MAX_DATA_BYTES]),
            Report::ExitEnds,
            Report::ExitFailed { reason: text },
            Report::Chunks { id, chunks },
            Report::CrashFile(FileDescriptor {
                number: 9,
                device: u64::MAX,
                inode: 1,
            }),
        ] {
            assert_round_trips(&report);
        }
    }

    #[test]
    fn orders_round_trip() {
        let params = StartParams::default()
            .filters(["a", "", "ö\"", "pid:7"])
            .interval(Duration::from_nanos(1_234_567))
            .duration(Duration::from_secs(u64::MAX))
            .features(Features::from_bits(u64::MAX))
            .record_overheads(true)
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
            let read = with_frame(&bytes, order_limits, NumberedOrder::decode).expect("valid");
            // The longest duration is rounded to the longest one in ns.
            let expected =
                format!("{numbered:?}").replace("18446744073709551615s", "18446744073.709551615s");
            assert_eq!(format!("{read:?}"), expected);
        }
    }

    #[test]
    fn message_with_a_wrong_field_is_refused() {
        let valid = json!({ "id": 1, "start": 1, "taken": 2 });
        let decode = |fields: &Value| {
            let content = fields.to_string();
            let kind = FROZEN;
            let content = content.as_bytes();
            Report::decode(Frame { kind, content }).map(|_| ())
        };
        assert_eq!(decode(&valid), Ok(()));
        for wrong in [
            json!(null),
            json!(-1),
            json!(1.5),
            json!("1"),
            json!([1]),
            json!({}),
        ] {
            let mut fields = valid.clone();
            fields["taken"] = wrong;
            assert_eq!(decode(&fields), Err(MessageError::Field { name: "taken" }));
        }
        assert_eq!(decode(&json!([])), Err(MessageError::NotJson));
        // A later version may add fields.
        let mut more = valid;
        more["new"] = json!([{}]);
        assert_eq!(decode(&more), Ok(()));
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
