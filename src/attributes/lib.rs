//! The attribute macro of gekkota. gekkota re-exports it, so an application does not depend on this
//! package itself.
//!
//! The macro reads tokens by hand, without a parser. The compiler has already parsed the item, so
//! the macro only needs to find the function's qualifiers, its return type, and its body, which
//! comes last.
#![forbid(unsafe_code)]

mod arguments;
mod expansion;
mod function;
mod tokens;

use proc_macro::TokenStream;

use arguments::Arguments;
use function::Function;

/// Labels every call of a function. Its documentation is in gekkota, which re-exports it.
#[proc_macro_attribute]
pub fn gecko_profiler_fn_label(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let parts =
        Arguments::read(arguments).and_then(|label| Ok((label, Function::read(item.clone())?)));
    match parts {
        Ok((label, function)) => expansion::labeled(&label, function),
        Err(diagnostic) => diagnostic.before(item),
    }
}
