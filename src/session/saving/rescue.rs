//! Makes a profile of the crash file that a process has left.
//!
//! The file is untrusted: any bytes give a profile or an error.

use std::borrow::Cow;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::buffer::{
    AreaError, AreaHead, AreaOwner, BufferSnapshot, BufferStatistics, FoundChunks, ReadAt,
};
use crate::counters::{CounterDescription, CounterKind, KnownCounter};
use crate::markers::DescribedType;
use crate::platform::{
    FileMapping, ModuleImage, ProcessStart, SharedFile, list_modules, monotonic_now, sleep_until,
    to_path_bytes,
};
use crate::session::saving::crash_file::is_running;
use crate::session::saving::frozen_profile::spool_profile;
use crate::session::saving::snapshot::FrozenProfile;
use crate::state::{
    CategoryFact, CorePs, CounterFact, Fact, KeyedFacts, ModuleFact, OpenPauses, OwnerWord,
    PageFact, ProcessFact, ScriptFact, Session, SessionFact, SessionSettings, ThreadFact, TypeFact,
};
use crate::stream::{PastProcess, PastScript, ProfileSource, last_entry_ns};
use crate::threads::{OffThreadRef, ThreadRegistrationInfo};
use crate::types::{
    CategoryInfo, CounterUnit, Features, GECKO_CATEGORIES, GraphColor, OTHER_CATEGORY, Page,
    ProcessId, RescueError, ScriptDescription, ScriptImplementation, ThreadId, TimeStamp,
    all_categories, is_known_color,
};
use crate::unwind::{ModuleTable, NamedCode};
use crate::util::{NumberMap, PsCell, PsLock, SharedProgress};

/// Maximum number of different categories of other processes that this one can show. Their texts
/// are never freed, because the categories of this process are not, either.
const MAX_PAST_CATEGORIES: usize = 4096;

/// The categories of other processes, each once.
static PAST_CATEGORIES: PsCell<Vec<&'static CategoryInfo>> = PsCell::new(Vec::new());

/// See `Profile::rescue`.
pub(crate) fn rescue(path: &Path) -> Result<FrozenProfile, RescueError> {
    let failed = |error: AreaError| match error {
        AreaError::Io(error) => RescueError::Io {
            path: path.to_owned(),
            error,
        },
        AreaError::OutOfMemory => RescueError::OutOfMemory {
            path: path.to_owned(),
        },
        other => RescueError::NotACrashFile {
            path: path.to_owned(),
            reason: other.to_string(),
        },
    };
    let opened = SharedFile::open_regular(path);
    let file = opened.map_err(|error| failed(AreaError::Io(error)))?;
    rescue_file(&file).map_err(failed)
}

fn rescue_file(file: &SharedFile) -> Result<FrozenProfile, AreaError> {
    let bytes = u64::try_from(file.status()?.st_size).unwrap_or(0);
    let source = read_source(&|target, position| file.read_at(target, position), bytes);
    source.map(FrozenProfile::of_source)
}

/// Reads a file of this size.
fn read_source(read: ReadAt<'_>, bytes: u64) -> Result<ProfileSource, AreaError> {
    let head = AreaHead::read(read, bytes)?;
    // Before the facts: what the newest entries refer to is there then, even if the process still
    // runs.
    let chunks = head.read_chunks(read)?;
    let facts = head.read_facts(read)?;
    let rescued = Rescued {
        is_alive: is_running(head.owner()),
        damaged_words: facts.damaged_words,
        head: &head,
    };
    rescued.source(Sorted::of(&KeyedFacts::of(&facts)), chunks)
}

