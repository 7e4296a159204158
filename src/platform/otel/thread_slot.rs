//! The thread-local `otel_thread_ctx_v1`, through which a reader outside of the process finds the
//! calling thread's record.
//!
//! Rust's thread-locals have no symbol that a linker can export, so the variable is written in
//! assembler. It has two names. The exported one is for the reader, which looks for it in the
//! dynamic symbols. This code takes the address by the hidden one: what is hidden is never
//! replaced, so in an executable the linker turns the access into a constant offset, and no
//! relocation is left. With the exported name, an access would crash in a static executable of
//! musl, whose start-up code does not resolve such relocations. In a shared library the access
//! stays a call of a TLS descriptor.
//!
//! Both names are weak, so that two versions of this crate, or an SDK of OpenTelemetry with a
//! variable of its own, can be linked into one program.
//!
//! **Contract** (cited below):
//! - *as declared*: the variable is zeroed, aligned, and as large as a pointer; only
//!   [`set_thread_record`] accesses it;
//! - *descriptor call*: the instructions are those that the ABI prescribes for a TLS descriptor, in
//!   its order and registers, because linkers recognize them. The result is the variable's offset
//!   from the thread pointer.

use std::arch::{asm, global_asm};

global_asm!(
    ".pushsection .tbss.otel_thread_ctx_v1,\"awT\",%nobits",
    ".balign 8",
    ".weak otel_thread_ctx_v1",
    ".type otel_thread_ctx_v1, %object",
    ".size otel_thread_ctx_v1, 8",
    ".weak gekkota_otel_thread_slot",
    ".hidden gekkota_otel_thread_slot",
    ".type gekkota_otel_thread_slot, %object",
    ".size gekkota_otel_thread_slot, 8",
    "otel_thread_ctx_v1:",
    "gekkota_otel_thread_slot:",
    ".zero 8",
    ".popsection",
);

/// Returns the address of the calling thread's variable.
#[cfg(target_arch = "x86_64")]
fn own_slot() -> *mut *const u8 {
    let (offset, thread_pointer): (usize, usize);
    // SAFETY: *descriptor call*; the thread's control block begins with its own address.
    unsafe {
        asm!(
            "lea rax, [rip + gekkota_otel_thread_slot@TLSDESC]",
            "call qword ptr [rax + gekkota_otel_thread_slot@TLSCALL]",
            "mov rcx, fs:[0]",
            out("rax") offset,
            out("rcx") thread_pointer,
            clobber_abi("C"),
        );
    }
    thread_pointer.wrapping_add(offset) as *mut *const u8
}

/// Returns the address of the calling thread's variable.
#[cfg(target_arch = "aarch64")]
fn own_slot() -> *mut *const u8 {
    let (offset, thread_pointer): (usize, usize);
    // SAFETY: *descriptor call*; the register is the thread pointer.
    unsafe {
        asm!(
            "adrp x0, :tlsdesc:gekkota_otel_thread_slot",
            "ldr x1, [x0, :tlsdesc_lo12:gekkota_otel_thread_slot]",
            "add x0, x0, :tlsdesc_lo12:gekkota_otel_thread_slot",
            ".tlsdesccall gekkota_otel_thread_slot",
            "blr x1",
            "mrs x1, tpidr_el0",
            out("x0") offset,
            out("x1") thread_pointer,
            clobber_abi("C"),
        );
    }
    thread_pointer.wrapping_add(offset) as *mut *const u8
}

/// Lets a reader find the calling thread's record, which must exist as long as the thread.
#[inline(never)]
pub(crate) fn set_thread_record(record: *const u8) {
    // SAFETY: *as declared*.
    unsafe { own_slot().write_volatile(record) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_a_slot_of_its_own_that_starts_empty() {
        let check = || {
            let record = 7u64;
            let slot = own_slot();
            // SAFETY: *as declared*.
            let read = || unsafe { slot.read_volatile() };
            assert!(slot.is_aligned() && read().is_null());
            set_thread_record((&raw const record).cast());
            assert_eq!(read(), (&raw const record).cast());
            set_thread_record(std::ptr::null());
            slot as usize
        };
        let other = std::thread::spawn(check).join().expect("checked");
        assert_ne!(check(), other);
    }
}
