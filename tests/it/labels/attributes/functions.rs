//! Functions in every form, each with a unique label.

use std::fmt::Display;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Requests, run};

/// Attributes before and after the label's attribute keep their effect.
#[inline(never)]
#[gecko_profiler_fn_label(Layout, Reflow)]
#[must_use]
pub(crate) fn free(mut value: u32) -> u32 {
    #![allow(clippy::let_and_return, reason = "tests an inner attribute")]
    run();
    value += 1;
    value
}

#[gecko_profiler_fn_label(Layout, Printing)]
#[inline(never)]
pub(super) fn with_bounds<'a, T, F: Fn(&'a str) -> Option<T>, const N: usize>(
    texts: [&'a str; N],
    read: F,
) -> impl Iterator<Item = T> + use<'a, T, F, N>
where
    T: Display,
{
    run();
    texts.into_iter().filter_map(read)
}

#[inline(never)]
#[gecko_profiler_fn_label("with a text", Requests::Parsing)]
pub(crate) fn with_text() {
    run();
}

#[inline(never)]
#[gecko_profiler_fn_label(r"with a constant's category", Held::CATEGORY)]
pub(crate) extern "C" fn with_c_abi(value: i32) -> i32 {
    run();
    -value
}

/// # Safety
/// - `pointer` must be valid for reads.
#[inline(never)]
#[gecko_profiler_fn_label(Graphics, Rasterization)]
pub(crate) unsafe fn with_duties(pointer: *const u8) -> u8 {
    run();
    // SAFETY: the caller guarantees that the pointer is valid.
    unsafe { *pointer }
}

pub(crate) struct Held(pub(crate) String);

impl Held {
    const CATEGORY: gecko_profiler::ProfilingCategoryPair =
        gecko_profiler::ProfilingCategoryPair::IPC(None);

    #[inline(never)]
    #[gecko_profiler_fn_label(Graphics, WebGPU)]
    pub(crate) fn borrowed(&self) -> &str {
        run();
        &self.0
    }

    #[inline(never)]
    #[gecko_profiler_fn_label(JavaScript, Interpreter)]
    pub(crate) fn changed(&mut self) -> Result<(), std::num::ParseIntError> {
        run();
        let number: u32 = self.0.parse()?;
        self.0 = (number + 1).to_string();
        Ok(())
    }

    #[inline(never)]
    #[gecko_profiler_fn_label(JavaScript, BuiltinAPI)]
    pub(crate) fn moved(self) -> String {
        run();
        self.0
    }
}

pub(crate) trait Default {
    #[inline(never)]
    #[gecko_profiler_fn_label(Media, Cubeb)]
    fn by_default(&self) -> &'static str {
        run();
        "by default"
    }
}

impl Default for Held {}

/// Passes its fragments to the attribute in invisible delimiters.
macro_rules! made {
    ($vis:vis $name:ident($category:ident, $($label:literal)?) -> $type:ty $body:block) => {
        #[inline(never)]
        #[gecko_profiler_fn_label($($label,)? $category)]
        $vis fn $name() -> $type $body
    };
    ($item:item) => {
        #[gecko_profiler_fn_label(ML, Inference)]
        #[inline(never)]
        $item
    };
}

made!(pub(crate) made_with_text(Sandbox, "made") -> &'static str {
    run();
    "made"
});
made!(made_without_text(Sandbox,) -> () { run() });
made!(
    pub(crate) fn made_of_item() {
        run();
        made_without_text();
    }
);

/// A replacement for gekkota in an application.
pub(crate) mod elsewhere {
    pub(crate) static RUNS: super::AtomicU32 = super::AtomicU32::new(0);

    macro_rules! counted {
        (Network) => {
            $crate::labels::attributes::functions::elsewhere::RUNS
                .fetch_add(1, $crate::labels::attributes::functions::Ordering::Relaxed);
        };
    }
    pub(crate) use counted;
    pub(crate) mod __private {
        pub(crate) use super::counted as gecko_profiler_label;
    }
}

#[gecko_profiler_fn_label(Network, crate = crate::labels::attributes::functions::elsewhere)]
pub(crate) fn labeled_elsewhere() -> u32 {
    elsewhere::RUNS.load(Ordering::Relaxed)
}

#[gecko_profiler_fn_label(Network, crate = gecko_profiler,)]
pub(crate) fn labeled_by_another_name() {}
