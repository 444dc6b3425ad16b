//! A response whose body is guarded, and what else it carries.

use std::mem;

use http_body::Body as _;
use reqwest::{Body, Response, ResponseBuilderExt, Url};

use super::body::OfReqwest;
use crate::cancel::Cancellation;
use crate::http::{Guarded, ResponseExt, Rules, has_no_data};
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
}

/// In the extensions of a response on its way out: nothing is left to come, whatever the headers say. It is the answer to a
/// HEAD, or its body was read already. A response that a policy has put in its place does not have it, and is guarded.
#[derive(Clone, Copy)]
pub(super) struct Complete;

/// The same response around a guarded body.
pub(super) fn guard(response: Response, remains: Remains) -> Response {
    let (mut parts, body) = split(response);
    let Remains { rules, mut tail } = remains;
    let is_over = parts.head.extensions.remove::<Complete>().is_some();
    parts.head.extensions.insert(rules.cancellation.clone());
    let has_ended = is_over || body.is_end_stream();
    if has_ended || has_no_data(&body) {
        tail.take().end(End::Complete);
    }
    if has_ended { join(parts, body) } else { join(parts, Body::wrap(Guarded::new(body, rules, tail, OfReqwest))) }
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
