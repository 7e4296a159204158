//! Rule: `gecko_profiler_fn_label` needs a function with a body. It keeps any other item as it is.
use gekkota_attributes::gecko_profiler_fn_label;

#[gecko_profiler_fn_label(Network)]
pub struct Request;

#[gecko_profiler_fn_label(Network)]
impl Request {}

#[gecko_profiler_fn_label(Network)]
pub(crate) const LIMIT: fn() -> u8 = || 7;

// SAFETY: the C library defines it.
#[gecko_profiler_fn_label(Network)]
unsafe extern "C" {
    safe fn abs(number: i32) -> i32;
}

trait Answers {
    #[gecko_profiler_fn_label(Network)]
    fn answer(&self) -> u8;

    #[gecko_profiler_fn_label(Network)]
    const STATUS: u8;
}

impl Answers for Request {
    fn answer(&self) -> u8 {
        LIMIT()
    }

    const STATUS: u8 = 1;
}

fn main() {
    let _ = (Request.answer(), Request::STATUS, abs(-1));
}
