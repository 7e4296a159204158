//! Frames that are hard to find, made in assembly: no frame is wrong, and a stack with missing
//! frames is marked as truncated.

use std::arch::global_asm;
use std::cmp::Ordering;

use crate::common::{Read, Sample, isolated, wait_until, work};
use crate::sampling::places::Place;
use gekkota::{ProfilerSession, StartParams};

// Each function calls its argument, or loops that many times.
global_asm!(
    ".pushsection .text.hard, \"ax\", @progbits",
    ".macro begin name",
    ".globl \\name",
    ".type \\name, @function",
    "\\name:",
    ".endm",
    ".macro end name",
    ".size \\name, . - \\name",
    ".endm",
    // Without call frame information, with a frame pointer; calls the next directly.
    "begin silent_outer",
    "push rbp",
    "mov rbp, rsp",
    "sub rsp, 48",
    "call silent_inner",
    "leave",
    "ret",
    "end silent_outer",
    "begin silent_inner",
    "push rbp",
    "mov rbp, rsp",
    "push rbx",
    "sub rsp, 8",
    "call rdi",
    "add rsp, 8",
    "pop rbx",
    "pop rbp",
    "ret",
    "end silent_inner",
    // As above, but it calls a function without a frame pointer, where `rbp` is still the caller's.
    "begin silent_tempting",
    "push rbp",
    "mov rbp, rsp",
    "call silent_bare",
    "pop rbp",
    "ret",
    "end silent_tempting",
    "begin silent_bare",
    "sub rsp, 24",
    "call rdi",
    "add rsp, 24",
    "ret",
    "end silent_bare",
    // Without call frame information. It calls itself, so that samples fall on each of its
    // instructions, and the caller's frame pointer leads to a call of the same function.
    "begin silent_recursive",
    "push rbp",
    "mov rbp, rsp",
    "sub rsp, 16",
    "mov qword ptr [rsp], 0",
    "test rdi, rdi",
    "jz 2f",
    "dec rdi",
    "call silent_recursive",
    "2:",
    "add rsp, 16",
    "pop rbp",
    "nop",
    "nop",
    "ret",
    "end silent_recursive",
    // The canonical frame address depends on a callee-saved register, which its callee has saved.
    "begin by_kept_register",
    ".cfi_startproc",
    "push rbx",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbx, -16",
    "mov rbx, rsp",
    ".cfi_def_cfa_register rbx",
    "sub rsp, 64",
    "and rsp, -64",
    "call rdi",
    "mov rsp, rbx",
    ".cfi_def_cfa_register rsp",
    "pop rbx",
    ".cfi_def_cfa_offset 8",
    "ret",
    ".cfi_endproc",
    "end by_kept_register",
    // The canonical frame address depends on a caller-saved register, as in a stack probe.
    "begin by_scratch_register",
    ".cfi_startproc",
    "mov r11, rsp",
    ".cfi_def_cfa_register r11",
    "sub rsp, 256",
    "3:",
    "dec rdi",
    "jnz 3b",
    "mov rsp, r11",
    ".cfi_def_cfa_register rsp",
    "ret",
    ".cfi_endproc",
    "end by_scratch_register",
    // The stack is aligned as by C compilers: the canonical frame address is read from the stack.
    "begin by_expression",
    ".cfi_startproc",
    "lea r10, [rsp + 8]",
    ".cfi_def_cfa r10, 0",
    "and rsp, -64",
    "push [r10 - 8]",
    "push rbp",
    "mov rbp, rsp",
    // DW_CFA_expression rbp: DW_OP_breg6 0
    ".cfi_escape 0x10, 6, 2, 0x76, 0",
    "push r10",
    // DW_CFA_def_cfa_expression: DW_OP_breg6 -8, DW_OP_deref
    ".cfi_escape 0x0f, 3, 0x76, 0x78, 0x06",
    "sub rsp, 56",
    "call rdi",
    "add rsp, 56",
    "pop r10",
    ".cfi_def_cfa r10, 0",
    "pop rbp",
    "lea rsp, [r10 - 8]",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    "end by_expression",
    // A signal interrupts its first instruction, which directly follows another function.
    "begin before_interrupted",
    ".cfi_startproc",
    ".cfi_undefined rip",
    "nop",
    ".cfi_endproc",
    "end before_interrupted",
    "begin interrupted_at_first",
    ".cfi_startproc",
    "ud2",
    "ret",
    ".cfi_endproc",
    "end interrupted_at_first",
    ".purgem begin",
    ".purgem end",
    ".popsection",
);