/// Reads the bytes of a file.
#[cfg(any(test, fuzzing))]
pub(crate) fn rescue_image(image: &[u8]) -> Result<ProfileSource, AreaError> {
    let read = |target: &mut [u8], position: u64| {
        let position = usize::try_from(position).unwrap_or(usize::MAX);
        let rest = image.get(position..).unwrap_or_default();
        let count = rest.len().min(target.len());
        target[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    };
    read_source(&read, image.len() as u64)
}

/// Returns the profile of a child process that was killed, from its crash file, as Gecko's JSON
/// with times on the clock of this process. Leaves out its older part if it is longer than
/// `max_bytes`.
///
/// `child` is the process as this one sees it: in its file, the process is as it sees itself.
///
/// # Errors
/// The error of the file that the JSON is written to, or of a crash file that has nothing to
/// rescue.
pub(crate) fn rescue_child(
    file: &SharedFile,
    child: AreaOwner,
    max_bytes: u64,
    progress: &SharedProgress,
) -> io::Result<FileMapping> {
    let failed = |error: AreaError| io::Error::other(error.to_string());
    let profile = match has_ended_soon(child) {
        true => rescue_file(file).map_err(failed)?.at_shutdown(),
        // Another program image has replaced the one that wrote the file.
        false => rescue_file(file).map_err(failed)?.before_exec(),
    };
    let profile = profile.on_clock_of(CorePs::process_start());
    spool_profile(profile, max_bytes, Some(progress))?.into_mapping()
}

/// Returns whether a process whose connection has ended does so, too. The kernel closes the
/// descriptors of a process a moment before the process is gone.
fn has_ended_soon(owner: AreaOwner) -> bool {
    const LOOKS: u32 = 20;
    const LOOK_NS: u64 = 10_000_000;
    (0..LOOKS).any(|look| {
        if look > 0 {
            sleep_until(monotonic_now().plus_ns(LOOK_NS));
        }
        !is_running(owner)
    })
}

/// The facts by their kinds.
#[derive(Default)]
struct Sorted {
    process: Option<ProcessFact>,
    session: Option<SessionFact>,
    threads: Vec<OffThreadRef>,
    types: NumberMap<DescribedType>,
    categories: Vec<CategoryFact>,
    counters: Vec<KnownCounter>,
    modules: Vec<ModuleFact>,
    pages: Vec<Arc<Page>>,
    scripts: NumberMap<PastScript>,
    context_labels: NumberMap<(String, String)>,
    code: NamedCode,
    unknown: u64,
}

impl Sorted {
    fn of(facts: &KeyedFacts) -> Self {
        let mut sorted = Self {
            unknown: facts.unknown,
            ..Self::default()
        };
        let mut code = Vec::new();
        for fact in facts.all().cloned() {
            match fact {
                Fact::Process(fact) => sorted.process = Some(fact),
                Fact::Session(fact) => sorted.session = Some(fact),
                Fact::Thread(fact) => sorted.threads.push(thread(fact)),
                Fact::Type(fact) => sorted.types.extend(described(fact)),
                Fact::Category(fact) => sorted.categories.push(fact),
                Fact::Counter(fact) => sorted.counters.push(counter(fact)),
                Fact::Module(fact) => sorted.modules.push(fact),
                Fact::Page(fact) => sorted.pages.push(Arc::new(page(fact))),
                Fact::Script(fact) => {
                    sorted.scripts.insert(fact.number, script(fact));
                }
                Fact::ContextLabel(fact) => {
                    let label = (fact.key, fact.value);
                    sorted.context_labels.insert(fact.number, label);
                }
                Fact::Code(fact) => code.push(fact),
            }
        }
        let ranges = code.into_iter().filter(|code| code.start < code.end);
        sorted.code = NamedCode::of_past_process(ranges.map(|code| {
            let script = code.script.and_then(|script| u32::try_from(script).ok());
            (code.start..code.end, code.name, script)
        }));
        sorted
    }
}

/// A file that was read.
struct Rescued<'a> {
    head: &'a AreaHead,
    damaged_words: u64,
    is_alive: bool,
}

