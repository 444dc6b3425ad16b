//! The body of a response, and what is held until it has ended.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use http_body::{Body as HttpBody, Frame, SizeHint};
use pin_project::pin_project;

use super::answer;
use super::gate::Hold;
use crate::error::{BoxError, Refusal};

/// The body of a response of a [`Guarded`](super::Guarded) service: that of the service inside, or an empty one if the request was
/// refused.
///
/// What the layer holds for the request (the permit of a bulkhead, the limit of a deadline) is held until the body has
/// ended: by its last frame, by an error, or because it is dropped when the client has gone.
#[derive(Debug)]
#[pin_project]
pub struct Body<B> {
    /// `None` once the body is over.
    #[pin]
    inner: Option<B>,
    /// Dropped after `inner`: what it holds is free when the work is done.
    hold: Hold,
    /// How many bytes of a length that was announced are left. Whoever writes them asks for nothing after the last one.
    left: Option<u64>,
    has_trailers: bool,
}

impl<B: HttpBody> Body<B> {
    pub(super) fn new(inner: B, hold: Hold, left: Option<u64>, has_trailers: bool) -> Body<B> {
        Body { inner: Some(inner), hold, left, has_trailers }
    }

    pub(super) fn empty() -> Body<B> {
        Body { inner: None, hold: Hold::Nothing, left: None, has_trailers: false }
    }

    /// Whether these are the last bytes of a length that was announced. Where there are trailers the body is not over then.
    fn takes(self: Pin<&mut Self>, frame: &Frame<B::Data>) -> bool {
        let this = self.project();
        let (Some(left), Some(data)) = (this.left.as_mut(), frame.data_ref()) else { return false };
        *left = left.saturating_sub(data.remaining() as u64);
        *left == 0 && !*this.has_trailers
    }

    fn complete(self: Pin<&mut Self>) {
        let mut this = self.project();
        this.inner.set(None);
        mem::take(this.hold).complete();
    }

    /// Breaks the body off: gRPC has trailers to say why, HTTP only an error that ends the connection or the stream.
    fn give_up(self: Pin<&mut Self>, refusal: Refusal) -> Result<Frame<B::Data>, BoxError> {
        let mut this = self.project();
        this.inner.set(None);
        drop(mem::take(this.hold));
        if *this.has_trailers { Ok(Frame::trailers(answer::trailers(&refusal))) } else { Err(refusal.into()) }
    }
}

impl<B> HttpBody for Body<B>
where
    B: HttpBody<Error: Into<BoxError>>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        if self.inner.is_none() {
            return Poll::Ready(None);
        }
        if let Some(refusal) = self.hold.is_over() {
            return Poll::Ready(Some(self.give_up(refusal)));
        }
        match self.as_mut().project().inner.as_pin_mut().map(|inner| inner.poll_frame(cx)) {
            Some(Poll::Ready(Some(Ok(frame)))) => {
                let is_last = self.as_mut().takes(&frame);
                if is_last || frame.is_trailers() || self.inner.as_ref().is_some_and(HttpBody::is_end_stream) {
                    self.complete();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Poll::Ready(Some(Err(error)))) => {
                let mut this = self.project();
                this.inner.set(None);
                drop(mem::take(this.hold));
                Poll::Ready(Some(Err(error.into())))
            }
            Some(Poll::Ready(None)) | None => {
                self.complete();
                Poll::Ready(None)
            }
            Some(Poll::Pending) => {
                let refusal = ready!(self.as_mut().project().hold.poll_over(cx));
                Poll::Ready(Some(self.give_up(refusal)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Some(inner) => inner.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}
