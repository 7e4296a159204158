//! A sampler like the Gecko Profiler's on Linux: it suspends a thread, unwinds its stack in place,
//! and resumes the thread.
//!
//! The steps are those of Gecko's `Sampler::SuspendAndSampleAndResumeThread`: the sampler signals
//! the thread; the handler copies its context, posts a semaphore and waits for a second; the
//! sampler unwinds and posts the second; the handler posts a third, for which the sampler waits.
//! The sampler does not allocate while a thread is suspended, since that thread may hold the
//! allocator's lock. The unwinder is the one that gekkota uses. So the two samplers differ in where
//! the stack is unwound, and in which thread waits.

use std::io::Result;

use framehop::{
    CacheNative, ExplicitModuleSectionInfo, FrameAddress, MustNotAllocateDuringUnwind,
    UnwindRegsNative, Unwinder as _, UnwinderNative,
};

use crate::raw::{self, Handshake, Registers, SuspendableThread};

const MAX_FRAMES: usize = 1024;

type Unwinder = UnwinderNative<&'static [u8], MustNotAllocateDuringUnwind>;

pub(crate) struct HandshakeSampler {
    handshake: Handshake,
    unwinder: Unwinder,
    cache: CacheNative<MustNotAllocateDuringUnwind>,
    frames: Vec<u64>,
}

impl HandshakeSampler {
    /// Creates the process's only sampler, for the modules that are loaded now.
    pub(crate) fn new() -> Result<Self> {
        let mut unwinder = Unwinder::new();
        for module in raw::modules() {
            unwinder.add_module(to_framehop(&module));
        }
        let frames = Vec::with_capacity(MAX_FRAMES);
        Ok(Self {
            handshake: Handshake::new()?,
            unwinder,
            cache: CacheNative::new_in(),
            frames,
        })
    }

    /// Returns the program counters of the thread's stack, innermost first, or nothing if the
    /// thread has exited.
    pub(crate) fn sample(&mut self, thread: &SuspendableThread) -> &[u64] {
        self.frames.clear();
        let Some(suspended) = self.handshake.suspend(thread) else {
            return &self.frames;
        };
        let mut regs = to_regs(&suspended.registers);
        let mut read_stack = |address| suspended.word_at(address).ok_or(());
        self.frames.push(suspended.registers.pc);
        let mut frame = FrameAddress::from_instruction_pointer(suspended.registers.pc);
        while self.frames.len() < MAX_FRAMES
            && let Ok(Some(caller)) =
                self.unwinder
                    .unwind_frame(frame, &mut regs, &mut self.cache, &mut read_stack)
            && let Some(next) = FrameAddress::from_return_address(caller)
        {
            // The vector has the capacity for this, so `push` does not allocate.
            self.frames.push(caller);
            frame = next;
        }
        drop(suspended);
        &self.frames
    }
}

fn to_framehop(module: &raw::Module) -> framehop::Module<&'static [u8]> {
    let in_file = |bytes: &[u8]| {
        let start = (bytes.as_ptr() as u64).wrapping_sub(module.bias);
        start..start.wrapping_add(bytes.len() as u64)
    };
    let sections = ExplicitModuleSectionInfo {
        eh_frame_svma: Some(in_file(module.eh_frame)),
        eh_frame_hdr_svma: Some(in_file(module.eh_frame_hdr)),
        eh_frame: Some(module.eh_frame),
        eh_frame_hdr: Some(module.eh_frame_hdr),
        ..Default::default()
    };
    framehop::Module::new(String::new(), module.range.clone(), module.bias, sections)
}

#[cfg(target_arch = "x86_64")]
fn to_regs(registers: &Registers) -> UnwindRegsNative {
    UnwindRegsNative::new(registers.pc, registers.sp, registers.fp)
}

#[cfg(target_arch = "aarch64")]
fn to_regs(registers: &Registers) -> UnwindRegsNative {
    UnwindRegsNative::new(registers.lr, registers.sp, registers.fp)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::threads::start_busy;

    #[test]
    fn sample_reaches_the_root_of_a_busy_thread_each_time() {
        let mut sampler = HandshakeSampler::new().expect("the first");
        assert!(HandshakeSampler::new().is_err());
        let (sender, threads) = channel();
        let busy = start_busy(1, move || {
            let _ = sender.send(SuspendableThread::current());
        });
        let _busy = busy.expect("thread");
        let thread = threads.recv().expect("an answer").expect("bounds");
        let mut roots: Vec<u64> = (0..100)
            .map(|_| *sampler.sample(&thread).last().expect("a frame"))
            .collect();
        roots.dedup();
        assert_eq!(
            roots.len(),
            1,
            "every stack has to end in the function where threads start"
        );
    }
}
