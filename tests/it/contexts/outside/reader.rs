//! A reader of OpenTelemetry's process and thread contexts, which shares no code with the writer.

use std::fs::File;
use std::os::unix::fs::FileExt;

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use object::elf::PT_TLS;
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol};

/// Part of the record with the ids, the flag and the length of the attributes.
const FIXED_BYTES: usize = 28;

/// What a thread's record says.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Record {
    pub(super) trace: [u8; 16],
    pub(super) span: [u8; 8],
    /// Keys and values, in the order of the record.
    pub(super) labels: Vec<(String, String)>,
}

/// What a process context says.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct ProcessContext {
    pub(super) published_at: u64,
    pub(super) schema: String,
    pub(super) keys: Vec<String>,
}

pub(super) fn label(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

fn read(process: i32, address: u64, bytes: usize) -> Vec<u8> {
    let memory = File::open(format!("/proc/{process}/mem")).expect("memory of the child");
    let mut read = vec![0; bytes];
    memory
        .read_exact_at(&mut read, address)
        .unwrap_or_else(|error| panic!("cannot read {bytes} bytes at {address:#x}: {error}"));
    read
}

fn read_u64(process: i32, address: u64) -> u64 {
    u64::from_ne_bytes(read(process, address, 8).try_into().expect("eight bytes"))
}

/// Returns the addresses of the mappings with the name of a process context.
pub(super) fn context_mappings(process: i32) -> Vec<u64> {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).expect("mappings");
    let is_named = |line: &&str| {
        let name = line.splitn(6, ' ').nth(5).unwrap_or_default().trim_start();
        [
            "[anon_shmem:OTEL_CTX]",
            "[anon:OTEL_CTX]",
            "/memfd:OTEL_CTX",
        ]
        .iter()
        .any(|prefix| name.starts_with(prefix))
    };
    let start = |line: &str| {
        line.split('-')
            .next()
            .map(|text| u64::from_str_radix(text, 16))
    };
    let lines = maps.lines().filter(is_named);
    lines
        .map(|line| start(line).expect("an address").expect("a number"))
        .collect()
}

/// Reads the process context; `None` if there is none.
///
/// # Panics
/// If there are several, or if one is malformed or being changed.
pub(super) fn process_context(process: i32) -> Option<ProcessContext> {
    let mappings = context_mappings(process);
    let [start] = mappings[..] else {
        assert!(mappings.is_empty(), "{mappings:x?}");
        return None;
    };
    let header = read(process, start, 32);
    assert_eq!(&header[..8], b"OTEL_CTX");
    let word = |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().expect("four bytes"));
    assert_eq!(word(8), 2, "the version");
    let published_at = read_u64(process, start + 16);
    assert_ne!(published_at, 0);
    let payload = read(process, read_u64(process, start + 24), word(12) as usize);
    let mut context = ProcessContext {
        published_at,
        schema: String::new(),
        keys: Vec::new(),
    };
    // `ProcessContext.attributes`, each with a key and an `AnyValue`.
    for attribute in fields(&payload, 2) {
        let value = fields(attribute, 2).next().expect("a value");
        match fields(attribute, 1).next().expect("a key") {
            b"threadlocal.schema_version" => {
                context.schema = text(fields(value, 1).next().expect("a text"));
            }
            b"threadlocal.attribute_key_map" => {
                let array = fields(value, 5).next().expect("an array");
                let texts = fields(array, 1).map(|value| fields(value, 1).next().expect("a text"));
                context.keys = texts.map(text).collect();
            }
            other => panic!("unexpected attribute {}", text(other)),
        }
    }
    Some(context)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// Returns the contents of a message's fields with this number. All fields have a length.
fn fields(message: &[u8], number: u8) -> impl Iterator<Item = &[u8]> {
    let (mut rest, mut all) = (message, Vec::new());
    while let [tag, length @ ..] = rest {
        assert_eq!(tag & 7, 2, "a field with a length");
        let last = length
            .iter()
            .position(|byte| byte & 0x80 == 0)
            .expect("a varint");
        let bytes = (0..=last).fold(0, |bytes, at| {
            bytes | usize::from(length[at] & 0x7f) << (7 * at)
        });
        let (content, after) = length[last + 1..].split_at(bytes);
        if tag >> 3 == number {
            all.push(content);
        }
        rest = after;
    }
    all.into_iter()
}

/// Returns the offset of the variable from the thread pointer, from the program's file: the program
/// defines the variable, so it lies in the block that ends at the thread pointer.
fn offset_of_variable(process: i32) -> u64 {
    let file = std::fs::read(format!("/proc/{process}/exe")).expect("the program");
    let file = ElfFile64::<Endianness>::parse(&*file).expect("an ELF file");
    let endian = file.endian();
    let symbol = file
        .dynamic_symbols()
        .find(|symbol| symbol.name() == Ok("otel_thread_ctx_v1"))
        .expect("a dynamic symbol");
    let segment = file
        .elf_program_headers()
        .iter()
        .find(|segment| segment.p_type(endian) == PT_TLS)
        .expect("thread-local data");
    let (bytes, align) = (segment.p_memsz(endian), segment.p_align(endian));
    symbol.address().wrapping_sub(bytes.next_multiple_of(align))
}

/// Calls `look` with the thread pointer of a thread, while that is stopped.
fn while_stopped<T>(thread: i32, look: impl FnOnce(u64) -> T) -> T {
    let thread = Pid::from_raw(thread);
    ptrace::seize(thread, ptrace::Options::empty()).unwrap_or_else(|error| {
        panic!("cannot trace a child: {error}. This test needs ptrace of its own child; a container may forbid it")
    });
    ptrace::interrupt(thread).expect("an interruption");
    waitpid(thread, Some(WaitPidFlag::__WALL)).expect("a stop");
    let registers = ptrace::getregs(thread).expect("registers");
    let seen = look(registers.fs_base);
    ptrace::detach(thread, None).expect("the end of the trace");
    seen
}

/// Returns whether the thread has a record, valid or not.
pub(super) fn has_record(process: i32, thread: i32) -> bool {
    let offset = offset_of_variable(process);
    while_stopped(thread, |pointer| {
        read_u64(process, pointer.wrapping_add(offset)) != 0
    })
}

/// Reads the record of a thread; `None` if it has none, or one that is not valid.
pub(super) fn record_of(process: i32, thread: i32) -> Option<Record> {
    let offset = offset_of_variable(process);
    let keys = process_context(process).map(|context| context.keys)?;
    while_stopped(thread, |pointer| {
        let record = read_u64(process, pointer.wrapping_add(offset));
        if record == 0 {
            return None;
        }
        assert_eq!(record % 2, 0, "aligned");
        let fixed = read(process, record, FIXED_BYTES);
        let [valid, flags] = [fixed[24], fixed[25]];
        assert!(valid <= 1 && flags == 0);
        let bytes = u16::from_ne_bytes([fixed[26], fixed[27]]) as usize;
        assert!(FIXED_BYTES + bytes <= 640);
        let attributes = read(process, record + FIXED_BYTES as u64, bytes);
        let (mut rest, mut labels) = (&attributes[..], Vec::new());
        while let [key, length, after @ ..] = rest {
            let (value, after) = after.split_at(*length as usize);
            labels.push((keys[*key as usize].clone(), text(value)));
            rest = after;
        }
        assert!(rest.is_empty());
        (valid == 1).then(|| Record {
            trace: fixed[..16].try_into().expect("16 bytes"),
            span: fixed[16..24].try_into().expect("eight bytes"),
            labels,
        })
    })
}
