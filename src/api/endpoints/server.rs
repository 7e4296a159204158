//! The endpoints of the server that a variable starts, for programs without a server of their own.

use crate::api::backend::{self, Answering, Asked, HttpAnswer};
use crate::api::endpoints::answer::EndpointAnswer;
use crate::api::endpoints::ask::answer_async;
use crate::api::endpoints::question::{Question, index};

/// Where Go's programs have their endpoints.
const PREFIX: &str = "/debug/pprof/";

/// Begins to serve, if the variable asks for it.
pub(crate) fn serve_if_asked() {
    if let Some((address, token)) = backend::http_variables() {
        backend::serve(&address, token.as_deref(), |asked| {
            Box::pin(answer(asked)) as Answering
        });
    }
}

async fn answer(asked: Asked) -> HttpAnswer {
    let path = asked.target.split('?').next().unwrap_or("");
    if path == "/" || PREFIX.strip_suffix('/') == Some(path) {
        return redirect(asked.token_in_query.as_deref());
    }
    let Some(rest) = asked.target.strip_prefix(PREFIX) else {
        let words = format!("cannot answer: got the path {path:?}, expected one below {PREFIX}");
        return HttpAnswer::of_words(404, &words);
    };
    let is_index = path == PREFIX;
    let answer = if is_index {
        index(asked.token_in_query.as_deref())
    } else if asked.is_head {
        headers_only(rest)
    } else {
        answer_async(rest).await
    };
    HttpAnswer {
        status: answer.status,
        headers: answer.headers(),
        body: answer.body,
    }
}

/// Returns what a request for the content would get, without the content.
fn headers_only(target: &str) -> EndpointAnswer {
    let question = Question::from_target(target);
    let question = question.and_then(|question| question.check().map(|()| question));
    question.map_or_else(EndpointAnswer::from, |question| {
        question.endpoint.empty_answer()
    })
}

fn redirect(token: Option<&str>) -> HttpAnswer {
    let mut answer = HttpAnswer::of_words(307, PREFIX);
    let query = token.map_or(String::new(), |token| format!("?token={token}"));
    answer
        .headers
        .push(("Location", format!("{PREFIX}{query}")));
    answer
}
