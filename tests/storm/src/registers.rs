//! Keeps known values in every register, in the flags, below the stack pointer and in `errno`,
//! while signals arrive.

use std::arch::asm;

use crate::crew::Context;
use crate::tally;

const ROUNDS: u64 = 50_000;

/// Values of the registers, before and after the loop.
#[repr(C, align(64))]
#[derive(Clone, PartialEq, Debug)]
struct Registers {
    vectors: [[u64; 4]; 32],
    integers: [u64; 8],
    /// Words right below the stack pointer, in the red zone that a leaf function may use on x86_64.
    red_zone: [u64; 2],
    carry: u64,
}

impl Registers {
    fn new(mut next: impl FnMut() -> u64) -> Self {
        Self {
            vectors: std::array::from_fn(|_| std::array::from_fn(|_| next())),
            integers: std::array::from_fn(|_| next()),
            red_zone: std::array::from_fn(|_| next()),
            carry: 1,
        }
    }

    fn zeroed() -> Self {
        Self {
            vectors: [[0; 4]; 32],
            integers: [0; 8],
            red_zone: [0; 2],
            carry: 0,
        }
    }
}

/// Loads all registers from `from`, loops for a while, and stores them to `to`.
#[cfg(target_arch = "x86_64")]
macro_rules! hold {
    ($move:literal, $register:literal, $from:expr, $to:expr) => {
        asm!(
            concat!($move, " ", $register, "0, [rsi]"), concat!($move, " ", $register, "1, [rsi + 32]"),
            concat!($move, " ", $register, "2, [rsi + 64]"), concat!($move, " ", $register, "3, [rsi + 96]"),
            concat!($move, " ", $register, "4, [rsi + 128]"), concat!($move, " ", $register, "5, [rsi + 160]"),
            concat!($move, " ", $register, "6, [rsi + 192]"), concat!($move, " ", $register, "7, [rsi + 224]"),
            concat!($move, " ", $register, "8, [rsi + 256]"), concat!($move, " ", $register, "9, [rsi + 288]"),
            concat!($move, " ", $register, "10, [rsi + 320]"), concat!($move, " ", $register, "11, [rsi + 352]"),
            concat!($move, " ", $register, "12, [rsi + 384]"), concat!($move, " ", $register, "13, [rsi + 416]"),
            concat!($move, " ", $register, "14, [rsi + 448]"), concat!($move, " ", $register, "15, [rsi + 480]"),
            "mov rax, [rsi + 1088]", "mov [rsp - 8], rax", "mov rax, [rsi + 1096]", "mov [rsp - 128], rax",
            "mov r8, [rsi + 1024]", "mov r9, [rsi + 1032]", "mov r10, [rsi + 1040]", "mov r11, [rsi + 1048]",
            "mov r12, [rsi + 1056]", "mov r13, [rsi + 1064]", "mov r14, [rsi + 1072]", "mov r15, [rsi + 1080]",
            // Neither instruction of the loop touches the flags.
            "stc",
            "2:", "lea rcx, [rcx - 1]", "jrcxz 3f", "jmp 2b", "3:",
            "setc byte ptr [rdi + 1104]",
            "mov [rdi + 1024], r8", "mov [rdi + 1032], r9", "mov [rdi + 1040], r10", "mov [rdi + 1048], r11",
            "mov [rdi + 1056], r12", "mov [rdi + 1064], r13", "mov [rdi + 1072], r14", "mov [rdi + 1080], r15",
            "mov rax, [rsp - 8]", "mov [rdi + 1088], rax", "mov rax, [rsp - 128]", "mov [rdi + 1096], rax",
            concat!($move, " [rdi], ", $register, "0"), concat!($move, " [rdi + 32], ", $register, "1"),
            concat!($move, " [rdi + 64], ", $register, "2"), concat!($move, " [rdi + 96], ", $register, "3"),
            concat!($move, " [rdi + 128], ", $register, "4"), concat!($move, " [rdi + 160], ", $register, "5"),
            concat!($move, " [rdi + 192], ", $register, "6"), concat!($move, " [rdi + 224], ", $register, "7"),
            concat!($move, " [rdi + 256], ", $register, "8"), concat!($move, " [rdi + 288], ", $register, "9"),
            concat!($move, " [rdi + 320], ", $register, "10"), concat!($move, " [rdi + 352], ", $register, "11"),
            concat!($move, " [rdi + 384], ", $register, "12"), concat!($move, " [rdi + 416], ", $register, "13"),
            concat!($move, " [rdi + 448], ", $register, "14"), concat!($move, " [rdi + 480], ", $register, "15"),
            in("rsi") $from, in("rdi") $to, inout("rcx") ROUNDS => _, out("rax") _,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
            out("r12") _, out("r13") _, out("r14") _, out("r15") _,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _,
            out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
        )
    };
}

