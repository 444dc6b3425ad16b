//! The guard around the body of a response: it ends with what its request was asked for with.

use std::error::Error as StdError;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project::pin_project;

use super::body_error::{BodyError, GivenUp};
use super::body_timeout::Limits;
use crate::cancel::{Cancellation, Cause};
use crate::clock::{Clock, Moment, Sleep};
use crate::error::BoxError;
use crate::policy::{End, Tail};

/// A body that is over as soon as the caller, the executor or the caller's deadline says so, or the server takes too long.
///
/// Whatever ends it, the body inside is dropped at once, so that the server is told while the reader still holds this one.
#[pin_project]
pub(crate) struct Guarded<B, J> {
    /// `None` once the body is over.
    #[pin]
    inner: Option<B>,
    /// Dropped after `inner`: what it holds is free when the connection is.
    tail: Tail,
    blame: J,
    rules: Rules,
    /// Waits for an end from outside. Made when the data is pending for the first time: most bodies are there at once.
    outside: Option<Pin<Box<dyn Future<Output = Cause> + Send + Sync>>>,
    /// Runs while data is pending, to the nearest limit. In a box that is made once, so that the body can be moved if the one
    /// inside can.
    timer: Option<Pin<Box<Option<Sleep>>>>,
}

/// What ends a body before its own end.
pub(crate) struct Rules {
    pub(crate) cancellation: Cancellation,
    pub(crate) clock: Clock,
    pub(crate) limits: Limits,
    /// How many attempts its request took, for errors.
    pub(crate) attempts: u32,
}

/// What the last words of a body mean to those who wait for its end.
pub(crate) trait Blame {
    /// The body has failed with `error`.
    fn error(&self, error: &(dyn StdError + 'static)) -> End;

    /// The body is over, and has said more in its trailers.
    fn trailers(&self, trailers: &HeaderMap) -> End {
        let _ = trailers;
        End::Complete
    }

    /// The body is over, and has no trailers.
    fn no_trailers(&self) -> End {
        End::Complete
    }

    /// Whether its trailers, if it has any, have nothing to say about its end.
    fn ends_with_data(&self) -> bool {
        true
    }
}

/// Whether no data is left to come.
pub(crate) fn has_no_data(body: &impl Body) -> bool {
    body.size_hint().upper() == Some(0)
}

impl<B, J> Guarded<B, J> {
    pub(crate) fn new(inner: B, rules: Rules, tail: Tail, blame: J) -> Guarded<B, J> {
        Guarded { inner: Some(inner), tail, blame, rules, outside: None, timer: None }
    }

    fn finish(self: Pin<&mut Self>, end: End) {
        let mut this = self.project();
        this.inner.set(None);
        *this.timer = None;
        *this.outside = None;
        this.tail.take().end(end);
    }

    fn give_up(self: Pin<&mut Self>, why: GivenUp) -> BoxError {
        let error = BodyError::new(why, self.rules.attempts);
        self.finish(if matches!(why, GivenUp::Outside(_)) { End::Cancelled } else { End::TimedOut });
        error.into()
    }

    /// The data is pending: waits for everything else that may end the body.
    fn poll_end(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<GivenUp> {
        let this = self.project();
        let outside = this.outside.get_or_insert_with(|| {
            let cancellation = this.rules.cancellation.clone();
            Box::pin(async move { cancellation.cancelled().await })
        });
        if let Poll::Ready(cause) = outside.as_mut().poll(cx) {
            return Poll::Ready(GivenUp::Outside(cause));
        }
        let timer = this.timer.get_or_insert_with(|| Box::pin(None));
        if timer.is_none() {
            timer.set(this.rules.nearest_limit().map(|at| this.rules.clock.sleep_until(at)));
        }
        let Some(timer) = timer.as_mut().as_pin_mut() else {
            return Poll::Pending;
        };
        ready!(timer.poll(cx));
        Poll::Ready(this.rules.passed().unwrap_or(GivenUp::Stalled(this.rules.limits.idle.unwrap_or_default())))
    }
}

impl Rules {
    /// What ends the body before its next data, whether that is there or not.
    fn ended(&self) -> Option<GivenUp> {
        self.cancellation.cause().map(GivenUp::Outside).or_else(|| self.passed())
    }

    /// The limit on the whole, if it has passed.
    fn passed(&self) -> Option<GivenUp> {
        let (at, limit) = self.limits.total?;
        (self.clock.now() >= at).then_some(GivenUp::TooSlow(limit))
    }

    /// When a body without data from now on has to be given up.
    fn nearest_limit(&self) -> Option<Moment> {
        let idle = self.limits.idle.map(|limit| self.clock.now() + limit);
        idle.into_iter().chain(self.limits.total.map(|(at, _)| at)).min()
    }
}

impl<B, J> Body for Guarded<B, J>
where
    B: Body<Error: Into<BoxError>>,
    J: Blame,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        if self.inner.is_none() {
            return Poll::Ready(None);
        }
        if let Some(why) = self.rules.ended() {
            return Poll::Ready(Some(Err(self.give_up(why))));
        }
        match self.as_mut().project().inner.as_pin_mut().map(|inner| inner.poll_frame(cx)) {
            Some(Poll::Ready(Some(Ok(frame)))) => {
                if let Some(timer) = self.as_mut().project().timer {
                    timer.set(None);
                }
                if let Some(trailers) = frame.trailers_ref() {
                    let end = self.blame.trailers(trailers);
                    self.finish(end);
                } else if self.inner.as_ref().is_some_and(Body::is_end_stream) {
                    let end = self.blame.no_trailers();
                    self.finish(end);
                } else if self.blame.ends_with_data() && self.inner.as_ref().is_some_and(has_no_data) {
                    // Trailers may follow. A body that is decompressed, or could be, does not say when it is over.
                    self.as_mut().project().tail.take().end(End::Complete);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Poll::Ready(Some(Err(error)))) => {
                let error = error.into();
                let end = self.blame.error(&*error);
                self.finish(end);
                Poll::Ready(Some(Err(error)))
            }
            Some(Poll::Ready(None)) | None => {
                let end = self.blame.no_trailers();
                self.finish(end);
                Poll::Ready(None)
            }
            Some(Poll::Pending) => {
                let why = ready!(self.as_mut().poll_end(cx));
                Poll::Ready(Some(Err(self.give_up(why))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Some(inner) => inner.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}
