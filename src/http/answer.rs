//! What the server sends.

use std::fmt::Write;

/// An answer for a client.
#[derive(Clone, Debug)]
pub(crate) struct HttpAnswer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
}

impl HttpAnswer {
    /// Creates an answer in plain text, usually the reason why a request is refused.
    pub(crate) fn of_words(status: u16, words: &str) -> Self {
        let mut headers = vec![
            ("Content-Type", "text/plain; charset=utf-8".to_owned()),
            ("X-Content-Type-Options", "nosniff".to_owned()),
            ("Cache-Control", "no-store".to_owned()),
            // Without it, `go tool pprof` does not print the words.
            ("X-Go-Pprof", "1".to_owned()),
        ];
        match status {
            401 => headers.push(("WWW-Authenticate", "Bearer".to_owned())),
            405 => headers.push(("Allow", "GET, HEAD".to_owned())),
            _ => {}
        }
        Self {
            status,
            headers,
            body: format!("{words}\n").into_bytes(),
        }
    }

    /// Returns the status line and the headers. `is_head`: no body follows.
    pub(super) fn head(&self, is_head: bool) -> String {
        let mut head = format!("HTTP/1.1 {} {}\r\n", self.status, reason(self.status));
        for (name, value) in &self.headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        if self.status == 503 {
            head += "Retry-After: 1\r\n";
        }
        if !is_head {
            let _ = write!(head, "Content-Length: {}\r\n", self.body.len());
        }
        // The address may hold the token, and pages have links to other sites.
        head + "Referrer-Policy: no-referrer\r\nConnection: close\r\n\r\n"
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        307 => "Temporary Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        _ => "Answer",
    }
}
