//! The attribute macro of gekkota, which passes it on: whoever uses gekkota need not name this package.
//!
//! It reads tokens by hand. What it is given was parsed by the compiler, so it only has to find its way: to the function's
//! qualifiers, to what it returns, and to its body, which comes last.
#![forbid(unsafe_code)]

mod arguments;
mod expansion;
mod function;
mod refusal;
mod tokens;

use proc_macro::TokenStream;

use arguments::Arguments;
use function::Function;

/// A label for each run of a function. It is described where gekkota passes it on.
#[proc_macro_attribute]
pub fn gecko_profiler_fn_label(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let parts =
        Arguments::read(arguments).and_then(|label| Ok((label, Function::read(item.clone())?)));
    match parts {
        Ok((label, function)) => expansion::labelled(&label, function),
        Err(refusal) => refusal.beside(item),
    }
}
