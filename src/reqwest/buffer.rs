//! A response body that is read within the attempt.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as _, Frame, SizeHint};
use pin_project::pin_project;
use reqwest::{Body, Response};

use super::body::OfReqwest;
use super::response::{join, split};
use crate::error::BoxError;
use crate::http::{BodyError, GivenUp, Guarded, Rules};
use crate::policy::Tail;

/// The same response with all of its body there, unless that has more than `most` bytes, breaks off or takes too long.
pub(super) async fn buffer(response: Response, most: usize, rules: Rules) -> Result<Response, reqwest::Error> {
    let (parts, body) = split(response);
    if body.is_end_stream() {
        return Ok(join(parts, body));
    }
    let attempts = rules.attempts;
    let trailers = Arc::default();
    let inner = Guarded::new(body, rules, Tail::default(), OfReqwest);
    let capped = Capped { inner, left: most, most, attempts, trailers };
    let trailers = Arc::clone(&capped.trailers);
    // reqwest collects it, and makes of an error what any reader of a body gets.
    let whole = Response::from(http::Response::new(Body::wrap(capped))).bytes().await;
    let bytes = whole.map_err(|error| error.with_url(parts.url().clone()))?;
    let trailers = trailers.lock().unwrap_or_else(PoisonError::into_inner).take();
    Ok(join(
        parts,
        match trailers {
            None => Body::from(bytes),
            Some(_) => Body::wrap(Whole { bytes, trailers }),
        },
    ))
}

/// A body of a limited number of bytes, whose trailers are put aside.
#[pin_project]
struct Capped<B> {
    #[pin]
    inner: B,
    left: usize,
    most: usize,
    attempts: u32,
    trailers: Arc<Mutex<Option<HeaderMap>>>,
}

impl<B> http_body::Body for Capped<B>
where
    B: http_body::Body<Data = Bytes, Error = BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.project();
        let too_large = |announced: u64| announced > *this.left as u64;
        if too_large(this.inner.size_hint().lower()) {
            return Poll::Ready(Some(Err(BodyError::new(GivenUp::TooLarge(*this.most), *this.attempts).into())));
        }
        let frame = match ready!(this.inner.poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            end => return Poll::Ready(end),
        };
        match frame.into_data() {
            Ok(data) if too_large(data.len() as u64) => {
                Poll::Ready(Some(Err(BodyError::new(GivenUp::TooLarge(*this.most), *this.attempts).into())))
            }
            Ok(data) => {
                *this.left -= data.len();
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            Err(frame) => {
                let mut trailers = this.trailers.lock().unwrap_or_else(PoisonError::into_inner);
                *trailers = frame.into_trailers().ok();
                Poll::Ready(None)
            }
        }
    }
}

/// A body that is there, with trailers.
struct Whole {
    bytes: Bytes,
    trailers: Option<HeaderMap>,
}

impl http_body::Body for Whole {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = std::mem::take(&mut self.bytes);
        if data.is_empty() {
            Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
        } else {
            Poll::Ready(Some(Ok(Frame::data(data))))
        }
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_empty() && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len() as u64)
    }
}
