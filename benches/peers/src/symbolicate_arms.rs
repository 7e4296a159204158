//! The arms of `symbolicate` that run in a process of this program.

use std::hint::black_box;
use std::ops::Range;
use std::time::{Duration, Instant};

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use gekkota::__private::resolve_addresses;
use gekkota::profile::Symbolicate;

use crate::own_program::load_bias;
use crate::samply;
use crate::study::Fallible;

pub(crate) const ADDRESSES: usize = 10_000;
/// How often each address occurs in the samples of `eager`.
const FRAMES_PER_ADDRESS: usize = 20;

/// Names these addresses of this program's file. Returns how long that took, and the names'
/// numbers.
type Naming = fn(&[u64]) -> Named;
type Named = Fallible<(Duration, Answer)>;

pub(crate) const ARMS: [(&str, Naming); 6] = [
    ("ours", |addresses| ours(addresses, Symbolicate::Full)),
    ("ours_names", |addresses| {
        ours(addresses, Symbolicate::NamesOnly)
    }),
    ("samply_symbols", samply_symbols),
    ("blazesym", |addresses| blazesym(addresses, true)),
    ("blazesym_names", |addresses| blazesym(addresses, false)),
    ("eager", eager),
];

/// How many addresses and functions an arm has named.
#[derive(Default)]
pub(crate) struct Answer {
    pub(crate) named: usize,
    /// Includes the inlined functions.
    pub(crate) functions: usize,
    has_known: bool,
}

impl Answer {
    /// Adds the functions at one address.
    pub(crate) fn add(&mut self, functions: impl IntoIterator<Item = impl AsRef<str>>) {
        let mut count = 0;
        for function in functions {
            count += 1;
            self.has_known |= black_box(function.as_ref()).contains(KNOWN);
        }
        self.named += usize::from(count > 0);
        self.functions += count;
    }

    /// # Errors
    /// Fails if the known function has another name, or none.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.has_known {
            return Ok(());
        }
        Err(format!(
            "cannot find `{KNOWN}` among the names of {} addresses: they are wrong",
            self.named
        ))
    }
}

/// Name of the function whose address is always among those to name.
const KNOWN: &str = "function_with_a_known_name";

#[inline(never)]
fn function_with_a_known_name() -> u64 {
    black_box(7)
}

/// Returns addresses in the file, spread evenly over this code, with one of the known function.
pub(crate) fn addresses_in(text: &Range<u64>) -> Fallible<Vec<u64>> {
    let known = function_with_a_known_name as fn() -> u64 as usize as u64 - load_bias()?;
    let others = ADDRESSES as u64 - 1;
    let place = |number| text.start + (text.end - text.start) * number / others;
    let mut addresses: Vec<u64> = (0..others).map(place).collect();
    addresses.push(known);
    Ok(addresses)
}

fn ours(addresses: &[u64], symbolicate: Symbolicate) -> Named {
    let bias = load_bias()?;
    let in_memory: Vec<u64> = addresses.iter().map(|address| address + bias).collect();
    let begin = Instant::now();
    let names = resolve_addresses(&in_memory, symbolicate);
    let time = begin.elapsed();
    let mut answer = Answer::default();
    names
        .iter()
        .for_each(|(_, functions)| answer.add(functions));
    Ok((time, answer))
}

fn samply_symbols(addresses: &[u64]) -> Named {
    let path = std::env::current_exe()?;
    let begin = Instant::now();
    let names = samply::look_up(&path, addresses)?;
    let time = begin.elapsed();
    let mut answer = Answer::default();
    for found in names.into_iter().flatten() {
        let frames = found.frames.into_iter().flatten();
        let mut functions: Vec<String> = frames.filter_map(|frame| frame.function).collect();
        if functions.is_empty() {
            functions.push(found.symbol.name);
        }
        answer.add(functions);
    }
    Ok((time, answer))
}

fn blazesym(addresses: &[u64], in_full: bool) -> Named {
    let path = std::env::current_exe()?;
    let begin = Instant::now();
    let symbolizer = Symbolizer::builder()
        .enable_code_info(in_full)
        .enable_inlined_fns(in_full)
        .build();
    let mut elf = Elf::new(path);
    elf.debug_syms = in_full;
    let names = symbolizer.symbolize(&Source::Elf(elf), Input::VirtOffset(addresses))?;
    let time = begin.elapsed();
    let mut answer = Answer::default();
    for found in &names {
        if let Symbolized::Sym(symbol) = found {
            let inlined = symbol.inlined.iter().map(|inlined| &inlined.name);
            answer.add(inlined.chain([&symbol.name]));
        }
    }
    Ok((time, answer))
}

/// Resolves each address many times, in an order without a pattern.
fn eager(addresses: &[u64]) -> Named {
    /// Prime, so that each address has its turn before the first one comes again.
    const STRIDE: usize = 7_919;
    let bias = load_bias()?;
    let mut answer = Answer::default();
    let begin = Instant::now();
    for frame in 0..FRAMES_PER_ADDRESS * addresses.len() {
        let address = addresses[frame * STRIDE % addresses.len()] + bias;
        // `backtrace` expects a return address, and subtracts one byte.
        let return_address = std::ptr::without_provenance_mut(address as usize + 1);
        let mut functions = Vec::new();
        backtrace::resolve(return_address, |symbol| {
            let name = symbol.name().map(|name| name.to_string());
            black_box((symbol.filename(), symbol.lineno(), symbol.colno()));
            functions.extend(name);
        });
        if frame < addresses.len() {
            answer.add(functions);
        } else {
            black_box(functions);
        }
    }
    Ok((begin.elapsed(), answer))
}