impl Rescued<'_> {
    fn word(&self, word: OwnerWord) -> u64 {
        self.head.owner_word(word as usize)
    }

    fn time_in(&self, word: OwnerWord) -> Option<TimeStamp> {
        Some(self.word(word)).filter(|ns| *ns > 0).map(TimeStamp)
    }

    fn source(&self, facts: Sorted, chunks: FoundChunks) -> Result<ProfileSource, AreaError> {
        let lacking = || AreaError::NotACrashFile("a crash file without the facts of its session");
        let process = facts.process.ok_or_else(lacking)?;
        let settings = facts.session.ok_or_else(lacking)?;
        let process_start = ProcessStart {
            monotonic: TimeStamp(process.start_ns),
            epoch_ms: process.start_epoch_ms,
            is_known: process.start_is_known,
        };
        let started_at = TimeStamp(settings.started_ns);
        let session = Session::new(
            session_settings(&settings),
            process_start.monotonic,
            started_at,
            Vec::new(),
        );
        let damaged_chunks = chunks.damaged;
        let buffer = self.buffer(&settings, chunks)?;
        let after_start = |ns| TimeStamp(process.start_ns.saturating_add(ns));
        let last_entry = last_entry_ns(&buffer).map(after_start);
        let counted_at = self.time_in(OwnerWord::CountedAt);
        let taken_at = last_entry
            .max(counted_at)
            .max(Some(started_at))
            .unwrap_or(started_at);
        let past = PastProcess {
            categories: past_categories(&facts.categories),
            marker_types: facts.types,
            scripts: facts.scripts,
            context_labels: facts.context_labels,
            is_alive: self.is_alive,
            last_entry,
            counted_at,
            losses: vec![
                ("damagedChunks", damaged_chunks),
                ("damagedFactWords", self.damaged_words),
                ("unknownFacts", facts.unknown),
                ("lostFacts", self.head.lost_facts()),
                ("chunksOutsideOfTheFile", self.head.chunks_outside()),
            ],
        };
        Ok(ProfileSource {
            process: ProcessId::from_number(process.pid),
            product: process.product,
            version: process.version,
            process_name: process.name,
            process_type: process.process_type,
            etld1: process.etld1,
            pages: facts.pages,
            exit_profiles: Vec::new(),
            children: None,
            children_times: None,
            is_replaced: false,
            process_start,
            counts: self.counts(&session, &settings),
            overheads: session.overheads.read(),
            session: Arc::new(session),
            taken_at,
            is_shutting_down: !self.is_alive,
            since: None,
            threads: facts.threads,
            threads_complete_since: None,
            unmatched_filters: Vec::new(),
            unselected_threads: Vec::new(),
            buffer,
            open_pauses: OpenPauses {
                paused_since: self.time_in(OwnerWord::PausedSince),
                sampling_paused_since: self.time_in(OwnerWord::SamplingPausedSince),
            },
            modules: modules(&facts.modules),
            counters: facts.counters,
            generated_code: facts.code,
            past: Some(Arc::new(past)),
        })
    }

    fn buffer(
        &self,
        settings: &SessionFact,
        found: FoundChunks,
    ) -> Result<BufferSnapshot, AreaError> {
        let [chunks, bytes, entries_before] = self.head.discarded();
        let held = found.chunks.iter().map(|chunk| chunk.bytes.len() as u64);
        let statistics = BufferStatistics {
            capacity_bytes: settings.capacity_bytes,
            put_bytes: bytes.saturating_add(held.sum()),
            recycled_chunks: chunks,
            recycled_bytes: bytes,
            ..BufferStatistics::default()
        };
        let chunks = found.chunks.into_iter().map(|chunk| chunk.bytes).collect();
        let complete_since = self.head.complete_since();
        let mut buffer = BufferSnapshot::of_complete(chunks, complete_since, statistics)
            .ok_or(AreaError::OutOfMemory)?;
        let entries = buffer.chunks().flatten().filter(Result::is_ok).count();
        buffer.statistics.put_entries = entries_before.saturating_add(entries as u64);
        Ok(buffer)
    }

    /// Returns the counts by the names that this build has.
    fn counts(&self, session: &Session, settings: &SessionFact) -> Vec<(&'static str, u64)> {
        let of_name = |name: &str| {
            let index = settings.count_names.iter().position(|known| known == name);
            index.map_or(0, |index| {
                self.head.owner_word(OwnerWord::Counts as usize + index)
            })
        };
        let names = session.counts.all().into_iter().map(|(name, _)| name);
        names.map(|name| (name, of_name(name))).collect()
    }
}

fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

/// Returns the type with its number, if its description is one.
fn described(fact: TypeFact) -> Option<(u64, DescribedType)> {
    let described = DescribedType::decode(fact.name, fact.schema, &fact.payload.0)?;
    Some((fact.number, described))
}

fn script(fact: ScriptFact) -> PastScript {
    let subcategory = u8::try_from(fact.subcategory).ok();
    let category = fact.category.and_then(|number| u8::try_from(number).ok());
    let rest = ScriptDescription {
        implementation: match fact.implementation {
            1 => ScriptImplementation::BaselineInterpreter,
            2 => ScriptImplementation::Baseline,
            3 => ScriptImplementation::Optimized,
            _ => ScriptImplementation::Interpreter,
        },
        category: category.zip(subcategory),
        inner_window_id: fact.inner_window_id,
        ..ScriptDescription::new("", "", small(fact.line), small(fact.column))
    };
    PastScript {
        name: fact.name,
        file: fact.file,
        rest,
    }
}

