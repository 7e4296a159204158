//! Finds the function that contains an instruction of the child. The lookup uses this process,
//! which runs the same program with the same libraries at other addresses.
//!
//! **Contract** (cited below):
//! - *reads only*: the call reads tables of the loader and of loaded code, and returns null if it
//!   finds nothing.

use std::ffi::{CString, c_void};
use std::fmt;

#[derive(Debug)]
pub enum Function {
    /// A function of the kernel's vDSO.
    Kernel,
    /// An exported function of a library.
    Library(String),
    /// A function of this program, with the functions that were inlined into it at the instruction.
    Own {
        outer: String,
        inlined: Vec<String>,
    },
    Unknown(String),
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel => f.write_str("vDSO"),
            Self::Library(name) => write!(f, "library: {name}"),
            Self::Own { outer, .. } => f.write_str(outer),
            Self::Unknown(place) => write!(f, "unknown: {place}"),
        }
    }
}

/// A mapped part of a file.
#[derive(Debug, Clone)]
struct Mapping {
    start: u64,
    end: u64,
    offset: u64,
    path: String,
}

fn mappings_of(process: &str) -> Vec<Mapping> {
    let text = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
    let parse = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let offset = words.nth(1)?;
        let hex = |digits| u64::from_str_radix(digits, 16).ok();
        let path = words.nth(2).unwrap_or_default().to_owned();
        Some(Mapping {
            start: hex(start)?,
            end: hex(end)?,
            offset: hex(offset)?,
            path,
        })
    };
    text.lines().filter_map(parse).collect()
}

// SAFETY: the declaration matches that of libgcc, which every program with `std` links.
unsafe extern "C" {
    fn _Unwind_FindEnclosingFunction(pc: *const c_void) -> *const c_void;
}

/// Returns the start of the function at an address of this process, according to the unwind tables.
fn start_of_function(address: u64) -> u64 {
    // SAFETY: *reads only*. The function expects a return address, and subtracts one byte.
    unsafe { _Unwind_FindEnclosingFunction((address + 1) as *const c_void) as u64 }
}

/// Returns the start of each library function. Where a library has several versions of a function,
/// this is the version for this machine, which has no exported name.
fn starts_of(names: &'static [&'static str]) -> Vec<(u64, &'static str)> {
    let start = |name: &&'static str| {
        let text = CString::new(*name).expect("a name");
        // SAFETY: *reads only*.
        let start = unsafe { libc::dlsym(libc::RTLD_DEFAULT, text.as_ptr()) } as u64;
        (start != 0).then_some((start, *name))
    };
    names.iter().filter_map(start).collect()
}

/// Returns the address of the code that a handler returns to, which calls the kernel; 0 where the
/// kernel provides that code.
fn signal_return() -> u64 {
    #[repr(C)]
    struct KernelAction {
        handler: u64,
        flags: u64,
        restorer: u64,
        mask: u64,
    }
    let mut action = KernelAction {
        handler: 0,
        flags: 0,
        restorer: 0,
        mask: 0,
    };
    if cfg!(target_arch = "x86_64") {
        // Rust's handler of stack overflows is installed like any other handler.
        // SAFETY: the kernel writes an action with a mask of 8 bytes to a local.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                libc::SIGSEGV,
                std::ptr::null::<c_void>(),
                &raw mut action,
                8,
            )
        };
    }
    action.restorer
}

pub struct Code {
    process: String,
    child_mappings: Vec<Mapping>,
    program: String,
    starts: Vec<(u64, &'static str)>,
    signal_return: u64,
}

impl Code {
    /// Prepares lookups in a child. The library functions with these names are recognized without
    /// debug information.
    pub fn of(process: i32, names: &'static [&'static str]) -> Self {
        Self {
            process: process.to_string(),
            child_mappings: Vec::new(),
            program: std::env::current_exe()
                .expect("this program")
                .to_string_lossy()
                .into_owned(),
            starts: starts_of(names),
            signal_return: signal_return(),
        }
    }

    pub fn function_at(&mut self, pc: u64) -> Function {
        let holds_pc = |mapping: &&Mapping| (mapping.start..mapping.end).contains(&pc);
        if !self.child_mappings.iter().any(|mapping| holds_pc(&mapping)) {
            self.child_mappings = mappings_of(&self.process);
        }
        let Some(in_child) = self.child_mappings.iter().find(holds_pc) else {
            return Function::Unknown(format!("{pc:#x}, which is not mapped"));
        };
        if in_child.path == "[vdso]" {
            return Function::Kernel;
        }
        let offset = pc - in_child.start + in_child.offset;
        let place = format!("{}+{offset:#x}", in_child.path);
        let is_same = |own: &Mapping| {
            own.path == in_child.path
                && (own.offset..own.offset + (own.end - own.start)).contains(&offset)
        };
        let Some(own) = mappings_of("self").into_iter().find(is_same) else {
            return Function::Unknown(place);
        };
        let address = offset - own.offset + own.start;
        if self.signal_return != 0
            && (self.signal_return..self.signal_return + 16).contains(&address)
        {
            return Function::Library("signal return".to_owned());
        }
        let start = start_of_function(address);
        if let Some((_, name)) = self.starts.iter().find(|(known, _)| *known == start) {
            return Function::Library((*name).to_owned());
        }
        let mut names = Vec::new();
        // Like `_Unwind_FindEnclosingFunction`, `resolve` subtracts one byte.
        backtrace::resolve((address + 1) as *mut c_void, |symbol| {
            names.extend(symbol.name().map(|name| format!("{name:#}")));
        });
        match names.pop() {
            Some(outer) if in_child.path == self.program => Function::Own {
                outer,
                inlined: names,
            },
            Some(name) => Function::Library(name),
            None => Function::Unknown(place),
        }
    }
}
