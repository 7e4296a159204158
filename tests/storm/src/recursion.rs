//! Deep recursion: 10,000 small frames, and large frames to near the end of a small and a large
//! stack. The small one is just small enough to be copied whole.

use std::hint::black_box;

use crate::crew::Context;
use crate::tally;
use crate::work::mix;

const SMALL_FRAMES: u64 = 10_000;
/// Bytes left free at the end of a stack: for the frame of a signal, whose registers take up to 12
/// KiB, and for pprof's handler, which unwinds there and takes 20 KiB.
const MARGIN_BYTES: u64 = 64 << 10;

#[inline(never)]
fn dive_small(depth: u64, seed: u64) -> u64 {
    let value = if depth == 0 {
        mix(seed, 200_000)
    } else {
        dive_small(depth - 1, seed)
    };
    black_box(value.wrapping_add(depth))
}

pub fn recurse_worker(context: &mut Context) {
    while context.goes_on() {
        let seed = context.random.next();
        let expected = mix(seed, 200_000).wrapping_add(SMALL_FRAMES * (SMALL_FRAMES + 1) / 2);
        assert_eq!(
            dive_small(SMALL_FRAMES, seed),
            expected,
            "a deep stack was corrupted"
        );
        tally::DIVES.one();
    }
}

/// Returns the lowest address of the calling thread's stack, which may be larger than the thread
/// asked for.
fn stack_low() -> u64 {
    // SAFETY: the first call initializes the attributes, and all pointers are to locals.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        assert_eq!(
            libc::pthread_getattr_np(libc::pthread_self(), &mut attributes),
            0
        );
        let (mut low, mut bytes) = (std::ptr::null_mut(), 0);
        assert_eq!(
            libc::pthread_attr_getstack(&attributes, &mut low, &mut bytes),
            0
        );
        libc::pthread_attr_destroy(&mut attributes);
        low as u64
    }
}

/// Goes deeper until the stack pointer is near `low`. Then checks the 4 KiB of its caller's frame
/// for corruption.
#[inline(always)]
fn use_frame(low: u64, top: u64, seed: u64, go_deeper: impl FnOnce() -> u64) -> u64 {
    let block = black_box([seed; 512]);
    let here = block.as_ptr() as u64;
    let value = if here < low + MARGIN_BYTES {
        tally::DEEPEST_KIB.greatest((top - here) >> 10);
        mix(seed, 500_000)
    } else {
        go_deeper()
    };
    assert!(
        black_box(block).iter().all(|word| *word == seed),
        "a frame was corrupted"
    );
    value
}

#[inline(never)]
fn dive_to(low: u64, top: u64, seed: u64) -> u64 {
    use_frame(low, top, seed, || dive_to(low, top, seed + 1))
}

/// Does what [`dive_to`] does, on a stack that is too deep to be copied whole.
#[inline(never)]
fn plunge_to(low: u64, top: u64, seed: u64) -> u64 {
    use_frame(low, top, seed, || plunge_to(low, top, seed + 2))
}

fn again_and_again(context: &mut Context, dive: fn(u64, u64, u64) -> u64) {
    let asked_bytes = context.post.role.map_or(0, |role| role.stack_bytes) as u64;
    let top = &raw const asked_bytes as u64;
    // The C library may give the thread the stack of an ended one, up to four times as large. On
    // all of that, the diver's own function would be too deep to be sampled.
    let low = stack_low().max(top - asked_bytes);
    while context.goes_on() {
        let seed = context.random.next() >> 8;
        black_box(dive(low, top, seed));
        tally::DIVES.one();
    }
}

pub fn dive_worker(context: &mut Context) {
    again_and_again(context, dive_to);
    black_box(context.post.beats());
}

pub fn plunge_worker(context: &mut Context) {
    again_and_again(context, plunge_to);
    black_box(context.random.next());
}
