//! Stop 7 of 12: the copy is unwound with framehop, on the sampler's own time.

use std::collections::HashMap;
use std::sync::Arc;

use framehop::{
    CacheNative, ExplicitModuleSectionInfo, FrameAddress, MayAllocateDuringUnwind, Module, UnwindRegsNative,
    Unwinder as _, UnwinderNative,
};

use crate::base::{CodeAddress, StackAddress};
use crate::platform::{ModuleImage, Registers, SectionBytes};
use crate::unwind::coverage::is_covered;
use crate::unwind::module_table::ModuleTable;
use crate::unwind::native_stack::{NativeFrame, NativeStack, StackCopy};

/// A stack deeper than this is cut at its older end.
const MAX_FRAMES: usize = 16 << 10;

/// Unwinds copied stacks of this process.
pub(crate) struct Unwinder {
    modules: ModuleTable,
    framehop: UnwinderNative<SectionBytes, MayAllocateDuringUnwind>,
    cache: CacheNative<MayAllocateDuringUnwind>,
    /// Addresses at which framehop found no caller, and whether that is so: see [`Self::is_root`].
    roots: HashMap<u64, bool>,
    /// The module of the frame before, which is often that of the next.
    last_module: Option<Arc<ModuleImage>>,
}

impl Unwinder {
    /// An unwinder that knows the modules that are loaded now. A few hundred µs.
    pub(crate) fn new() -> Self {
        let mut unwinder = Self {
            modules: ModuleTable::default(),
            framehop: UnwinderNative::new(),
            cache: CacheNative::new(),
            roots: HashMap::new(),
            last_module: None,
        };
        unwinder.refresh_modules();
        unwinder
    }

    /// Follows what was loaded and unloaded; true when anything was. Cheap when nothing was.
    pub(crate) fn refresh_modules(&mut self) -> bool {
        if !self.modules.refresh() {
            return false;
        }
        self.framehop = UnwinderNative::new();
        for module in self.modules.loaded() {
            self.framehop.add_module(to_framehop(module));
        }
        self.roots.clear();
        self.last_module = None;
        true
    }

    pub(crate) fn modules(&self) -> &ModuleTable {
        &self.modules
    }

    /// Fills `out` with the stack that these registers and bytes are of.
    pub(crate) fn unwind(&mut self, registers: &Registers, stack: StackCopy<'_>, out: &mut NativeStack) {
        out.frames.clear();
        out.truncated = true;
        out.frames.push(NativeFrame {
            address: CodeAddress::new(registers.pc),
            stack_address: StackAddress(registers.sp),
        });
        let mut regs = to_regs(registers);
        let mut frame = FrameAddress::from_instruction_pointer(registers.pc);
        let mut read_stack = |address| stack.word_at(address).ok_or(());
        while out.frames.len() < MAX_FRAMES {
            match self.framehop.unwind_frame(frame, &mut regs, &mut self.cache, &mut read_stack) {
                Ok(Some(caller)) => {
                    let Some(next) = FrameAddress::from_return_address(caller) else { return };
                    if !self.is_code(next.address_for_lookup()) {
                        return;
                    }
                    out.frames.push(NativeFrame {
                        address: CodeAddress::new(caller),
                        stack_address: StackAddress(regs.sp()),
                    });
                    frame = next;
                }
                Ok(None) => {
                    out.truncated = !self.is_root(frame.address_for_lookup());
                    return;
                }
                Err(_) => return,
            }
        }
    }

    fn is_code(&mut self, address: u64) -> bool {
        if self.last_module.as_ref().is_some_and(|module| module.range.contains(&address)) {
            return true;
        }
        self.last_module = self.modules.find(address).cloned();
        self.last_module.is_some()
    }

    /// Whether "no caller" was read in call frame information. framehop also says so of code without any, when the
    /// frame pointer happens to be 0; that is a stack that could not be followed.
    fn is_root(&mut self, address: u64) -> bool {
        if let Some(&known) = self.roots.get(&address) {
            return known;
        }
        let root = self.modules.find(address).is_some_and(|module| is_covered(module, address));
        self.roots.insert(address, root);
        root
    }
}

fn to_framehop(module: &ModuleImage) -> Module<SectionBytes> {
    let in_file = |address: u64, length: usize| {
        let start = address.wrapping_sub(module.bias);
        start..start.wrapping_add(length as u64)
    };
    let unwind = module.unwind.clone();
    let sections = ExplicitModuleSectionInfo {
        eh_frame_svma: unwind.as_ref().map(|unwind| in_file(unwind.eh_frame_address, unwind.eh_frame.len())),
        eh_frame_hdr_svma: unwind
            .as_ref()
            .map(|unwind| in_file(unwind.eh_frame_hdr_address, unwind.eh_frame_hdr.len())),
        eh_frame: unwind.as_ref().map(|unwind| unwind.eh_frame.clone()),
        eh_frame_hdr: unwind.map(|unwind| unwind.eh_frame_hdr),
        ..Default::default()
    };
    Module::new(module.path.display().to_string(), module.range.clone(), module.bias, sections)
}

#[cfg(target_arch = "x86_64")]
fn to_regs(registers: &Registers) -> UnwindRegsNative {
    UnwindRegsNative::new(registers.pc, registers.sp, registers.fp)
}

#[cfg(target_arch = "aarch64")]
fn to_regs(registers: &Registers) -> UnwindRegsNative {
    UnwindRegsNative::new(registers.lr, registers.sp, registers.fp)
}
