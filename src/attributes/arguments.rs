//! What stands in the attribute's brackets.

use proc_macro::{Span, TokenStream, TokenTree};

use crate::refusal::Refusal;
use crate::tokens::{fill, is_mark, is_word, uncovered};

/// `"text", Category, Subcategory, crate = path`, of which the category alone must be there.
pub(crate) struct Arguments {
    pub(crate) text: Option<TokenTree>,
    /// As the label's macro is given it.
    pub(crate) category: TokenStream,
    /// By which gekkota is found.
    pub(crate) path: TokenStream,
}

const ASKED: &str = "a category";
const ACCEPTED: &str = "`Category`, `Category, Subcategory` or an expression, if wanted with a `\"text\"` before and \
     `crate = path` behind";

impl Arguments {
    pub(crate) fn read(arguments: TokenStream) -> Result<Self, Refusal> {
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
            let found = format!("`{text}`, which is no text");
            return Err(Refusal::new(text.span(), ASKED, &found, ACCEPTED));
        }
        if let Some(part) = parts
            .iter()
            .find(|part| matches!(&part[..], [_, equals, ..] if is_mark(equals, '=')))
        {
            let found = format!("`{} = …`", part[0]);
            return Err(Refusal::new(part[0].span(), ASKED, &found, ACCEPTED));
        }
        let category = match &parts[..] {
            [category] => category.clone(),
            [category, subcategory] => {
                let comma = fill(",", &[]);
                category
                    .iter()
                    .cloned()
                    .chain(comma)
                    .chain(subcategory.iter().cloned())
                    .collect()
            }
            [] => return Err(Refusal::new(Span::call_site(), ASKED, "none", ACCEPTED)),
            [_, _, third, ..] => {
                let found = format!("{} names", parts.len());
                return Err(Refusal::new(third[0].span(), ASKED, &found, ACCEPTED));
            }
        };
        Ok(Self {
            text,
            category: category.into_iter().collect(),
            path,
        })
    }
}

/// What stands between the commas. The last may have one behind it.
fn split(arguments: TokenStream) -> Result<Vec<Vec<TokenTree>>, Refusal> {
    let mut parts = vec![Vec::new()];
    for token in arguments {
        let part = parts.last_mut().expect("there is one from the beginning");
        match token {
            comma if is_mark(&comma, ',') => {
                if part.is_empty() {
                    return Err(Refusal::new(
                        comma.span(),
                        ASKED,
                        "a comma with nothing before it",
                        ACCEPTED,
                    ));
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

/// The path in `crate = path`.
fn path_of(named: &[TokenTree]) -> Result<TokenStream, Refusal> {
    let path = uncovered(named[2..].iter().cloned().collect());
    let is_of_path =
        |token: &TokenTree| matches!(token, TokenTree::Ident(_)) || is_mark(token, ':');
    if path.is_empty() || !path.iter().all(is_of_path) {
        let found = path
            .first()
            .map_or("nothing".to_owned(), |token| format!("`{token}`"));
        let accepted = "a path, such as `crate = renamed` or `crate = crate::profiler`";
        return Err(Refusal::new(
            named[0].span(),
            "the place where gekkota is found",
            &found,
            accepted,
        ));
    }
    Ok(path.into_iter().collect())
}
