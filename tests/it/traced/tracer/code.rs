//! Which function an instruction of the child lies in, found in this process, which is the same program with the same
//! libraries at other addresses.
//!
//! **Contract** (cited below):
//! - *asks only*: the call reads tables of the loader and of loaded code; where nothing is found it answers null.

use std::ffi::{CString, c_void};
use std::fmt;

#[derive(Debug)]
pub enum Function {
    /// The kernel's, in the vDSO.
    Kernel,
    /// An exported one of a library.
    Library(String),
    /// This program's: the function that was compiled, and what was inlined into it at this instruction.
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

/// A part of a file that is mapped.
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

// SAFETY: as libgcc, which every program with `std` brings along, declares it.
unsafe extern "C" {
    fn _Unwind_FindEnclosingFunction(pc: *const c_void) -> *const c_void;
}

/// The start of the function around an address of this process, by its unwind tables.
fn start_of_function(address: u64) -> u64 {
    // SAFETY: *asks only*. It looks at the address before a return address.
    unsafe { _Unwind_FindEnclosingFunction((address + 1) as *const c_void) as u64 }
}

/// Where functions of libraries start, the version of each that was chosen for this machine, which has no exported name.
fn starts_of(names: &'static [&'static str]) -> Vec<(u64, &'static str)> {
    let start = |name: &&'static str| {
        let text = CString::new(*name).expect("a name");
        // SAFETY: *asks only*.
        let start = unsafe { libc::dlsym(libc::RTLD_DEFAULT, text.as_ptr()) } as u64;
        (start != 0).then_some((start, *name))
    };
    names.iter().filter_map(start).collect()
}

/// Where a handler returns to, which calls the kernel to go back; 0 where the kernel brings its own.
fn way_back() -> u64 {
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
        // SAFETY: asks for an action, of which the kernel writes as many bytes as a mask of 8 makes. Rust's own handler of
        // overflowing stacks is installed like any other.
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
    theirs: Vec<Mapping>,
    program: String,
    starts: Vec<(u64, &'static str)>,
    way_back: u64,
}

impl Code {
    /// Functions of libraries are known by these names, whatever debug information there is.
    pub fn of(process: i32, names: &'static [&'static str]) -> Self {
        Self {
            process: process.to_string(),
            theirs: Vec::new(),
            program: std::env::current_exe()
                .expect("this program")
                .to_string_lossy()
                .into_owned(),
            starts: starts_of(names),
            way_back: way_back(),
        }
    }

    pub fn function_at(&mut self, pc: u64) -> Function {
        let holds_pc = |mapping: &&Mapping| (mapping.start..mapping.end).contains(&pc);
        if !self.theirs.iter().any(|mapping| holds_pc(&mapping)) {
            self.theirs = mappings_of(&self.process);
        }
        let Some(theirs) = self.theirs.iter().find(holds_pc) else {
            return Function::Unknown(format!("{pc:#x}, which is not mapped"));
        };
        if theirs.path == "[vdso]" {
            return Function::Kernel;
        }
        let offset = pc - theirs.start + theirs.offset;
        let place = format!("{}+{offset:#x}", theirs.path);
        let is_same = |ours: &Mapping| {
            ours.path == theirs.path
                && (ours.offset..ours.offset + (ours.end - ours.start)).contains(&offset)
        };
        let Some(ours) = mappings_of("self").into_iter().find(is_same) else {
            return Function::Unknown(place);
        };
        let address = offset - ours.offset + ours.start;
        if self.way_back != 0 && (self.way_back..self.way_back + 16).contains(&address) {
            return Function::Library("the signal's way back".to_owned());
        }
        let start = start_of_function(address);
        if let Some((_, name)) = self.starts.iter().find(|(known, _)| *known == start) {
            return Function::Library((*name).to_owned());
        }
        let mut names = Vec::new();
        // So does this.
        backtrace::resolve((address + 1) as *mut c_void, |symbol| {
            names.extend(symbol.name().map(|name| format!("{name:#}")));
        });
        match names.pop() {
            Some(outer) if theirs.path == self.program => Function::Own {
                outer,
                inlined: names,
            },
            Some(name) => Function::Library(name),
            None => Function::Unknown(place),
        }
    }
}
