//! Compile errors for code that cannot be labeled.

use proc_macro::{Delimiter, Group, Literal, Span, TokenStream, TokenTree};

/// A compile error: what the macro cannot do, what it got, what it expected, and where.
pub(crate) struct Diagnostic {
    message: String,
    at: Span,
}

impl Diagnostic {
    pub(crate) fn new(at: Span, task: &str, got: &str, expected: &str) -> Self {
        let message =
            format!("`gecko_profiler_fn_label` cannot {task}: got {got}, expected {expected}");
        Self { message, at }
    }

    /// Returns the error followed by the unchanged item, so that callers of the function compile.
    pub(crate) fn before(self, item: TokenStream) -> TokenStream {
        let message = TokenTree::from(Literal::string(&self.message));
        let braces = Group::new(Delimiter::Brace, message.into());
        let error = crate::tokens::fill(
            "::core::compile_error! MESSAGE",
            &[("MESSAGE", TokenTree::from(braces).into())],
        );
        let placed = error.into_iter().map(|mut token| {
            token.set_span(self.at);
            token
        });
        placed.chain(item).collect()
    }
}
