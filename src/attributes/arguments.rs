//! The arguments of the attribute.

use proc_macro::{Span, TokenStream, TokenTree};

use crate::tokens::{Diagnostic, fill, is_mark, is_word, uncovered};

/// The parsed form of `"text", Category, Subcategory, crate = path`. The text or the category is
/// required.
pub(crate) struct Arguments {
    pub(crate) text: Option<TokenTree>,
    /// The category, as the arguments of the label macro. Empty for the default one.
    pub(crate) category: TokenStream,
    /// The path of gekkota.
    pub(crate) path: TokenStream,
}

const TASK: &str = "read its arguments";
const EXPECTED: &str = "a `\"text\"`, a category (`Category`, `Category, Subcategory` or an expression), or both in this \
     order, optionally before `crate = path`";

impl Arguments {
    pub(crate) fn read(arguments: TokenStream) -> Result<Self, Diagnostic> {
        let mut parts = split(arguments)?;
        let path = match parts.pop_if(|part| names_crate(part)) {
            Some(named) => path_of(&named)?,
            None => fill("::gekkota", &[]),
        };
        let starts_with_literal = matches!(
            parts.first().map(Vec::as_slice),
            Some([TokenTree::Literal(_)])
        );
        let text = if starts_with_literal {
            parts.remove(0).pop()
        } else {
            None
        };
        if let Some(text) = &text
            && !text.to_string().starts_with(['"', 'r'])
        {
            let found = format!("`{text}` as the text");
            return Err(refused(text.span(), &found));
        }
        if let Some(part) = parts
            .iter()
            .find(|part| matches!(&part[..], [_, equals, ..] if is_mark(equals, '=')))
        {
            let found = format!("`{} = …`", part[0]);
            return Err(refused(part[0].span(), &found));
        }
        let category = match &parts[..] {
            [category] => category.clone(),
            [category, subcategory] => {
                let comma: Vec<TokenTree> = fill(",", &[]).into_iter().collect();
                [&category[..], &comma, subcategory].concat()
            }
            [] if text.is_some() => Vec::new(),
            [] => {
                return Err(refused(Span::call_site(), "no text and no category"));
            }
            [_, _, third, ..] => {
                let found = format!("{} names", parts.len());
                return Err(refused(third[0].span(), &found));
            }
        };
        Ok(Self {
            text,
            category: category.into_iter().collect(),
            path,
        })
    }
}

fn refused(at: Span, found: &str) -> Diagnostic {
    Diagnostic::new(at, TASK, found, EXPECTED)
}

/// Splits the arguments at their commas. A trailing comma is accepted.
fn split(arguments: TokenStream) -> Result<Vec<Vec<TokenTree>>, Diagnostic> {
    let mut parts = vec![Vec::new()];
    for token in arguments {
        let part = parts.last_mut().expect("`parts` is never empty");
        match token {
            comma if is_mark(&comma, ',') => {
                if part.is_empty() {
                    let found = "a comma without an argument before it";
                    return Err(refused(comma.span(), found));
                }
                parts.push(Vec::new());
            }
            token => part.push(token),
        }
    }
    parts.pop_if(|part| part.is_empty());
    Ok(parts
        .into_iter()
        .map(|part| uncovered(part.into_iter().collect()))
        .collect())
}

fn names_crate(part: &[TokenTree]) -> bool {
    matches!(part, [word, equals, ..] if is_word(word, "crate") && is_mark(equals, '='))
}

/// Returns the path in `crate = path`.
fn path_of(named: &[TokenTree]) -> Result<TokenStream, Diagnostic> {
    let path = uncovered(named[2..].iter().cloned().collect());
    let is_of_path =
        |token: &TokenTree| matches!(token, TokenTree::Ident(_)) || is_mark(token, ':');
    if path.is_empty() || !path.iter().all(is_of_path) {
        let found = path
            .first()
            .map_or("no path".to_owned(), |token| format!("`{token}`"));
        let expected = "a path, such as `crate = renamed` or `crate = crate::profiler`";
        return Err(Diagnostic::new(
            named[0].span(),
            "find gekkota",
            &found,
            expected,
        ));
    }
    Ok(path.into_iter().collect())
}
