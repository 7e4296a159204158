//! Panics from some calls deep, and catches them; the frames in between are all unwound.

use std::cell::Cell;
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};

use crate::crew::Context;
use crate::peer;
use crate::random::Random;
use crate::tally;
use crate::work::mix;

/// What a panic of the storm carries.
struct Thrown(u64);

/// Panics that belong to the storm are not told.
pub fn silence_ours() {
    let others = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.payload().is::<Thrown>() {
            others(info);
        }
    }));
}

/// Panics, untold.
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
    let payload = result.expect_err("it panics");
    let thrown = payload.downcast::<Thrown>().expect("the storm's own panic");
    assert_eq!(thrown.0, mix(seed, 200), "the payload has changed");
    assert_eq!(unwound.get(), depth + 1, "each frame was dropped once");
    tally::PANICS.one();
}
