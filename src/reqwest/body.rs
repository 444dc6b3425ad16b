//! The guard around the body of a response: it ends with what its request was asked for with.

use std::error::Error as StdError;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project::pin_project;

use super::body_timeout::Limits;
use super::error::{BodyError, GivenUp};
use super::judge;
use crate::cancel::{Cancellation, Cause};
use crate::clock::{Clock, Moment, Sleep};
use crate::error::BoxError;
use crate::policy::{End, Tail};
use crate::verdict::Verdict;

/// A body that is over as soon as the caller, the executor or the caller's deadline says so, or the server takes too long.
///
/// Whatever ends it, the body inside is dropped at once, so that the server is told while the reader still holds this one.
#[pin_project]
pub(super) struct Guarded<B> {
    /// `None` once the body is over.
    #[pin]
    inner: Option<B>,
    /// Dropped after `inner`: what it holds is free when the connection is.
    tail: Tail,
    rules: Rules,
    /// Waits for an end from outside. Made when the data is pending for the first time: most bodies are there at once.
    outside: Option<Pin<Box<dyn Future<Output = Cause> + Send + Sync>>>,
    /// Runs while data is pending, to the nearest limit.
    #[pin]
    timer: Option<Sleep>,
}

/// What ends a body before its own end.
pub(super) struct Rules {
    pub(super) cancellation: Cancellation,
    pub(super) clock: Clock,
    pub(super) limits: Limits,
    /// How many attempts its request took, for errors.
    pub(super) attempts: u32,
}

impl<B> Guarded<B> {
    pub(super) fn new(inner: B, rules: Rules, tail: Tail) -> Guarded<B> {
        Guarded { inner: Some(inner), tail, rules, outside: None, timer: None }
    }

    fn finish(self: Pin<&mut Self>, end: End) {
        let mut this = self.project();
        this.inner.set(None);
        this.timer.set(None);
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
        let mut this = self.project();
        let outside = this.outside.get_or_insert_with(|| {
            let cancellation = this.rules.cancellation.clone();
            Box::pin(async move { cancellation.cancelled().await })
        });
        if let Poll::Ready(cause) = outside.as_mut().poll(cx) {
            return Poll::Ready(GivenUp::Outside(cause));
        }
        if this.timer.is_none() {
            this.timer.set(this.rules.nearest_limit().map(|at| this.rules.clock.sleep_until(at)));
        }
        let Some(timer) = this.timer.as_pin_mut() else {
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

impl<B> Body for Guarded<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.inner.is_none() {
            return Poll::Ready(None);
        }
        if let Some(why) = self.rules.ended() {
            return Poll::Ready(Some(Err(self.give_up(why))));
        }
        match self.as_mut().project().inner.as_pin_mut().map(|inner| inner.poll_frame(cx)) {
            Some(Poll::Ready(Some(Ok(frame)))) => {
                self.as_mut().project().timer.set(None);
                match self.inner.as_ref() {
                    Some(inner) if inner.is_end_stream() => self.finish(End::Complete),
                    // Trailers may follow. A body that reqwest decompresses, or could, does not say when it is over.
                    Some(inner) if has_no_data(inner) => self.project().tail.take().end(End::Complete),
                    _ => {}
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Poll::Ready(Some(Err(error)))) => {
                let error = error.into();
                self.finish(end_of(&*error));
                Poll::Ready(Some(Err(error)))
            }
            Some(Poll::Ready(None)) | None => {
                self.finish(End::Complete);
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

/// Whether no data is left to come.
pub(super) fn has_no_data(body: &impl Body) -> bool {
    body.size_hint().upper() == Some(0)
}

/// What an error of the body means to those who wait for its end: a body that cannot be decoded is no failure of a connection,
/// and neither is one for which the request's own body is to blame. A limit may be one of reqwest's own (`timeout`,
/// `read_timeout`).
fn end_of(error: &(dyn StdError + 'static)) -> End {
    let Some(error) = error.downcast_ref::<reqwest::Error>() else { return End::Failed };
    match judge::error(error) {
        Verdict::Permanent => End::Complete,
        Verdict::Ignored => End::Cancelled,
        _ if error.is_timeout() => End::TimedOut,
        _ => End::Failed,
    }
}
