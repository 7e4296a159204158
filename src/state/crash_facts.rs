//! Writes the facts of a session into its crash file when they come into being.
//!
//! Any thread adds facts. The sampler adds those that its samples refer to, and writes all of them
//! again when the space is nearly used up. One named mutex (`LockRank::CrashFacts`) holds the facts of
//! the running session for code that has no session at hand: what is new on a thread of the
//! application. A fact is in the file before the first entry that refers to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::buffer::{AreaHead, CrashArea, EntryWriter, MAX_RECORD_BYTES};
use crate::counters::{CounterDescription, for_each_application_counter};
use crate::labels::{ContextLabel, context_labels_from, script_functions_from};
use crate::markers::{MarkerType, set_new_type_hook};
use crate::platform::current_process_id;
use crate::state::core_ps::CorePs;
use crate::state::facts::{
    CategoryFact, CodeFact, ContextLabelFact, CounterFact, Fact, FactBytes, KeyedFacts, ModuleFact,
    OwnerWord, PageFact, ProcessFact, ScriptFact, ThreadFact, TypeFact,
};
use crate::threads::OffThreadRef;
use crate::types::{
    CounterUnit, GECKO_CATEGORIES, GraphColor, Page, registered_categories, set_new_category_hook,
};
use crate::unwind::{GeneratedCode, ModuleTable, set_new_code_hook};
use crate::util::{
    Guard, LockRank, NamedMutex, cut_at_character, is_any_lock_held_on_current_thread,
};

/// The facts of a session. Methods may be called on any thread and take no lock of their own.
#[derive(Debug)]
pub(crate) struct CrashFacts {
    pub(crate) area: Arc<CrashArea>,
    /// Number of the application's categories that are written.
    categories: AtomicUsize,
    /// Number of script functions that are written.
    scripts: AtomicUsize,
    /// Number of labels of contexts that are written.
    context_labels: AtomicUsize,
    /// The largest id of the application's counters that are written.
    counters: AtomicU64,
    /// Number of the list of modules that is written.
    modules: AtomicU64,
}

impl CrashFacts {
    pub(crate) fn new(area: Arc<CrashArea>) -> Self {
        Self {
            area,
            categories: AtomicUsize::new(0),
            scripts: AtomicUsize::new(0),
            context_labels: AtomicUsize::new(0),
            counters: AtomicU64::new(0),
            modules: AtomicU64::new(0),
        }
    }

    pub(crate) fn set_word(&self, word: OwnerWord, value: u64) {
        self.area.set_word(word as usize, value);
    }

    /// Notes the session's counts, in their order.
    pub(crate) fn set_counts(&self, counts: impl Iterator<Item = u64>) {
        for (index, count) in counts.enumerate() {
            self.area
                .set_word(OwnerWord::Counts as usize + index, count);
        }
    }

    fn add(&self, fact: impl Into<Fact>) {
        with_encoded(&fact.into(), |bytes| self.area.add_fact(bytes));
    }

    pub(crate) fn add_process(&self, core: &CorePs) {
        let start = core.process_start;
        self.add(ProcessFact {
            pid: current_process_id().to_number(),
            product: cut(&core.product),
            name: cut(&core.process_name),
            process_type: cut(&core.process_type),
            version: core.version.as_deref().map(cut),
            etld1: core.etld1.as_deref().map(cut),
            start_ns: start.monotonic.0,
            start_epoch_ms: start.epoch_ms,
            start_is_known: start.is_known,
        });
    }

    /// Adds all of these facts.
    pub(crate) fn add_all(&self, facts: &[Fact]) {
        facts.iter().for_each(|fact| self.add(fact.clone()));
    }

    /// Adds a thread, or replaces its earlier fact.
    pub(crate) fn add_thread(&self, thread: &OffThreadRef) {
        let reader = thread.unlocked_const_reader_and_atomic_rw();
        let info = reader.info();
        self.add(ThreadFact {
            serial: info.serial,
            tid: reader.tid().to_number(),
            name: cut(&reader.name()),
            is_main: info.is_main,
            registered_ns: info.registered_at.0,
            ended_ns: reader.unregistered_at().map(|time| time.0),
        });
    }