type Callback = extern "C" fn();

// SAFETY: the assembly above defines these functions, with the C ABI.
unsafe extern "C" {
    fn silent_outer(call: Callback);
    fn silent_tempting(call: Callback);
    fn silent_recursive(depth: u64);
    fn by_kept_register(call: Callback);
    fn by_scratch_register(rounds: u64);
    fn by_expression(call: Callback);
    fn interrupted_at_first();
}

/// Number of samples that each case must have.
const SAMPLES: usize = 100;
const RECURSION: &str = "recursion";

static WORKING: Place = Place::new("sampled here");

extern "C" fn works() {
    WORKING.work();
    std::hint::black_box(());
}

extern "C" fn handles_signal(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // The signal interrupts `ud2`, not a push of a label, so the place may push its own.
    works();
    // SAFETY: the kernel's context of the interrupted `ud2`, which is two bytes long.
    unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize] += 2 };
}

fn install_handler() {
    // SAFETY: a zeroed action is valid, and the handler has the signature of `SA_SIGINFO`.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handles_signal as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(
            libc::sigaction(libc::SIGILL, &raw const action, std::ptr::null_mut()),
            0
        );
    }
}

/// Calls `run`, and stays on the stack during the call.
#[inline(never)]
fn stays(run: impl FnOnce()) {
    run();
    std::hint::black_box(());
}

fn until_sampled(mut run: impl FnMut()) {
    WORKING.repeat(|| {
        run();
        work(20);
    });
}

/// A case, and its stacks: the functions of this file, oldest first.
struct Case {
    name: &'static str,
    run: fn(),
    /// The functions of a complete stack.
    whole: &'static [&'static str],
    /// The functions of a truncated stack; empty if no stack may be truncated.
    truncated: &'static [&'static str],
}

const CASES: &[Case] = &[
    Case {
        name: "frame pointers",
        // SAFETY: the function has the C ABI, and so has its argument.
        run: || stays(|| unsafe { silent_outer(works) }),
        whole: &["silent_outer", "silent_inner", "works"],
        truncated: &[],
    },
    Case {
        name: "no frame pointer",
        // SAFETY: the function has the C ABI, and so has its argument.
        run: || stays(|| unsafe { silent_tempting(works) }),
        whole: &[],
        truncated: &["silent_bare", "works"],
    },
    Case {
        name: "kept register",
        // SAFETY: the function has the C ABI, and so has its argument.
        run: || stays(|| unsafe { by_kept_register(works) }),
        whole: &["by_kept_register", "works"],
        truncated: &[],
    },
    Case {
        name: "scratch register",
        // SAFETY: the function has the C ABI, and so has its argument.
        run: || until_sampled(|| unsafe { by_scratch_register(100_000) }),
        whole: &["by_scratch_register"],
        truncated: &[],
    },
    Case {
        name: "expression",
        // SAFETY: the function has the C ABI, and so has its argument.
        run: || stays(|| unsafe { by_expression(works) }),
        whole: &["by_expression", "works"],
        truncated: &[],
    },
    Case {
        name: "signal frame",
        // SAFETY: the handler continues after the instruction that raised the signal.
        run: || stays(|| unsafe { interrupted_at_first() }),
        whole: &["interrupted_at_first", "handles_signal", "works"],
        truncated: &[],
    },
];

const DEPTH: u64 = 30;

#[inline(never)]
fn recurses() {
    // SAFETY: the function has the C ABI, uses little stack and returns.
    unsafe { silent_recursive(DEPTH - 1) };
    std::hint::black_box(());
}

fn own_functions(stack: &[String]) -> Vec<String> {
    let names = [
        "silent_",
        "by_",
        "interrupted_",
        "before_interrupted",
        "handles_signal",
        "works",
    ];
    let name_of = |frame: &String| {
        let name = frame.split(" (in ").next()?.rsplit("::").next()?.to_owned();
        names
            .iter()
            .any(|start| name.starts_with(start))
            .then_some(name)
    };
    stack.iter().filter_map(name_of).collect()
}

