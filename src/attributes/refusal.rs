//! What is said of code that cannot be labelled.

use proc_macro::{Delimiter, Group, Literal, Span, TokenStream, TokenTree};

/// What was asked for, what was found and what is accepted, and the place of it.
pub(crate) struct Refusal {
    message: String,
    at: Span,
}

impl Refusal {
    pub(crate) fn new(at: Span, asked: &str, found: &str, accepted: &str) -> Self {
        let message = format!(
            "`gecko_profiler_fn_label` asks for {asked}; found {found}; accepted: {accepted}"
        );
        Self { message, at }
    }

    /// The error, and the item as it was, so that those who call it get no errors besides.
    pub(crate) fn beside(self, item: TokenStream) -> TokenStream {
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
