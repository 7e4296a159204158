//! Creation of tokens from text, tests of single tokens, and compile errors for code that cannot be
//! labeled.

use proc_macro::{Delimiter, Group, Literal, Span, TokenStream, TokenTree};

/// Tokenizes a text, and replaces each word that is named in `parts` by the tokens given there.
/// Names that the text defines are hygienic.
pub(crate) fn fill(text: &str, parts: &[(&str, TokenStream)]) -> TokenStream {
    let tokens: TokenStream = text
        .parse()
        .expect("the texts of this crate are valid Rust");
    fill_tokens(tokens, parts)
}

fn fill_tokens(tokens: TokenStream, parts: &[(&str, TokenStream)]) -> TokenStream {
    let mut filled = TokenStream::new();
    for mut token in tokens {
        let part = parts.iter().find(|(name, _)| is_word(&token, name));
        if let Some((_, part)) = part {
            filled.extend(part.clone());
            continue;
        }
        if let TokenTree::Group(group) = &token {
            token = Group::new(group.delimiter(), fill_tokens(group.stream(), parts)).into();
        }
        token.set_span(Span::mixed_site());
        filled.extend([token]);
    }
    filled
}

pub(crate) fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident.to_string() == word)
}

pub(crate) fn is_mark(token: &TokenTree, mark: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == mark)
}

pub(crate) fn group(token: &TokenTree, delimiter: Delimiter) -> Option<&Group> {
    match token {
        TokenTree::Group(group) if group.delimiter() == delimiter => Some(group),
        _ => None,
    }
}

/// Removes the delimiter-less group that the compiler puts around a macro argument.
pub(crate) fn uncovered(tokens: TokenStream) -> Vec<TokenTree> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    match &tokens[..] {
        [only] => match group(only, Delimiter::None) {
            Some(cover) => uncovered(cover.stream()),
            None => tokens,
        },
        _ => tokens,
    }
}

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
        let error = fill(
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
