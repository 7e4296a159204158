//! Compares our rules and their cache with framehop's, over all modules of the test process.

use std::cell::Cell;

use framehop::{
    CacheNative, ExplicitModuleSectionInfo, FrameAddress, MayAllocateDuringUnwind, Module,
    UnwindRegsNative, Unwinder as _, UnwinderNative,
};
use gimli::{
    BaseAddresses, CieOrFde, EhFrame, EndianSlice, NativeEndian, UnwindContext, UnwindSection,
};

use crate::platform::{ModuleImage, Registers, current_thread_id, list_modules, thread_cpu_ns};
use crate::unwind::call_frames::CallFrames;
use crate::unwind::native_stack::{RegisterFile, StackCopy};
use crate::unwind::rules::{Rule, RuleCache, RuleKey};

type Framehop = UnwinderNative<Vec<u8>, MayAllocateDuringUnwind>;
type Cache = CacheNative<MayAllocateDuringUnwind>;

fn framehop_of(module: &ModuleImage) -> Framehop {
    let unwind = module.unwind_sections().expect("sections");
    let range = |address: u64, length: usize| {
        let start = address.wrapping_sub(module.bias);
        Some(start..start.wrapping_add(length as u64))
    };
    let sections = ExplicitModuleSectionInfo {
        eh_frame_svma: range(unwind.eh_frame_address, unwind.eh_frame.len()),
        eh_frame_hdr_svma: range(unwind.eh_frame_hdr_address, unwind.eh_frame_hdr.len()),
        eh_frame: Some(unwind.eh_frame.to_vec()),
        eh_frame_hdr: Some(unwind.eh_frame_hdr.to_vec()),
        ..Default::default()
    };
    let mut framehop = Framehop::new();
    framehop.add_module(Module::new(
        String::new(),
        module.range.clone(),
        module.bias,
        sections,
    ));
    framehop
}

/// Returns the start addresses of all rows of a module's call frame information.
fn rows(module: &ModuleImage) -> Vec<u64> {
    let unwind = module.unwind_sections().expect("sections");
    let bases = BaseAddresses::default()
        .set_eh_frame_hdr(unwind.eh_frame_hdr_address)
        .set_eh_frame(unwind.eh_frame_address);
    let mut eh_frame = EhFrame::from(EndianSlice::new(&unwind.eh_frame, NativeEndian));
    eh_frame.set_address_size(8);
    let mut context = UnwindContext::new();
    let mut starts = Vec::new();
    let mut entries = eh_frame.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else {
            continue;
        };
        let Ok(mut table) = fde.rows(&eh_frame, &bases, &mut context) else {
            continue;
        };
        while let Ok(Some(row)) = table.next_row() {
            starts.push(row.start_address());
        }
    }
    starts
}

const STACK_START: u64 = 0x7fff_0000_0000;
const STACK_WORDS: u64 = 4096;

/// Returns a stack in which all words differ.
fn stack_bytes() -> Vec<u8> {
    (0..STACK_WORDS)
        .flat_map(|word| (0x5500_0000_0000 + word * 32).to_ne_bytes())
        .collect()
}

#[test]
fn rules_and_framehop_find_the_same_callers() {
    let bytes = stack_bytes();
    let stack = StackCopy {
        start: STACK_START,
        bytes: &bytes,
    };
    let start = Registers {
        sp: STACK_START + 512,
        fp: STACK_START + 2048,
        ..Registers::default()
    };
    let mut context = UnwindContext::new();
    let (mut same, mut roots, mut evaluated) = (0, 0, 0);
    for module in list_modules()
        .expect("memory")
        .1
        .iter()
        .filter(|module| module.unwind_sections().is_some())
    {
        let framehop = framehop_of(module);
        let frames = CallFrames::of(module).expect("call frames");
        let mut cache = Cache::new();
        for address in rows(module) {
            let Some(rule) = frames.rule_at(address, &mut context) else {
                continue;
            };
            let mut registers = RegisterFile::new(&start);
            let ours = match rule {
                Rule::FromStackPointer(offsets) => {
                    offsets.follow(start.sp, &mut registers, stack, true)
                }
                Rule::FromFramePointer(offsets) => {
                    offsets.follow(start.fp, &mut registers, stack, true)
                }
                Rule::Root => {
                    roots += 1;
                    continue;
                }
                _ => {
                    evaluated += 1;
                    continue;
                }
            };
            let mut theirs = UnwindRegsNative::new(address, start.sp, start.fp);
            let caller = framehop.unwind_frame(
                FrameAddress::from_instruction_pointer(address),
                &mut theirs,
                &mut cache,
                &mut |address| stack.word_at(address).ok_or(()),
            );
            if let (Some(ours), Ok(Some(caller))) = (ours, caller) {
                let ours = (ours, registers.sp(), registers.fp());
                assert_eq!(
                    ours,
                    (caller, theirs.sp(), Some(theirs.bp())),
                    "{rule:?} at {address:#x}"
                );
                same += 1;
            }
        }
    }
    println!("{same} rows agree, {roots} are roots, {evaluated} need evaluation");
    assert!(same > 10_000 && roots > 0 && evaluated > 0);
}

