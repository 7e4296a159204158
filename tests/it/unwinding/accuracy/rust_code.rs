//! Rust functions of many shapes, for the stepper. They allocate nothing.

use std::hint::black_box;

#[inline(never)]
fn leaf(value: u64) -> u64 {
    value.rotate_left(3) ^ 5
}

#[inline(never)]
fn small(value: u64) -> u64 {
    black_box(leaf(value)) + 1
}

/// Has a frame of several pages, which is probed page by page.
#[inline(never)]
fn large_frame(value: u64) -> u64 {
    let mut memory = black_box([0u64; 1200]);
    memory[(value % 1200) as usize] = leaf(value);
    black_box(&memory)[7]
}

/// Has a frame of so many pages that they are probed in a loop.
#[inline(never)]
fn larger_frame(value: u64) -> u64 {
    let mut memory = std::mem::MaybeUninit::<[u64; 20_000]>::uninit();
    let first = memory.as_mut_ptr().cast::<u64>();
    // SAFETY: the pointer is to the first element of the array.
    unsafe { first.write(leaf(value)) };
    // SAFETY: the element was written above.
    leaf(unsafe { black_box(first).read() })
}

/// Uses all callee-saved registers, for values that live across calls.
#[inline(never)]
fn many_registers(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64) -> u64 {
    let (g, h) = (leaf(a ^ b), leaf(c ^ d));
    let (i, j) = (leaf(e ^ f), leaf(a ^ g));
    let (k, l) = (leaf(b ^ h), leaf(c ^ i));
    let first = leaf(a + b + c + d + e + f + g + h + i + j + k + l);
    a ^ b ^ c ^ d ^ e ^ f ^ g ^ h ^ i ^ j ^ k ^ l ^ first
}

/// Takes more arguments than registers hold, so the caller pushes some.
#[inline(never)]
#[expect(clippy::too_many_arguments, reason = "some arguments must be pushed")]
fn many_arguments(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64, h: u64, i: u64) -> u64 {
    leaf(a + b + c) ^ leaf(d + e + f) ^ leaf(g + h + i)
}

trait Shape {
    fn area(&self, value: u64) -> u64;
}
struct Square;
struct Circle;
impl Shape for Square {
    #[inline(never)]
    fn area(&self, value: u64) -> u64 {
        small(value) * value
    }
}
impl Shape for Circle {
    #[inline(never)]
    fn area(&self, value: u64) -> u64 {
        leaf(value) * 3 + small(value)
    }
}

#[inline(never)]
fn through_vtable(value: u64) -> u64 {
    let shapes: [&dyn Shape; 2] = [black_box(&Square), black_box(&Circle)];
    shapes.iter().map(|shape| shape.area(value)).sum()
}

/// Ends in a call that the compiler may turn into a jump.
#[inline(never)]
fn tail_call(value: u64) -> u64 {
    tail_called(value ^ black_box(1))
}

#[inline(never)]
fn tail_called(value: u64) -> u64 {
    black_box(leaf(value)) ^ 2
}

#[inline(never)]
fn aligned_frame(value: u64) -> u64 {
    #[repr(align(64))]
    struct Aligned([u64; 16]);
    let mut aligned = black_box(Aligned([value; 16]));
    aligned.0[3] = leaf(aligned.0[2]);
    black_box(&aligned).0[3]
}

#[inline(never)]
fn floats(value: u64) -> u64 {
    let number = black_box(value as f64).mul_add(1.5, 2.0);
    (black_box(number.sqrt()) as u64) ^ leaf(value)
}

#[inline(never)]
fn recursive(depth: u64) -> u64 {
    if depth == 0 {
        leaf(black_box(1))
    } else {
        black_box(recursive(depth - 1)) + 1
    }
}

#[inline(never)]
fn early_return(value: u64) -> Option<u64> {
    let checked = black_box(value).checked_sub(10)?;
    Some(small(leaf(checked)))
}

#[inline(never)]
fn calls_closures(value: u64) -> u64 {
    let add = |number: u64| leaf(number + value);
    let twice: &dyn Fn(u64) -> u64 = black_box(&add);
    twice(twice(value))
}

type Function = fn(u64);

/// All functions, by name.
pub(crate) const FUNCTIONS: &[(&str, Function)] = &[
    ("small functions", |value| _ = black_box(small(leaf(value)))),
    ("a frame of several pages", |value| {
        _ = black_box(large_frame(value))
    }),
    ("a frame probed in a loop", |value| {
        _ = black_box(larger_frame(value))
    }),
    ("every callee-saved register", |value| {
        _ = black_box(
            many_registers(value, 2, 3, 4, 5, 6) ^ many_arguments(value, 2, 3, 4, 5, 6, 7, 8, 9),
        );
    }),
    ("calls through a vtable", |value| {
        _ = black_box(through_vtable(value))
    }),
    ("tail calls", |value| _ = black_box(tail_call(value))),
    ("an aligned frame", |value| {
        _ = black_box(aligned_frame(value))
    }),
    ("floating point, closures, early returns", |value| {
        _ = black_box(floats(value) ^ calls_closures(value));
        black_box((early_return(value), early_return(value + 100)));
    }),
    ("recursion", |value| _ = black_box(recursive(value % 8 + 4))),
];