    pub(crate) fn add_page(&self, page: &Page) {
        self.add(PageFact {
            inner_window_id: page.inner_window_id,
            tab_id: page.tab_id,
            url: cut(&page.url),
            embedder: page.embedder_inner_window_id,
            is_private: page.is_private_browsing,
        });
    }

    pub(crate) fn add_counter(&self, counter: &CounterDescription) {
        let of_color = |color| GraphColor::ALL.iter().position(|known| *known == color);
        self.add(CounterFact {
            id: counter.id,
            name: cut(&counter.name),
            category: cut(&counter.category),
            description: cut(&counter.description),
            is_total: !counter.is_level(),
            counts_operations: counter.counts_operations,
            is_bytes: counter.unit == CounterUnit::Bytes,
            color: counter.color.and_then(of_color).map(|index| index as u64),
        });
    }

    /// Adds the counters of the application that are not written yet.
    pub(crate) fn add_application_counters(&self) {
        let written = self.counters.load(Ordering::Relaxed);
        let mut last = written;
        for_each_application_counter(|counter| {
            let id = counter.description.id;
            if id > written {
                self.add_counter(&counter.description);
                last = last.max(id);
            }
        });
        self.counters.fetch_max(last, Ordering::Relaxed);
    }

    /// Adds the application's categories that are not written yet.
    fn add_new_categories(&self) {
        let written = self.categories.load(Ordering::Acquire);
        let mut count = 0;
        for (index, info) in registered_categories().enumerate() {
            // A category that is being registered is written the next time.
            let Some(info) = info else { break };
            count = index + 1;
            if count > written {
                self.add(CategoryFact {
                    number: (GECKO_CATEGORIES + index) as u64,
                    label: cut(info.label),
                    color: info.color.to_owned(),
                    subcategories: info.subcategories.iter().map(|name| cut(name)).collect(),
                });
            }
        }
        self.categories.fetch_max(count, Ordering::AcqRel);
    }

    /// Adds the script functions that are not written yet. Called by the sampler.
    fn add_new_scripts(&self) {
        let written = self.scripts.load(Ordering::Relaxed);
        let mut count = written;
        script_functions_from(written, |function| {
            count += 1;
            let script = &function.description;
            self.add(ScriptFact {
                number: function.number().into(),
                name: script.name.to_owned(),
                file: script.file.to_owned(),
                line: script.line.into(),
                column: script.column.into(),
                implementation: script.implementation as u64,
                category: script.category.map(|(category, _)| category.into()),
                subcategory: script
                    .category
                    .map_or(0, |(_, subcategory)| subcategory.into()),
                inner_window_id: script.inner_window_id,
            });
        });
        self.scripts.store(count, Ordering::Relaxed);
    }

    /// Adds the labels of contexts that are not written yet. Called by the sampler.
    fn add_new_context_labels(&self) {
        let written = self.context_labels.load(Ordering::Relaxed);
        let mut count = written;
        context_labels_from(written, |number, ContextLabel { key, value }| {
            count += 1;
            self.add(ContextLabelFact {
                number: number.into(),
                key: key.to_owned(),
                value: value.to_owned(),
            });
        });
        self.context_labels.store(count, Ordering::Relaxed);
    }

    /// Adds what has come into being since the last call. Called by the sampler before it takes
    /// samples, which may refer to it.
    pub(crate) fn follow(&self) {
        self.add_new_categories();
        self.add_new_scripts();
        self.add_new_context_labels();
    }

    /// Adds the modules of a list that are not written yet, and the ends of unloaded modules.
    pub(crate) fn add_modules(&self, table: &ModuleTable) {
        let written = self.modules.swap(table.number(), Ordering::Relaxed);
        table.for_each_since(written, |image, from, until| {
            self.add(ModuleFact {
                path: FactBytes(image.path.as_os_str().as_encoded_bytes().to_vec()),
                bias: image.bias,
                start: image.range.start,
                end: image.range.end,
                build_id: FactBytes(image.build_id.clone()),
                is_executable: image.is_executable,
                from_list: from,
                until_list: until,
            });
        });
    }

