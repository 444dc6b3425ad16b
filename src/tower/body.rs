//! The body of a response that came through a chain.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Frame, SizeHint};
use pin_project::pin_project;

use crate::error::BoxError;
use crate::http::{Blame, BodyError, GivenUp, Guarded, Rules, find};
use crate::policy::{End, Tail};

/// The body of a response that came through a chain. It ends with an error as soon as the caller, the executor or the caller's
/// deadline says so, or the server takes too long; the error is a [`BodyError`], and the body inside is dropped at once. Until
/// it ends, however it ends, it holds what the chain has left to it: the permit of a bulkhead, the record of a late failure.
#[pin_project]
pub struct Body<B>(#[pin] Guarded<B, Anyone>);

impl<B> Body<B> {
    pub(super) fn new(inner: B, rules: Rules, tail: Tail) -> Body<B> {
        Body(Guarded::new(inner, rules, tail, Anyone))
    }
}

impl<B: http_body::Body<Error: Into<BoxError>>> http_body::Body for Body<B> {
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        self.project().0.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

impl<B> fmt::Debug for Body<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").finish_non_exhaustive()
    }
}

/// A body of any kind, whose errors say nothing but that it failed, unless another chain has ended it.
struct Anyone;

impl Blame for Anyone {
    fn error(&self, error: &(dyn StdError + 'static)) -> End {
        match find::<BodyError>(error).map(BodyError::why) {
            Some(GivenUp::Outside(_)) => End::Cancelled,
            Some(GivenUp::Stalled(_) | GivenUp::TooSlow(_)) => End::TimedOut,
            Some(GivenUp::TooLarge(_)) => End::Complete,
            None => End::Failed,
        }
    }
}