/// What a sample of a case shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shown {
    /// The complete stack, or the truncated one where stacks are to be truncated.
    Whole,
    /// The stack of a caller, just before or after its call: the callees are missing, and nothing
    /// else.
    Caller,
    /// Other code: the thread's start and end, and the loop of a case.
    Elsewhere,
    Wrong,
}

fn shown(case: &Case, sample: &Sample) -> Shown {
    let stack = own_functions(&sample.stack);
    let outermost = case.whole.iter().chain(case.truncated).next();
    if !stack.iter().any(|frame| Some(&frame.as_str()) == outermost) {
        return Shown::Elsewhere;
    }
    let is_truncated = sample.stack[0] == "(truncated)";
    let expected = if is_truncated {
        case.truncated
    } else {
        case.whole
    };
    let is_part = stack.iter().zip(expected).all(|(own, known)| own == known);
    match (is_part, stack.len().cmp(&expected.len())) {
        (true, Ordering::Less) => Shown::Caller,
        (true, Ordering::Equal) if is_truncated != case.truncated.is_empty() => Shown::Whole,
        _ => Shown::Wrong,
    }
}

fn is_exact_recursion(sample: &Sample) -> bool {
    sample.stack[0] != "(truncated)" && !own_functions(&sample.stack).is_empty()
}

/// Runs the body on a thread until its samples, with names, are enough.
fn run(name: &'static str, body: fn(), is_wanted: impl Fn(&Sample) -> bool) {
    let thread = std::thread::spawn(move || {
        gekkota::register_thread(name);
        body();
    });
    // Names cost more, so they are looked up only when there are enough samples.
    WORKING.wait_for_samples(name, SAMPLES);
    wait_until(&format!("{name:?} has its samples"), || {
        let text = gekkota::profiler_get_profile().expect("a session runs");
        let samples = Read::from_text(&text).samples(name);
        samples.iter().filter(|sample| is_wanted(sample)).count() >= SAMPLES
    });
    WORKING.release();
    thread.join().expect("thread");
}

#[test]
fn hard_frames_are_exact_or_missing() {
    isolated(|| {
        install_handler();
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        for case in CASES {
            run(case.name, case.run, |sample| {
                // A wrong stack ends the wait, too; the checks below report it.
                matches!(shown(case, sample), Shown::Whole | Shown::Wrong)
            });
        }
        let recursion = || until_sampled(|| (0..1000).for_each(|_| recurses()));
        run(RECURSION, recursion, is_exact_recursion);
        let read = Read::from_profile(&session.finish().expect("profile"));
        println!("{} ticks missed", read.count("missed_ticks"));

        for case in CASES {
            let samples = read.samples(case.name);
            let shown: Vec<_> = samples.iter().map(|sample| shown(case, sample)).collect();
            let count = |wanted: Shown| shown.iter().filter(|&&shown| shown == wanted).count();
            println!(
                "{}: {} whole, {} of callers, {} elsewhere",
                case.name,
                count(Shown::Whole),
                count(Shown::Caller),
                count(Shown::Elsewhere)
            );
            let wrong = shown.iter().position(|&shown| shown == Shown::Wrong);
            assert!(
                wrong.is_none(),
                "{}: {:#?}",
                case.name,
                wrong.map(|at| &samples[at].stack)
            );
            assert!(count(Shown::Whole) >= SAMPLES, "{}", case.name);
        }

        let (mut exact, mut truncated) = (0, 0);
        for sample in read.samples(RECURSION) {
            let stack = own_functions(&sample.stack);
            if stack.is_empty() {
                continue;
            }
            assert!(
                stack.iter().all(|frame| frame == "silent_recursive"),
                "{:#?}",
                sample.stack
            );
            if sample.stack[0] == "(truncated)" {
                truncated += 1;
            } else {
                exact += 1;
                assert!(stack.len() <= DEPTH as usize);
            }
        }
        println!("recursion: {exact} exact, {truncated} truncated");
        assert!(exact >= SAMPLES, "{exact} exact, {truncated} truncated");
    });
}
