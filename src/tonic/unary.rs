//! An answer that is read to its trailers within the attempt.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tonic::Status;

use super::judge::{self, Codes};
use crate::error::BoxError;
use crate::verdict::Verdict;

/// The body of an answer, as far as it was read.
pub(super) struct Read<B> {
    frames: VecDeque<Frame<Bytes>>,
    /// What is left of one that was too long to be read.
    rest: Option<Pin<Box<B>>>,
}

/// Reads `body` up to its trailers, which say what the call was worth, but not more than `most` bytes: a longer one is handed on
/// without a verdict.
pub(super) async fn read<B>(body: B, most: usize, codes: &Codes) -> Result<(Read<B>, Option<Verdict>), Status>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    let mut body = Box::pin(body);
    let mut frames = VecDeque::new();
    let mut length = 0_usize;
    let mut verdict = codes.missing();
    while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        let mut frame = frame.map_err(judge::broke_off)?;
        if let Some(trailers) = frame.trailers_mut() {
            verdict = codes.headers(trailers).unwrap_or(verdict);
            judge::say_expired(trailers);
        }
        // What is kept is counted, and a frame of a byte takes the room of a frame. Empty ones say nothing.
        match frame.data_ref() {
            Some(data) if data.is_empty() => continue,
            Some(data) => length = length.saturating_add(data.len().max(size_of::<Frame<Bytes>>())),
            None => {}
        }
        frames.push_back(frame);
        if length > most {
            return Ok((Read { frames, rest: Some(body) }, None));
        }
    }
    Ok((Read { frames, rest: None }, Some(verdict)))
}

impl<B> Body for Read<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(frame) = self.frames.pop_front() {
            return Poll::Ready(Some(Ok(frame)));
        }
        match &mut self.rest {
            Some(rest) => rest.as_mut().poll_frame(cx).map_err(Into::into),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty() && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.rest {
            Some(_) => SizeHint::new(),
            None => {
                SizeHint::with_exact(self.frames.iter().filter_map(Frame::data_ref).map(|data| data.len() as u64).sum())
            }
        }
    }
}
