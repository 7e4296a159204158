//! Makes facts of what the profiler knows.

use crate::counters::CounterDescription;
use crate::labels::ContextLabel;
use crate::markers::MarkerType;
use crate::platform::{ModuleImage, current_process_id};
use crate::state::core_ps::CorePs;
use crate::state::crash_file::fact::{
    CategoryFact, CodeFact, ContextLabelFact, CounterFact, Fact, ModuleFact, PageFact, ProcessFact,
    ScriptFact, ThreadFact, TypeFact,
};
use crate::state::crash_file::fields::FactBytes;
use crate::threads::OffThreadRef;
use crate::types::{
    CategoryInfo, CounterUnit, GECKO_CATEGORIES, GraphColor, Page, ScriptDescription,
};
use crate::unwind::GeneratedCode;
use crate::util::cut_at_character;

/// Maximum length of a text in a fact, in bytes.
const MAX_TEXT_BYTES: usize = 4096;

fn cut(text: &str) -> String {
    cut_at_character(text, MAX_TEXT_BYTES).to_owned()
}

pub(super) fn process_fact(core: &CorePs) -> ProcessFact {
    let start = core.process_start;
    ProcessFact {
        pid: current_process_id().to_number(),
        product: cut(&core.product),
        name: cut(&core.process_name),
        process_type: cut(&core.process_type),
        version: core.version.as_deref().map(cut),
        etld1: core.etld1.as_deref().map(cut),
        start_ns: start.monotonic.0,
        start_epoch_ms: start.epoch_ms,
        start_is_known: start.is_known,
    }
}

pub(super) fn thread_fact(thread: &OffThreadRef) -> ThreadFact {
    let reader = thread.unlocked_const_reader_and_atomic_rw();
    let info = reader.info();
    ThreadFact {
        serial: info.serial,
        tid: reader.tid().to_number(),
        name: cut(&reader.name()),
        is_main: info.is_main,
        registered_ns: info.registered_at.0,
        ended_ns: reader.unregistered_at().map(|time| time.0),
    }
}

/// Returns `None` if the type's code panics or is no longer loaded.
pub(super) fn type_fact(marker_type: &MarkerType) -> Option<TypeFact> {
    let description = marker_type.describe()?;
    Some(TypeFact {
        number: marker_type.number.into(),
        name: description.name,
        schema: description.schema,
        payload: FactBytes(description.payload),
    })
}

/// `index` counts the application's categories.
pub(super) fn category_fact(index: usize, info: &CategoryInfo) -> CategoryFact {
    CategoryFact {
        number: (GECKO_CATEGORIES + index) as u64,
        label: cut(info.label),
        color: info.color.to_owned(),
        subcategories: info.subcategories.iter().map(|name| cut(name)).collect(),
    }
}

pub(super) fn counter_fact(counter: &CounterDescription) -> CounterFact {
    let of_color = |color| GraphColor::ALL.iter().position(|known| *known == color);
    CounterFact {
        id: counter.id,
        name: cut(&counter.name),
        category: cut(&counter.category),
        description: cut(&counter.description),
        is_total: !counter.is_level(),
        counts_operations: counter.counts_operations,
        is_bytes: counter.unit == CounterUnit::Bytes,
        color: counter.color.and_then(of_color).map(|index| index as u64),
    }
}

pub(super) fn module_fact(image: &ModuleImage, from: u64, until: Option<u64>) -> ModuleFact {
    ModuleFact {
        path: FactBytes(image.path.as_os_str().as_encoded_bytes().to_vec()),
        bias: image.bias,
        start: image.range.start,
        end: image.range.end,
        build_id: FactBytes(image.build_id.clone()),
        is_executable: image.is_executable,
        from_list: from,
        until_list: until,
    }
}

pub(super) fn page_fact(page: &Page) -> PageFact {
    PageFact {
        inner_window_id: page.inner_window_id,
        tab_id: page.tab_id,
        url: cut(&page.url),
        embedder: page.embedder_inner_window_id,
        is_private: page.is_private_browsing,
    }
}

pub(super) fn script_fact(number: u32, script: &ScriptDescription<'_>) -> ScriptFact {
    ScriptFact {
        number: number.into(),
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
    }
}

pub(super) fn context_label_fact(number: u32, label: ContextLabel<'_>) -> ContextLabelFact {
    ContextLabelFact {
        number: number.into(),
        key: label.key.to_owned(),
        value: label.value.to_owned(),
    }
}

pub(super) fn code_fact(code: &GeneratedCode) -> CodeFact {
    CodeFact {
        start: code.range.start,
        end: code.range.end,
        name: cut(&code.name),
        script: code.script.map(u64::from),
    }
}

/// Returns the types of markers that exist. Calls code of the application, so the calling thread
/// must hold no lock.
pub(crate) fn all_marker_types() -> Vec<Fact> {
    let all = MarkerType::all();
    let facts = all.values().filter_map(|known| type_fact(known));
    facts.map(Fact::from).collect()
}
