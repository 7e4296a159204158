//! Rule: a `const fn`, which the compiler may run, has no label.
use gekkota_attributes::gecko_profiler_fn_label;

#[gecko_profiler_fn_label(Layout, Reflow)]
pub const fn width(columns: u32) -> u32 {
    columns * 8
}

struct Page;

impl Page {
    #[gecko_profiler_fn_label("height", Layout)]
    pub(crate) const extern "C" fn height() -> u32 {
        width(3)
    }
}

const WIDTH: u32 = width(2);

fn main() {
    let _ = (WIDTH, Page::height());
}
