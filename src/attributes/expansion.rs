//! The expansion: the function with its label.

use proc_macro::{Delimiter, Group, Literal, Span, TokenStream, TokenTree};

use crate::arguments::Arguments;
use crate::function::{Function, Returns};
use crate::tokens::{fill, group, is_mark, is_word};

/// The statement that pushes the label. The macro binds the guard to its own name.
const LABEL: &str = "CRATE::__private::gecko_profiler_label!(CATEGORY);";
const LABEL_WITH_TEXT: &str = "CRATE::__private::auto_profiler_label!(TEXT, CATEGORY);";
const LABEL_WITH_TEXT_ALONE: &str = "CRATE::__private::auto_profiler_label!(TEXT);";

/// Before the label of a future, because its thread may be one of a runtime.
const REGISTER: &str = "CRATE::__private::register_polling_thread();";

/// Pushes a label for each poll of the future. The future is pinned where it is created. Moving the
/// future from an awaiting into a pinning one would double the size of nested futures.
const POLLED: &str = "
    let mut future = ::core::pin::pin!(FUTURE);
    let mut wait = CRATE::__private::TaskWait::new();
    ::core::future::poll_fn(move |context| {
        LABEL
        wait.poll(NAME, \"\", || ::core::future::Future::poll(future.as_mut(), context))
    })
    .await
";

/// The body keeps its own braces, because some lints inspect the first statement of a body.
const RUN: &str = "LABEL BODY";

/// The body of an `async fn` as a future. Its first statement never returns when it runs. It only
/// fixes the type of the other `return`s, as the function's signature did.
const FUTURE: &str = "
    async move {
        #[allow(unreachable_code, unreachable_patterns, reason = \"the type may have no value\")]
        if let ::core::option::Option::Some(returned) = ::core::option::Option::None::<TYPE> {
            return returned;
        }
        BODY
    }
";

pub(crate) fn labeled(label: &Arguments, function: Function) -> TokenStream {
    let register = fill(REGISTER, &[("CRATE", label.path.clone())]);
    let around = Label {
        path: label.path.clone(),
        name: name_of(label, &function.head),
        push: register.into_iter().chain(label_of(label)).collect(),
    };
    let Function {
        head,
        body,
        is_async,
        returns,
    } = function;
    let (attributes, statements) = split_attributes(&body);
    let inside = match future_only(&statements) {
        Some(made) if !is_async => made.labeled(around),
        _ => {
            // The span of these braces makes errors point at the body. Its hygiene makes lints
            // ignore the braces, which the application did not write.
            let place = body.span().resolved_at(Span::mixed_site());
            let body = in_braces(place, statements.into_iter().collect());
            match is_async {
                true => polled(
                    async_body(&returns, body),
                    around,
                    matches!(returns, Returns::Never),
                ),
                false => fill(RUN, &[("LABEL", label_of(label)), ("BODY", body)]),
            }
        }
    };
    let labeled = in_braces(body.span(), attributes.into_iter().chain(inside).collect());
    head.into_iter().chain(labeled).collect()
}

/// What is around each poll of a future.
struct Label {
    path: TokenStream,
    /// The name under which the future waits.
    name: TokenStream,
    /// The statements that push the label.
    push: TokenStream,
}

/// Returns the name under which a future waits: the text of its label, or else the function's name.
fn name_of(label: &Arguments, head: &[TokenTree]) -> TokenStream {
    if let Some(text) = &label.text {
        return text.clone().into();
    }
    let mut after_keyword = head
        .iter()
        .skip_while(|token| !is_word(token, "fn"))
        .skip(1);
    let name = after_keyword.next().map(ToString::to_string);
    let name = name.as_deref().unwrap_or_default().trim_start_matches("r#");
    TokenTree::from(Literal::string(name)).into()
}

fn in_braces(place: Span, tokens: TokenStream) -> TokenStream {
    let mut group = Group::new(Delimiter::Brace, tokens);
    group.set_span(place);
    TokenTree::from(group).into()
}

fn label_of(label: &Arguments) -> TokenStream {
    let text = label.text.clone();
    let form = match (&text, label.category.is_empty()) {
        (None, _) => LABEL,
        (Some(_), false) => LABEL_WITH_TEXT,
        (Some(_), true) => LABEL_WITH_TEXT_ALONE,
    };
    let text = text.into_iter().collect();
    fill(
        form,
        &[
            ("CRATE", label.path.clone()),
            ("CATEGORY", label.category.clone()),
            ("TEXT", text),
        ],
    )
}

/// Splits a body into its inner attributes, which must stay first, and its statements.
fn split_attributes(body: &Group) -> (Vec<TokenTree>, Vec<TokenTree>) {
    let mut attributes: Vec<TokenTree> = body.stream().into_iter().collect();
    let mut at = 0;
    while let [hash, bang, bracket, ..] = &attributes[at..]
        && is_mark(hash, '#')
        && is_mark(bang, '!')
        && group(bracket, Delimiter::Bracket).is_some()
    {
        at += 3;
    }
    let statements = attributes.split_off(at);
    (attributes, statements)
}

fn async_body(returns: &Returns, body: TokenStream) -> TokenStream {
    let named = match returns {
        Returns::Type(named) => named.clone(),
        Returns::Never => fill("::core::convert::Infallible", &[]),
    };
    fill(FUTURE, &[("TYPE", named), ("BODY", body)])
}

fn polled(future: TokenStream, label: Label, never_returns: bool) -> TokenStream {
    let form = if never_returns {
        format!("match {{ {POLLED} }} {{}}")
    } else {
        POLLED.to_owned()
    };
    let Label { path, name, push } = label;
    let parts = [
        ("CRATE", path),
        ("FUTURE", future),
        ("LABEL", push),
        ("NAME", name),
    ];
    fill(&form, &parts)
}

/// A body that consists of one future: `async move { … }`, or `Box::pin` of one. Such a function is
/// labeled like an `async fn`. Traits use this form where they cannot have an `async fn`.
struct FutureOnly<'b> {
    /// `Box::pin`, and the parentheses that contain the future.
    boxed: Option<(&'b [TokenTree], &'b Group)>,
    /// `async`, and `move` if present.
    before: Vec<TokenTree>,
    block: Group,
}