    /// Adds named code that the application has generated.
    pub(crate) fn add_code(&self, code: &GeneratedCode) {
        self.add(CodeFact {
            start: code.range.start,
            end: code.range.end,
            name: cut(&code.name),
            script: code.script.map(u64::from),
        });
    }

    /// Writes all facts again if the space for them is nearly used up. Leaves out those that later
    /// ones have replaced, and those that `keeps` returns false for. Called by the sampler.
    pub(crate) fn rewrite_if_needed(&self, keeps: impl FnOnce() -> KeepsFact) {
        if !self.area.wants_rewrite() {
            return;
        }
        let keeps = keeps();
        let area = &self.area;
        let read = |bytes: &mut [u8], position| area.read_at(bytes, position);
        let found = AreaHead::read(&read, area.bytes()).and_then(|head| head.read_facts(&read));
        // Without memory for it, the next call tries again.
        let Ok(found) = found else { return };
        let facts = KeyedFacts::of(&found);
        area.rewrite_facts(|write| {
            for fact in facts.all().filter(|fact| keeps(fact)) {
                with_encoded(fact, &mut *write);
            }
        });
    }
}

/// Decides whether a fact still matters.
pub(crate) type KeepsFact = Box<dyn Fn(&Fact) -> bool>;

/// Calls `write` with the encoded fact, if that is short enough.
fn with_encoded(fact: &Fact, write: impl FnOnce(&[u8])) {
    let mut out = EntryWriter::default();
    fact.encode(&mut out);
    if out.bytes().len() <= MAX_RECORD_BYTES {
        write(out.bytes());
    }
}

/// The facts of the running session, if it has a crash file.
pub(crate) type CurrentFacts = Option<Arc<CrashFacts>>;

static CURRENT: NamedMutex<CurrentFacts> =
    NamedMutex::new("crash facts", LockRank::CrashFacts, None);

/// Makes these the facts of the running session; `None` at its end.
pub(crate) fn set_current_facts(facts: CurrentFacts) {
    if facts.is_some() {
        set_new_type_hook(note_marker_type);
        set_new_category_hook(note_category);
        set_new_code_hook(note_code);
    }
    // Dropped after the lock is released.
    let _before = std::mem::replace(&mut *CURRENT.lock(), facts);
}

/// Locks the facts while the process forks.
pub(crate) fn hold_crash_facts_for_fork() -> Guard<'static, CurrentFacts> {
    CURRENT.lock()
}

/// Returns the facts, unless the calling thread holds a lock: then the caller is code of the
/// application that the profiler has called.
fn current() -> CurrentFacts {
    match is_any_lock_held_on_current_thread() {
        true => None,
        false => CURRENT.lock().clone(),
    }
}

/// Adds a type of markers, before its first marker. Calls code of the application, so the calling
/// thread must hold no lock: see [`current`].
fn note_marker_type(marker_type: &'static MarkerType) {
    if let Some(facts) = current()
        && let Some(fact) = type_fact(marker_type)
    {
        facts.add(fact);
    }
}

/// Adds a category, before it is used. Without a lock to hand, the sampler adds it on its next tick.
fn note_category() {
    if let Some(facts) = current() {
        facts.add_new_categories();
    }
}

fn note_code(code: &GeneratedCode) {
    if let Some(facts) = current() {
        facts.add_code(code);
    }
}

/// Maximum length of a text in a fact, in bytes.
const MAX_TEXT_BYTES: usize = 4096;

fn cut(text: &str) -> String {
    cut_at_character(text, MAX_TEXT_BYTES).to_owned()
}

/// Describes a type of markers. Calls code of the application, so the calling thread must hold no
/// lock. Returns `None` if the type's code panics or is no longer loaded.
fn type_fact(marker_type: &MarkerType) -> Option<TypeFact> {
    let description = marker_type.describe()?;
    Some(TypeFact {
        number: marker_type.number.into(),
        name: description.name,
        schema: description.schema,
        payload: FactBytes(description.payload),
    })
}

/// Returns the types of markers that exist. Calls code of the application, so the calling thread
/// must hold no lock.
pub(crate) fn all_marker_types() -> Vec<Fact> {
    let all = MarkerType::all();
    let facts = all.values().filter_map(|known| type_fact(known));
    facts.map(Fact::from).collect()
}
