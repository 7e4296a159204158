//! Writes the facts of a session into its crash file.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::buffer::{AreaHead, CrashArea, EntryWriter, MAX_RECORD_BYTES};
use crate::counters::{CounterDescription, for_each_application_counter};
use crate::labels::{context_labels_from, script_functions_from};
use crate::markers::MarkerType;
use crate::state::core_ps::CorePs;
use crate::state::crash_file::fact::Fact;
use crate::state::crash_file::keyed_facts::KeyedFacts;
use crate::state::crash_file::make_facts::{
    category_fact, code_fact, context_label_fact, counter_fact, module_fact, page_fact,
    process_fact, script_fact, thread_fact, type_fact,
};
use crate::state::crash_file::words::OwnerWord;
use crate::threads::OffThreadRef;
use crate::types::{Page, registered_categories};
use crate::unwind::{GeneratedCode, ModuleTable};

/// The facts of a session. Methods may be called on any thread and take no lock of their own.
#[derive(Debug)]
pub(crate) struct CrashFacts {
    area: Arc<CrashArea>,
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

    pub(crate) fn area(&self) -> &Arc<CrashArea> {
        &self.area
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
        self.add(process_fact(core));
    }

    /// Adds all of these facts.
    pub(crate) fn add_all(&self, facts: &[Fact]) {
        facts.iter().for_each(|fact| self.add(fact.clone()));
    }

    /// Adds a thread, or replaces its earlier fact.
    pub(crate) fn add_thread(&self, thread: &OffThreadRef) {
        self.add(thread_fact(thread));
    }

    pub(crate) fn add_page(&self, page: &Page) {
        self.add(page_fact(page));
    }

    pub(crate) fn add_counter(&self, counter: &CounterDescription) {
        self.add(counter_fact(counter));
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

    /// Adds a type of markers. Calls code of the application, so the calling thread must hold no
    /// lock.
    pub(crate) fn add_marker_type(&self, marker_type: &MarkerType) {
        if let Some(fact) = type_fact(marker_type) {
            self.add(fact);
        }
    }

    /// Adds the application's categories that are not written yet.
    pub(crate) fn add_new_categories(&self) {
        let written = self.categories.load(Ordering::Acquire);
        let mut count = 0;
        for (index, info) in registered_categories().enumerate() {
            // A category that is being registered is written the next time.
            let Some(info) = info else { break };
            count = index + 1;
            if count > written {
                self.add(category_fact(index, info));
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
            let fact = script_fact(function.number(), &function.description);
            self.add(fact);
        });
        self.scripts.store(count, Ordering::Relaxed);
    }

    /// Adds the labels of contexts that are not written yet. Called by the sampler.
    fn add_new_context_labels(&self) {
        let written = self.context_labels.load(Ordering::Relaxed);
        let mut count = written;
        context_labels_from(written, |number, label| {
            count += 1;
            self.add(context_label_fact(number, label));
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
            self.add(module_fact(image, from, until));
        });
    }

    /// Adds named code that the application has generated.
    pub(crate) fn add_code(&self, code: &GeneratedCode) {
        self.add(code_fact(code));
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
