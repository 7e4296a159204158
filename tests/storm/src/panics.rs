//! Panics some calls deep and catches the panics. All frames in between are unwound.

use std::cell::Cell;
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};

use crate::crew::Context;
use crate::peer;
use crate::random::Random;
use crate::tally;
use crate::work::mix;

/// Payload of the storm's own panics.
struct Thrown(u64);

/// Silences the messages of the storm's own panics.
pub fn silence_ours() {
    let others = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.payload().is::<Thrown>() {
            others(info);
        }
    }));
}

/// Panics without a message.
pub fn throw() -> ! {
    panic_any(Thrown(0))
}

struct Counted<'a>(&'a Cell<u64>);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[inline(never)]
fn throw_from(depth: u64, seed: u64, unwound: &Cell<u64>) -> u64 {
    let _counted = Counted(unwound);
    if depth == 0 {
        panic_any(Thrown(mix(seed, 200)));
    }
    let kept = black_box([seed ^ depth; 4]);
    let value = throw_from(depth - 1, seed, unwound);
    value ^ kept[depth as usize % 4]
}

pub fn panic_worker(context: &mut Context) {
    while context.goes_on() {
        peer::while_absent(|| panic_and_catch(&mut context.random));
    }
}

fn panic_and_catch(random: &mut Random) {
    let seed = random.next();
    let most = if random.once_in(10) { 400 } else { 40 };
    let depth = 1 + random.below(most);
    let unwound = Cell::new(0);
    let result = catch_unwind(AssertUnwindSafe(|| throw_from(depth, seed, &unwound)));
    let payload = result.expect_err("the body panics");
    let thrown = payload.downcast::<Thrown>().expect("the storm's own panic");
    assert_eq!(thrown.0, mix(seed, 200), "the payload was corrupted");
    assert_eq!(unwound.get(), depth + 1, "number of dropped frames");
    tally::PANICS.one();
}
