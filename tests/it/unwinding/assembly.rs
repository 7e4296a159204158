//! Frames that are hard to find, made in assembly: each is exact, or missing and the stack marked; none is wrong.

use std::arch::global_asm;
use std::time::Duration;

use crate::common::{Read, WorkLeft, isolated, work, work_for_cpu};
use gekkota::{ProfilerSession, StartParams};

// Each calls what it is given, or loops so many times.
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
    // As above, but it calls one that keeps no frame pointer: `rbp` is this one's there.
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
    // Without call frame information; calls itself, so that each of its instructions is sampled, and a frame pointer that
    // is the caller's leads to a call of the same function.
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
    // The canonical frame address hangs on a register that calls keep, and whose value its callee has saved.
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
    // It hangs on a register that calls do not keep, as in a stack probe.
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
    // The stack is aligned as C compilers do it: the frame's address is read from the stack.
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
    // A signal comes at its very first instruction, which stands behind another function's last.
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

// SAFETY: the functions above have these names and the C ABI.
unsafe extern "C" {
    fn silent_outer(call: Callback);
    fn silent_tempting(call: Callback);
    fn silent_recursive(depth: u64);
    fn by_kept_register(call: Callback);
    fn by_scratch_register(rounds: u64);
    fn by_expression(call: Callback);
    fn interrupted_at_first();
}

const TIME: Duration = Duration::from_millis(300);

extern "C" fn works() {
    work_for_cpu(TIME);
    std::hint::black_box(());
}

extern "C" fn handles_signal(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    works();
    // SAFETY: the kernel's context of the interrupted `ud2`, which has two bytes.
    unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize] += 2 };
}

fn install_handler() {
    // SAFETY: an action of zeros is a valid one; the handler has the shape that the flags say.
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

/// Calls, and is there when the call returns.
#[inline(never)]
fn stays(run: impl FnOnce()) {
    run();
    std::hint::black_box(());
}

fn until_done(mut run: impl FnMut()) {
    let mut left = WorkLeft::new(TIME);
    while left.is_some() {
        run();
        work(20);
    }
}

/// What a stack has to be, oldest frame first, from the thread's function on.
struct Case {
    name: &'static str,
    run: fn(),
    /// The functions of this file that a whole stack has.
    whole: &'static [&'static str],
    /// Those that a truncated one ends with; none when no stack may be truncated.
    truncated: &'static [&'static str],
}

// SAFETY of all: each function keeps the C ABI, and what it calls works for a while.
const CASES: &[Case] = &[
    Case {
        name: "frame pointers",
        // SAFETY: as above.
        run: || stays(|| unsafe { silent_outer(works) }),
        whole: &["silent_outer", "silent_inner", "works"],
        truncated: &[],
    },
    Case {
        name: "no frame pointer",
        // SAFETY: as above.
        run: || stays(|| unsafe { silent_tempting(works) }),
        whole: &[],
        truncated: &["silent_bare", "works"],
    },
    Case {
        name: "kept register",
        // SAFETY: as above.
        run: || stays(|| unsafe { by_kept_register(works) }),
        whole: &["by_kept_register", "works"],
        truncated: &[],
    },
    Case {
        name: "scratch register",
        // SAFETY: as above.
        run: || until_done(|| unsafe { by_scratch_register(100_000) }),
        whole: &["by_scratch_register"],
        truncated: &[],
    },
    Case {
        name: "expression",
        // SAFETY: as above.
        run: || stays(|| unsafe { by_expression(works) }),
        whole: &["by_expression", "works"],
        truncated: &[],
    },
    Case {
        name: "signal frame",
        // SAFETY: as above; its handler goes on behind the instruction that raised the signal.
        run: || stays(|| unsafe { interrupted_at_first() }),
        whole: &["interrupted_at_first", "handles_signal", "works"],
        truncated: &[],
    },
];

const DEPTH: u64 = 30;

#[inline(never)]
fn recurses() {
    // SAFETY: it keeps the C ABI, needs some stack and returns.
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

#[test]
fn no_frame_is_wrong() {
    isolated(|| {
        install_handler();
        let session = ProfilerSession::start(StartParams::default()).expect("start");
        let run = |name: &'static str, run: fn()| {
            let body = move || {
                gekkota::register_thread(name);
                run();
            };
            std::thread::spawn(body).join().expect("thread");
        };
        for case in CASES {
            run(case.name, case.run);
        }
        run("recursion", || {
            until_done(|| (0..1000).for_each(|_| recurses()))
        });
        let read = Read::from_profile(&session.finish().expect("profile"));

        for Case {
            name,
            whole,
            truncated,
            ..
        } in CASES
        {
            let (mut exact, mut cut, mut outside) = (0u64, 0, 0);
            for sample in read.samples(name) {
                let stack = own_functions(&sample.stack);
                // The thread's first and last moments, and those in which the loop reads the clock.
                if !stack
                    .iter()
                    .any(|frame| Some(&frame.as_str()) == whole.iter().chain(*truncated).next())
                {
                    outside += 1;
                    continue;
                }
                if sample.stack[0] == "(truncated)" {
                    assert!(
                        !truncated.is_empty()
                            && truncated.ends_with(&[stack.last().expect("frames")]),
                        "{name}: {:#?}",
                        sample.stack
                    );
                    assert_eq!(stack, truncated[..], "{name}: {:#?}", sample.stack);
                    cut += 1;
                } else {
                    // A caller may be sampled itself, just before or after its call. Then the
                    // callees are missing, and nothing else.
                    let is_of_caller = whole.iter().zip(&stack).all(|(known, own)| known == own)
                        && stack.len() < whole.len();
                    assert!(
                        is_of_caller || stack == whole[..],
                        "{name}: {:#?}",
                        sample.stack
                    );
                    exact += u64::from(!is_of_caller);
                }
            }
            println!("{name}: {exact} exact, {cut} truncated, {outside} elsewhere");
            let wanted = if truncated.is_empty() { exact } else { cut };
            assert!(wanted > 100, "{name}: {wanted} samples");
        }

        let (mut exact, mut cut) = (0, 0);
        for sample in read.samples("recursion") {
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
                cut += 1;
            } else {
                exact += 1;
                assert!(stack.len() <= DEPTH as usize);
            }
        }
        println!("recursion: {exact} exact, {cut} truncated");
        assert!(exact > 100, "{exact} exact, {cut} truncated");
    });
}