/// Returns `count` addresses with a skewed distribution: earlier ones of `addresses` occur more
/// often.
fn requests(addresses: &[u64], count: usize) -> Vec<u64> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    // As in a real program, few addresses are hot and many are rare.
    let pick = |random: f64| ((addresses.len() as f64).powf(random) - 1.0) as usize;
    (0..count).map(|_| addresses[pick(random())]).collect()
}

/// Returns the CPU time of this thread, which does not include the work of other threads.
fn cpu_ns() -> u64 {
    thread_cpu_ns(current_thread_id()).expect("a clock")
}

#[test]
fn thousands_of_hot_addresses_stay_in_the_cache() {
    let listed = list_modules().expect("memory").1;
    let own = thousands_of_hot_addresses_stay_in_the_cache as fn() as usize as u64;
    let module = listed
        .iter()
        .find(|module| module.range.contains(&own))
        .expect("this program");
    let mut context = UnwindContext::new();
    let frames = CallFrames::of(module).expect("call frames");
    let followable = |address: &u64| {
        let rule = frames.rule_at(*address, &mut UnwindContext::new());
        matches!(rule, Some(Rule::FromStackPointer(offsets)) if offsets.frame < 400)
    };
    let mut addresses: Vec<u64> = rows(module).into_iter().filter(followable).collect();
    // Hot addresses lie anywhere, so shuffle the addresses.
    addresses.sort_by_key(|address| address.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    addresses.dedup();
    addresses.truncate(20_000);
    let requests = requests(&addresses, 400_000);
    let bytes = stack_bytes();
    let stack = StackCopy {
        start: STACK_START,
        bytes: &bytes,
    };
    let start = Registers {
        sp: STACK_START + 512,
        fp: STACK_START + 2048,
        ..Registers::default()
    };

    let (mut cache, misses) = (RuleCache::new(), Cell::new(0));
    let mut ours = || {
        let before = cpu_ns();
        for &address in &requests {
            let key = RuleKey::new(address, true);
            let rule = cache.get(key).unwrap_or_else(|| {
                misses.set(misses.get() + 1);
                let rule = frames.rule_at(address, &mut context).expect("covered");
                cache.put(key, rule);
                rule
            });
            let Rule::FromStackPointer(offsets) = rule else {
                unreachable!("{rule:?}")
            };
            let mut registers = RegisterFile::new(&start);
            assert!(
                offsets
                    .follow(start.sp, &mut registers, stack, true)
                    .is_some()
            );
        }
        (cpu_ns() - before) as f64 / requests.len() as f64
    };
    let (cold_ns, cold_misses) = (ours(), misses.take());
    let (warm_ns, warm_misses) = (ours(), misses.take());

    let (framehop, mut cache) = (framehop_of(module), Cache::new());
    let mut theirs = || {
        let before = (cpu_ns(), cache.stats().misses());
        for &address in &requests {
            let mut registers = UnwindRegsNative::new(address, start.sp, start.fp);
            let frame = FrameAddress::from_instruction_pointer(address);
            let read = &mut |address| stack.word_at(address).ok_or(());
            assert!(
                framehop
                    .unwind_frame(frame, &mut registers, &mut cache, read)
                    .is_ok()
            );
        }
        (
            (cpu_ns() - before.0) as f64 / requests.len() as f64,
            cache.stats().misses() - before.1,
        )
    };
    theirs();
    let (framehop_ns, framehop_misses) = theirs();
    let count = requests.len() as f64 / 100.0;
    println!(
        "{} addresses: cold {cold_ns:.0} ns and {:.2} % missed, warm {warm_ns:.1} ns and {:.2} % missed; \
         framehop warm {framehop_ns:.0} ns and {:.2} % missed",
        addresses.len(),
        f64::from(cold_misses) / count,
        f64::from(warm_misses) / count,
        framehop_misses as f64 / count,
    );
    assert!(
        warm_misses * 100 < requests.len() as i32,
        "{warm_misses} of {} missed",
        requests.len()
    );
}