fn future_only(body: &[TokenTree]) -> Option<FutureOnly<'_>> {
    if let Some((before, block)) = async_block(body) {
        return Some(FutureOnly {
            boxed: None,
            before,
            block,
        });
    }
    let (last, path) = body.split_last()?;
    let bracket = group(last, Delimiter::Parenthesis)?;
    let is_of_path =
        |token: &TokenTree| matches!(token, TokenTree::Ident(_)) || is_mark(token, ':');
    let text: String = path.iter().map(ToString::to_string).collect();
    if !path.iter().all(is_of_path) || !(text == "Box::pin" || text.ends_with("::Box::pin")) {
        return None;
    }
    let inside: Vec<TokenTree> = bracket.stream().into_iter().collect();
    let (before, block) = async_block(&inside)?;
    Some(FutureOnly {
        boxed: Some((path, bracket)),
        before,
        block,
    })
}

fn async_block(tokens: &[TokenTree]) -> Option<(Vec<TokenTree>, Group)> {
    let (block, before) = match tokens {
        [word, block] if is_word(word, "async") => (block, &tokens[..1]),
        [word, moved, block] if is_word(word, "async") && is_word(moved, "move") => {
            (block, &tokens[..2])
        }
        _ => return None,
    };
    Some((before.to_vec(), group(block, Delimiter::Brace)?.clone()))
}

impl FutureOnly<'_> {
    fn labeled(self, label: Label) -> TokenStream {
        let Self {
            boxed,
            before,
            block,
        } = self;
        let written = before
            .iter()
            .cloned()
            .chain([block.clone().into()])
            .collect();
        let around = in_braces(block.span(), polled(written, label, false));
        let future = before.into_iter().chain(around);
        match boxed {
            None => future.collect(),
            Some((path, bracket)) => {
                let mut inside = Group::new(Delimiter::Parenthesis, future.collect());
                inside.set_span(bracket.span());
                path.iter().cloned().chain([inside.into()]).collect()
            }
        }
    }
}
