//! The body of an answer that outlives its run.

use std::error::Error as StdError;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project::pin_project;
use tonic::Status;

use super::judge::{self, Codes};
use crate::error::{BoxError, Error};
use crate::http::{Blame, BodyError, find};
use crate::policy::End;
use crate::verdict::Verdict;

/// What the end of an answer says about the server, for those who wait for it.
pub(super) struct Late {
    pub(super) codes: Codes,
    /// The head has said it all.
    pub(super) is_judged: bool,
}

impl Late {
    fn end(&self, verdict: Verdict) -> End {
        match verdict {
            _ if self.is_judged => End::Complete,
            Verdict::Transient | Verdict::Fatal => End::Failed,
            Verdict::Ignored | Verdict::Rejected { .. } => End::Cancelled,
            Verdict::Success | Verdict::Permanent | Verdict::Throttled { .. } => End::Complete,
        }
    }
}

impl Blame for Late {
    fn error(&self, error: &(dyn StdError + 'static)) -> End {
        self.end(find::<Status>(error).map_or(Verdict::Transient, judge::status))
    }

    fn trailers(&self, trailers: &HeaderMap) -> End {
        self.end(self.codes.headers(trailers).unwrap_or(self.codes.missing()))
    }

    fn no_trailers(&self) -> End {
        self.end(self.codes.missing())
    }

    fn ends_with_data(&self) -> bool {
        false
    }
}

/// A guarded body, as tonic reads it: what its guard says is a [`Status`].
#[pin_project]
pub(super) struct Answer<B>(#[pin] pub(super) B);

impl<B: Body<Data = Bytes, Error = BoxError>> Body for Answer<B> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.project().0.poll_frame(cx).map(|frame| match frame? {
            Ok(mut frame) => {
                frame.trailers_mut().map(judge::say_expired);
                Some(Ok(frame))
            }
            Err(error) => Some(Err(status_of(error))),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

fn status_of(error: BoxError) -> Status {
    match error.downcast::<BodyError>() {
        Ok(given_up) => {
            let mut refused = Error::<Status>::refused(given_up.kind());
            refused.set_attempts(given_up.attempts());
            refused.into()
        }
        Err(error) => Status::from(Error::failed(judge::broke_off(error))),
    }
}
