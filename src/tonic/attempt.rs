//! What a request tells the server about the try that sends it.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use tonic::metadata::MetadataMap;
use tonic::{Request, Status};

use super::deadline::{self, GRPC_TIMEOUT};
use crate::attempt::Attempt;

/// What a request tells the server about the try that sends it.
pub trait RequestExt: Sized {
    /// Tells the server how long this try may take (`grpc-timeout`), so that it does not work for nobody, and how many there
    /// were before (`grpc-previous-rpc-attempts`). A shorter limit that the request has already stays.
    ///
    /// The limit is the nearest one around the try. It suits calls with one answer: a server may end a stream by it, which the
    /// [`Timeout`](crate::Timeout) of a chain would not.
    ///
    /// ```
    /// use std::time::Duration;
    /// use steadfast::{Executor, Retry, Timeout, judge::by_error, tonic::RequestExt};
    /// use tonic::{Request, Status};
    ///
    /// # let clock = steadfast::clock::Clock::manual();
    /// # clock.block_on(async {
    /// let policies = (Retry::immediate(), Timeout::secs(2), by_error());
    /// let users = Executor::builder("users").policies(policies).clock(&clock).build().unwrap();
    /// let seen = users.run(|attempt| async move {
    ///     let request = Request::new("user 7").for_attempt(&attempt)?;
    ///     if attempt.is_retry() { Ok(request) } else { Err(Status::unavailable("starting")) }
    /// });
    /// let metadata = seen.await.unwrap().into_parts().0;
    /// assert_eq!(metadata.get("grpc-timeout").unwrap(), "2000000u");
    /// assert_eq!(metadata.get("grpc-previous-rpc-attempts").unwrap(), "1");
    /// # });
    /// ```
    ///
    /// # Errors
    /// DEADLINE_EXCEEDED if no time is left: there is no point in sending it.
    fn for_attempt(self, attempt: &Attempt) -> Result<Self, Status>;
}

impl<T> RequestExt for Request<T> {
    fn for_attempt(mut self, attempt: &Attempt) -> Result<Request<T>, Status> {
        let left = attempt.remaining();
        if left == Some(Duration::ZERO) {
            return Err(Status::deadline_exceeded("no time left to send the request"));
        }
        let mut headers = std::mem::take(self.metadata_mut()).into_headers();
        announce(&mut headers, attempt, left);
        *self.metadata_mut() = MetadataMap::from_headers(headers);
        Ok(self)
    }
}

/// Writes what the server should know of a try that has `left`.
pub(super) fn announce(headers: &mut HeaderMap, attempt: &Attempt, left: Option<Duration>) {
    if let Some(left) = left
        && deadline::decode(headers).is_none_or(|own| left < own)
    {
        headers.insert(GRPC_TIMEOUT, deadline::encode(left));
    }
    let before = attempt.number().saturating_sub(1).saturating_add(attempt.hedge());
    if before > 0 {
        headers.insert(PREVIOUS_ATTEMPTS, HeaderValue::from(before));
    }
}

const PREVIOUS_ATTEMPTS: HeaderName = HeaderName::from_static("grpc-previous-rpc-attempts");
