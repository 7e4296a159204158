//! The answer to each request.

use std::convert::Infallible;
use std::sync::Arc;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use samply_api::Api;
use samply_api::samply_symbols::SymbolManager;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use crate::activity::Activity;
use crate::link::{self, Address, Origin};
use crate::modules::Modules;
use crate::profile::Profile;

/// Maximum length of a request's body, in bytes. The Firefox Profiler asks for all addresses of a
/// profile at once, which is some MiB for a large one.
const MAX_BODY: usize = 64 << 20;

/// The queries that `samply-api` answers, below the token.
const QUERIES: &[&str] = &["symbolicate/v5", "source/v1", "asm/v1"];

const PRIVATE_NETWORK_REQUEST: &str = "access-control-request-private-network";
const PRIVATE_NETWORK_ANSWER: HeaderName =
    HeaderName::from_static("access-control-allow-private-network");

type Answer = Response<Full<Bytes>>;

/// What the server serves.
pub(crate) struct Site {
    pub(crate) activity: Activity,
    address: Address,
    profiler: Origin,
    profile: Profile,
    symbols: SymbolManager<Modules>,
}

impl Site {
    pub(crate) fn new(profile: Profile, address: Address, profiler: Origin) -> Self {
        Self {
            activity: Activity::new(),
            address,
            profiler,
            symbols: SymbolManager::with_helper(Modules::new(&profile.libraries)),
            profile,
        }
    }

    pub(crate) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Answer, Infallible> {
        let mut answer = self.clone().route(request).await;
        let headers = answer.headers_mut();
        // The browser keeps no copy on disk.
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Ok(answer)
    }

    async fn route(self: Arc<Self>, request: Request<Incoming>) -> Answer {
        let mut hosts = request.headers().get_all(header::HOST).iter();
        let host = hosts.next().and_then(|host| host.to_str().ok());
        if hosts.next().is_some() || !host.is_some_and(|host| self.address.is_host(host)) {
            return refusal(StatusCode::MISDIRECTED_REQUEST, "unknown host");
        }
        let path = request.uri().path();
        let Some(name) = self.address.below_token(path) else {
            return refusal(StatusCode::NOT_FOUND, "unknown path");
        };
        let _running = self.activity.begin();
        let name = name.to_owned();
        let mut answer = self.clone().answer_of(&name, request).await;
        let origin = self.profiler.header();
        let headers = answer.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        answer
    }

    async fn answer_of(self: Arc<Self>, name: &str, request: Request<Incoming>) -> Answer {
        let is_query = QUERIES.contains(&name);
        let methods = match (is_query, name) {
            (true, _) => "POST, OPTIONS",
            (false, link::PROFILE) => "GET, HEAD, OPTIONS",
            (false, _) => return refusal(StatusCode::NOT_FOUND, "unknown path"),
        };
        match *request.method() {
            Method::OPTIONS => permission(request.headers(), methods),
            Method::POST if is_query => self.query(format!("/{name}"), request).await,
            Method::GET | Method::HEAD if !is_query => self.profile(),
            _ => {
                let mut answer = refusal(StatusCode::METHOD_NOT_ALLOWED, "unexpected method");
                let headers = answer.headers_mut();
                headers.insert(header::ALLOW, HeaderValue::from_static(methods));
                answer
            }
        }
    }

    fn profile(&self) -> Answer {
        let mut answer = json(self.profile.file.clone());
        if self.profile.is_gzip {
            let gzip = HeaderValue::from_static("gzip");
            answer.headers_mut().insert(header::CONTENT_ENCODING, gzip);
        }
        answer
    }

    async fn query(self: Arc<Self>, path: String, request: Request<Incoming>) -> Answer {
        if request.body().size_hint().lower() > MAX_BODY as u64 {
            return too_large();
        }
        let body = match Limited::new(request.into_body(), MAX_BODY).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => return too_large(),
            Err(_) => return refusal(StatusCode::BAD_REQUEST, "incomplete body"),
        };
        let Ok(text) = String::from_utf8(body.into()) else {
            return refusal(StatusCode::BAD_REQUEST, "expected a body in UTF-8");
        };
        // Reads files and computes, for seconds if a module is large.
        let query = spawn_blocking(move || {
            Handle::current().block_on(Api::new(&self.symbols).query_api(&path, &text))
        });
        match query.await {
            Ok(answer) => json(answer.into()),
            // A bug of a parser; the panic's message is on standard error.
            Err(_) => refusal(StatusCode::INTERNAL_SERVER_ERROR, "the query panicked"),
        }
    }
}

fn empty(status: StatusCode) -> Answer {
    let mut answer = Answer::default();
    *answer.status_mut() = status;
    answer
}

fn refusal(status: StatusCode, reason: &'static str) -> Answer {
    empty(status).map(|_| reason.into())
}

fn too_large() -> Answer {
    refusal(StatusCode::PAYLOAD_TOO_LARGE, "expected a smaller body")
}

fn json(body: Bytes) -> Answer {
    let mut answer = Answer::new(body.into());
    let json = HeaderValue::from_static("application/json");
    answer.headers_mut().insert(header::CONTENT_TYPE, json);
    answer
}

/// Answers a browser that asks which requests the page of another site may make.
fn permission(request: &HeaderMap, methods: &'static str) -> Answer {
    let mut answer = empty(StatusCode::NO_CONTENT);
    let headers = answer.headers_mut();
    let methods = HeaderValue::from_static(methods);
    headers.insert(header::ALLOW, methods.clone());
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    // No header changes an answer, so a page may send any.
    if let Some(names) = request.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    // Some browsers ask this when a public page wants to read from this machine.
    if request.contains_key(PRIVATE_NETWORK_REQUEST) {
        headers.insert(PRIVATE_NETWORK_ANSWER, HeaderValue::from_static("true"));
    }
    answer
}
