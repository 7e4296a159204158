//! The function that the attribute is applied to.

use proc_macro::{Delimiter, Group, Span, TokenStream, TokenTree};

use crate::tokens::{Diagnostic, fill, group, is_mark, is_word, uncovered};

/// A function with a body.
pub(crate) struct Function {
    /// All tokens before the body.
    pub(crate) head: Vec<TokenTree>,
    pub(crate) body: Group,
    pub(crate) is_async: bool,
    pub(crate) returns: Returns,
}

/// The return type.
pub(crate) enum Returns {
    /// A type, with `_` in place of each `impl …`, which cannot be named in the body.
    Type(TokenStream),
    /// `!`, which stable Rust accepts as a type only here.
    Never,
}

const TASK: &str = "label this item";
const EXPECTED: &str = "a function with a body, `fn name() { … }`, which may be `async`, `unsafe` or `extern`, and in an \
     `impl` or a `trait`";

impl Function {
    pub(crate) fn read(item: TokenStream) -> Result<Self, Diagnostic> {
        let mut head = uncovered(item);
        let (at, is_async) = find_keyword(&head)?;
        let last = head.pop().into_iter().collect();
        let body = match &uncovered(last)[..] {
            [only] => group(only, Delimiter::Brace).cloned(),
            _ => None,
        };
        let Some(body) = body else {
            let found = format!("`{}` without a body", words(&head[at..at + 2]));
            return Err(Diagnostic::new(head[at + 1].span(), TASK, &found, EXPECTED));
        };
        let returns = returns(&head[at + 2..]);
        Ok(Self {
            head,
            body,
            is_async,
            returns,
        })
    }
}

/// Returns the position of `fn`, and whether `async` precedes it.
fn find_keyword(item: &[TokenTree]) -> Result<(usize, bool), Diagnostic> {
    let start = after_attributes_and_visibility(item);
    let (mut is_async, mut constant) = (false, None);
    for (at, token) in item.iter().enumerate().skip(start) {
        match token {
            TokenTree::Ident(word) => match word.to_string().as_str() {
                "fn" => {
                    return match constant {
                        Some(span) => Err(const_fn_error(span)),
                        None => Ok((at, is_async)),
                    };
                }
                "async" => is_async = true,
                "const" => constant = Some(word.span()),
                "default" | "extern" | "safe" | "unsafe" => {}
                _ => return Err(item_error(&item[start..=at])),
            },
            // The name of an ABI.
            TokenTree::Literal(_) => {}
            name if group(name, Delimiter::None).is_some() => {}
            _ => return Err(item_error(&item[start..at])),
        }
    }
    Err(item_error(&item[start..]))
}

fn const_fn_error(at: Span) -> Diagnostic {
    let found = "a `const fn`, which the compiler may run";
    Diagnostic::new(
        at,
        "label this function",
        found,
        "a function without `const`",
    )
}

fn item_error(found: &[TokenTree]) -> Diagnostic {
    let at = found.first().map_or(Span::call_site(), TokenTree::span);
    Diagnostic::new(at, TASK, &format!("`{}`", words(found)), EXPECTED)
}

fn words(tokens: &[TokenTree]) -> String {
    tokens
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(" ")
}

fn after_attributes_and_visibility(item: &[TokenTree]) -> usize {
    let mut at = 0;
    loop {
        at += match &item[at..] {
            [hash, attribute, ..]
                if is_mark(hash, '#') && group(attribute, Delimiter::Bracket).is_some() =>
            {
                2
            }
            [word, place, ..]
                if is_word(word, "pub") && group(place, Delimiter::Parenthesis).is_some() =>
            {
                2
            }
            [word, ..] if is_word(word, "pub") => 1,
            [from_macro, ..] if group(from_macro, Delimiter::None).is_some() => 1,
            _ => return at,
        };
    }
}

/// Reads the return type from the tokens after the function's name.
fn returns(signature: &[TokenTree]) -> Returns {
    let is_list = |token: &&TokenTree| group(token, Delimiter::Parenthesis).is_some();
    let generics = angle_brackets(signature);
    let mut rest = signature[generics..]
        .iter()
        .skip_while(|token| !is_list(token))
        .skip(1);
    match (rest.next(), rest.next()) {
        (Some(dash), Some(angle)) if is_mark(dash, '-') && is_mark(angle, '>') => {}
        _ => return Returns::Type(fill("()", &[])),
    }
    let named = uncovered(
        rest.take_while(|token| !is_word(token, "where"))
            .cloned()
            .collect(),
    );
    match &named[..] {
        [never] if is_mark(never, '!') => Returns::Never,
        _ => Returns::Type(without_impl(named)),
    }
}

/// Returns the number of tokens in the leading angle brackets, including the brackets.
fn angle_brackets(tokens: &[TokenTree]) -> usize {
    let mut angles = Angles::default();
    let inside = |token: &&TokenTree| {
        angles.see(token);
        angles.depth > 0
    };
    match tokens.iter().take_while(inside).count() {
        0 => 0,
        count => count + 1,
    }
}

/// Tracks the nesting of angle brackets. The `>` of an arrow does not count.
#[derive(Default)]
struct Angles {
    depth: usize,
    after_dash: bool,
}

impl Angles {
    fn see(&mut self, token: &TokenTree) {
        if is_mark(token, '<') {
            self.depth += 1;
        } else if is_mark(token, '>') && !self.after_dash {
            self.depth = self.depth.saturating_sub(1);
        }
        self.after_dash = is_mark(token, '-');
    }
}

fn without_impl(tokens: Vec<TokenTree>) -> TokenStream {
    let mut named = Vec::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) => {
                let mut inside = Group::new(
                    group.delimiter(),
                    without_impl(group.stream().into_iter().collect()),
                );
                inside.set_span(group.span());
                named.push(inside.into());
            }
            word if is_word(&word, "impl") => {
                named.extend(fill("_", &[]));
                let mut angles = Angles::default();
                let ends = |angles: &Angles, token: &TokenTree| {
                    let closes = is_mark(token, '>') && !angles.after_dash;
                    angles.depth == 0 && (closes || is_mark(token, ',') || is_mark(token, ';'))
                };
                while let Some(bound) = tokens.next_if(|token| !ends(&angles, token)) {
                    angles.see(&bound);
                }
            }
            token => named.push(token),
        }
    }
    named.into_iter().collect()
}