#[cfg(target_arch = "x86_64")]
fn hold(from: &Registers) -> Registers {
    let mut to = Registers::zeroed();
    let wide = std::arch::is_x86_feature_detected!("avx");
    // SAFETY: the code only accesses the two structures, at the offsets of their fields, and the
    // red zone, which the compiler leaves to a block that may push. All its changes are declared.
    unsafe {
        if wide {
            hold!("vmovdqu", "ymm", &raw const *from, &raw mut to);
        } else {
            hold!("movdqu", "xmm", &raw const *from, &raw mut to);
        }
    }
    // The upper halves were neither loaded nor stored.
    let vector_words = if wide { 4 } else { 2 };
    for (index, (to, from)) in to.vectors.iter_mut().zip(&from.vectors).enumerate() {
        let held = if index < 16 { vector_words } else { 0 };
        to[held..].copy_from_slice(&from[held..]);
    }
    to
}

#[cfg(target_arch = "aarch64")]
fn hold(from: &Registers) -> Registers {
    let mut to = from.clone();
    to.vectors
        .iter_mut()
        .take(8)
        .for_each(|vector| vector[..2].fill(0));
    to.integers.fill(0);
    // SAFETY: the code only accesses the two structures, at the offsets of their fields. All its
    // changes are declared.
    unsafe {
        asm!(
            "ldr q0, [x0]", "ldr q1, [x0, #32]", "ldr q2, [x0, #64]", "ldr q3, [x0, #96]",
            "ldr q4, [x0, #128]", "ldr q5, [x0, #160]", "ldr q6, [x0, #192]", "ldr q7, [x0, #224]",
            "ldr x8, [x0, #1024]", "ldr x9, [x0, #1032]", "ldr x10, [x0, #1040]", "ldr x11, [x0, #1048]",
            "ldr x12, [x0, #1056]", "ldr x13, [x0, #1064]", "ldr x14, [x0, #1072]", "ldr x15, [x0, #1080]",
            // Neither instruction of the loop touches the flags.
            "cmp x2, x2",
            "2:", "sub x2, x2, #1", "cbnz x2, 2b",
            "cset x3, cs", "str x3, [x1, #1104]",
            "str x8, [x1, #1024]", "str x9, [x1, #1032]", "str x10, [x1, #1040]", "str x11, [x1, #1048]",
            "str x12, [x1, #1056]", "str x13, [x1, #1064]", "str x14, [x1, #1072]", "str x15, [x1, #1080]",
            "str q0, [x1]", "str q1, [x1, #32]", "str q2, [x1, #64]", "str q3, [x1, #96]",
            "str q4, [x1, #128]", "str q5, [x1, #160]", "str q6, [x1, #192]", "str q7, [x1, #224]",
            in("x0") &raw const *from, in("x1") &raw mut to, inout("x2") ROUNDS => _, out("x3") _,
            out("x8") _, out("x9") _, out("x10") _, out("x11") _,
            out("x12") _, out("x13") _, out("x14") _, out("x15") _,
            out("v0") _, out("v1") _, out("v2") _, out("v3") _, out("v4") _, out("v5") _, out("v6") _, out("v7") _,
        );
    }
    to
}

/// Returns a sum whose every digit depends on the rounding mode and on all previous steps.
fn add_up(seed: f64) -> f64 {
    (1..5000).fold(seed, |sum, step| {
        (sum + 1.0 / f64::from(step)) * 1.000_000_1
    })
}

pub fn register_worker(context: &mut Context) {
    while context.goes_on() {
        let registers = Registers::new(|| context.random.next());
        let errno = context.random.below(1000) as libc::c_int + 1;
        let seed = context.random.below(1000) as f64;
        let sum = add_up(seed);
        // SAFETY: the thread's own `errno`.
        unsafe { *libc::__errno_location() = errno };
        let held = hold(&registers);
        let sum_again = add_up(std::hint::black_box(seed));
        // SAFETY: the thread's own `errno`.
        let errno_after = unsafe { *libc::__errno_location() };
        assert_eq!(held, registers, "a register was corrupted");
        assert_eq!(errno_after, errno, "`errno` was changed");
        assert_eq!(sum.to_bits(), sum_again.to_bits(), "one sum, two results");
        tally::REGISTER_CHECKS.one();
    }
}
