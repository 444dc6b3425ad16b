//! A request body in memory that is sent in slices, so that it can be broken off.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use reqwest::Request;

/// Sends the body of the request in slices, if it has one in memory. Its length is announced as before.
///
/// A connection takes over a body of one piece when it begins to send it, and an HTTP/1 connection delivers it to its end
/// whatever becomes of the request. Of a body in slices it takes the next when it has sent those before.
pub(super) fn slice(request: &mut Request) {
    let body = request.body_mut();
    if body.as_ref().and_then(reqwest::Body::as_bytes).is_some_and(|bytes| bytes.len() > SLICE) {
        *body = body.take().map(|piece| reqwest::Body::wrap(Sliced(in_memory(piece))));
    }
}

/// The bytes of a body in memory: its one frame, which shares them with the body that it was cloned from.
fn in_memory(mut body: reqwest::Body) -> Bytes {
    match Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
        Poll::Ready(_) | Poll::Pending => Bytes::new(),
    }
}

struct Sliced(Bytes);

impl Body for Sliced {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.0.len().min(SLICE);
        Poll::Ready((next > 0).then(|| Ok(Frame::data(self.0.split_to(next)))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.len() as u64)
    }
}

/// As much as a frame of HTTP/2 holds by default, and few enough that a connection does not take over much at a time.
const SLICE: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use http_body_util::BodyExt;

    use super::*;

    fn sliced(body: Vec<u8>) -> Request {
        let mut request = reqwest::Client::new().put("http://uploads.example/7").body(body).build().unwrap();
        slice(&mut request);
        request
    }

    #[test]
    fn the_slices_are_the_body() {
        let body: Vec<u8> = (0..=u8::MAX).cycle().take(2 * SLICE + 7).collect();
        let mut request = sliced(body.clone());
        let mut slices = request.body_mut().take().unwrap();
        assert_eq!(slices.size_hint().exact(), Some(body.len() as u64));
        let mut read = Vec::new();
        while let Some(frame) = slices.frame().now_or_never().unwrap() {
            let data = frame.unwrap().into_data().unwrap();
            assert!(data.len() <= SLICE);
            read.extend(data);
        }
        assert!(read == body && slices.is_end_stream());
    }

    #[test]
    fn a_small_body_stays_in_one_piece() {
        assert_eq!(sliced(vec![7; SLICE]).body().unwrap().as_bytes(), Some(&[7; SLICE][..]));
    }
}
