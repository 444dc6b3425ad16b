//! A response whose body is guarded, and what else it carries.

use std::mem;

use http_body::Body as _;
use reqwest::{Body, Response, ResponseBuilderExt, Url};

use super::body::OfReqwest;
use crate::cancel::Cancellation;
use crate::http::{Guarded, ResponseExt, Rules};
use crate::policy::{End, Tail};

impl ResponseExt for Response {
    fn cancellation(&self) -> Option<&Cancellation> {
        self.extensions().cancellation()
    }

    fn not_repeated(&self) -> Option<&'static str> {
        self.extensions().not_repeated()
    }
}

/// What the run of a response leaves to be done while the body is read.
pub(super) struct Remains {
    pub(super) rules: Rules,
    pub(super) tail: Tail,
    /// Whether nothing is left to come, whatever the headers say: the answer to a HEAD, or a body that was read already.
    pub(super) is_over: bool,
}

/// The same response around a guarded body.
pub(super) fn guard(response: Response, remains: Remains) -> Response {
    let (mut parts, body) = split(response);
    let Remains { rules, tail, is_over } = remains;
    parts.head.extensions.insert(rules.cancellation.clone());
    if is_over || body.is_end_stream() {
        tail.end(End::Complete);
        join(parts, body)
    } else {
        join(parts, Body::wrap(Guarded::new(body, rules, tail, OfReqwest)))
    }
}

/// A response without its body.
pub(super) struct Parts {
    head: http::response::Parts,
    url: Url,
}

impl Parts {
    pub(super) fn url(&self) -> &Url {
        &self.url
    }
}

pub(super) fn split(response: Response) -> (Parts, Body) {
    let url = response.url().clone();
    let (head, body) = http::Response::<Body>::from(response).into_parts();
    (Parts { head, url }, body)
}

pub(super) fn join(parts: Parts, body: Body) -> Response {
    let Parts { mut head, url } = parts;
    // reqwest passes the URL in an extension that only its builder can make.
    if let Some(url) = http::response::Builder::new().url(url).extensions_mut() {
        head.extensions.extend(mem::take(url));
    }
    Response::from(http::Response::from_parts(head, body))
}