fn session_settings(fact: &SessionFact) -> SessionSettings {
    SessionSettings {
        capacity_bytes: fact.capacity_bytes,
        interval: Duration::from_nanos(fact.interval_ns),
        max_cpu_ppm: fact.max_cpu_ppm,
        max_markers_per_second: 0,
        features: Features::from_bits(fact.features),
        filters: fact.filters.clone(),
        signal: fact.signal,
        duration: fact.duration_ns.map(Duration::from_nanos),
        allocation_interval_bytes: fact.allocation_interval_bytes,
        active_tab_id: fact.active_tab_id,
        records_overheads: fact.records_overheads,
        has_children: false,
        has_parent: false,
        crash_file: None,
    }
}

fn thread(fact: ThreadFact) -> OffThreadRef {
    let info = ThreadRegistrationInfo {
        serial: fact.serial,
        is_main: fact.is_main,
        registered_at: TimeStamp(fact.registered_ns),
    };
    let (tid, ended) = (
        ThreadId::from_number(fact.tid),
        fact.ended_ns.map(TimeStamp),
    );
    OffThreadRef::of_past_process(info, fact.name, tid, ended)
}

fn modules(facts: &[ModuleFact]) -> ModuleTable {
    // The kernel maps the same code without a file into each process.
    let without_file = list_modules().map(|(_, own)| own).unwrap_or_default();
    let memory_of = |build_id: &[u8]| {
        let mut own = without_file.iter();
        let same = own.find(|own| !build_id.is_empty() && own.build_id == build_id);
        same.and_then(|same| same.memory)
    };
    let is_possible = |fact: &&ModuleFact| {
        fact.start < fact.end && fact.until_list.is_none_or(|until| until >= fact.from_list)
    };
    let module = |fact: &ModuleFact| {
        let image = ModuleImage::of_past_process(
            to_path_bytes(&fact.path.0),
            fact.bias,
            fact.start..fact.end,
            fact.build_id.0.clone(),
            memory_of(&fact.build_id.0),
        );
        (image, fact.from_list, fact.until_list)
    };
    ModuleTable::of_past_process(facts.iter().filter(is_possible).map(module).collect())
}

fn page(fact: PageFact) -> Page {
    Page::new(fact.inner_window_id, fact.url)
        .tab_id(fact.tab_id)
        .embedder(fact.embedder)
        .private_browsing(fact.is_private)
}

fn counter(fact: CounterFact) -> KnownCounter {
    let color = fact.color.and_then(|index| usize::try_from(index).ok());
    KnownCounter::Found(Arc::new(CounterDescription {
        id: fact.id,
        feature: Features::NONE,
        name: Cow::Owned(fact.name),
        category: Cow::Owned(fact.category),
        description: Cow::Owned(fact.description),
        kind: match fact.is_total {
            true => CounterKind::Total,
            false => CounterKind::Level,
        },
        counts_operations: fact.counts_operations,
        unit: match fact.is_bytes {
            true => CounterUnit::Bytes,
            false => CounterUnit::Number,
        },
        color: color.and_then(|index| GraphColor::ALL.get(index).copied()),
    }))
}

/// Returns all categories of a process: Gecko's, and its own.
fn past_categories(facts: &[CategoryFact]) -> Vec<&'static CategoryInfo> {
    let mut all = all_categories();
    all.truncate(GECKO_CATEGORIES);
    let other = all[usize::from(OTHER_CATEGORY)];
    // Facts are in the order of their numbers; a number without one shows as “Other”.
    for fact in facts {
        let Ok(number @ GECKO_CATEGORIES..=255) = usize::try_from(fact.number) else {
            continue;
        };
        all.resize(number, other);
        all.push(past_category(fact).unwrap_or(other));
    }
    all
}

fn past_category(fact: &CategoryFact) -> Option<&'static CategoryInfo> {
    let is_possible = is_known_color(&fact.color) && (1..=256).contains(&fact.subcategories.len());
    if !is_possible {
        return None;
    }
    let mut lock = PsLock::acquire();
    let known = PAST_CATEGORIES.get_mut(&mut lock);
    let same = known.iter().find(|known| {
        known.label == fact.label
            && known.color == fact.color
            && known.subcategories.iter().eq(fact.subcategories.iter())
    });
    if let Some(same) = same {
        return Some(same);
    }
    if known.len() >= MAX_PAST_CATEGORIES {
        return None;
    }
    let new = CategoryInfo::leaked(&fact.label, &fact.color, &fact.subcategories);
    known.push(new);
    Some(new)
}
