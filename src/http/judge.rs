//! What an answer is worth. Pure.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode};

use super::retry_after::retry_after;
use crate::verdict::Verdict;

/// The verdict on an answer with this head. `now` is asked for the wall clock where a pause counts from it.
pub(crate) fn answer(code: StatusCode, headers: &HeaderMap, now: impl FnOnce() -> SystemTime) -> Verdict {
    if code < StatusCode::BAD_REQUEST {
        return Verdict::Success;
    }
    status(code, retry_after(headers, now()))
}

/// The verdict on an answer, given the pause that it asks for. Below 400 a pause means nothing: a 202 says with it when to
/// look again.
pub(crate) fn status(status: StatusCode, retry_after: Option<Duration>) -> Verdict {
    if status < StatusCode::BAD_REQUEST {
        return Verdict::Success;
    }
    match status {
        StatusCode::TOO_MANY_REQUESTS => Verdict::Throttled { retry_after },
        _ if retry_after.is_some() => Verdict::Throttled { retry_after },
        StatusCode::REQUEST_TIMEOUT => Verdict::Transient,
        StatusCode::NOT_IMPLEMENTED => Verdict::Permanent,
        _ if status.is_server_error() => Verdict::Transient,
        _ => Verdict::Permanent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Option<Duration> = Some(Duration::from_secs(7));

    #[test]
    fn an_answer_is_worth_what_its_status_says() {
        for code in [100, 200, 202, 204, 301, 304] {
            let code = StatusCode::from_u16(code).unwrap();
            assert_eq!(status(code, None), Verdict::Success, "{code}");
            assert_eq!(status(code, PAUSE), Verdict::Success, "{code} with Retry-After");
        }
        for code in [408, 500, 502, 503, 504, 507, 529] {
            assert_eq!(status(StatusCode::from_u16(code).unwrap(), None), Verdict::Transient, "{code}");
        }
        for code in [400, 401, 403, 404, 409, 422, 501] {
            assert_eq!(status(StatusCode::from_u16(code).unwrap(), None), Verdict::Permanent, "{code}");
        }
        let throttled = Verdict::Throttled { retry_after: PAUSE };
        for code in [403, 408, 413, 429, 500, 501, 503] {
            assert_eq!(status(StatusCode::from_u16(code).unwrap(), PAUSE), throttled, "{code} with Retry-After");
        }
        assert_eq!(status(StatusCode::TOO_MANY_REQUESTS, None), Verdict::Throttled { retry_after: None });
    }
}
