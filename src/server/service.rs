//! The service behind all layers of this module: asks its gate in `call`, and guards the response to its end.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project::pin_project;
use tower_service::Service;

use super::answer::Form;
use super::body::Body;
use super::gate::{Admission, Gate, Hold, Wait};
use crate::error::Refusal;

/// A service behind one of the layers of this module.
///
/// Whether a request is let in is decided when it is there, in `call`; being ready means no more than that the service inside
/// is. The instance that was polled ready is the one that is called: at once, or by a request that had to wait, which takes
/// it along and leaves a clone.
#[derive(Clone, Debug)]
pub struct Guarded<S> {
    inner: S,
    gate: Gate,
}

impl<S> Guarded<S> {
    pub(super) fn new(inner: S, gate: Gate) -> Guarded<S> {
        Guarded { inner, gate }
    }
}

impl<S, B, R> Service<Request<B>> for Guarded<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    R: http_body::Body,
{
    type Response = Response<Body<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture<S, B> {
        let (mut head, body) = request.into_parts();
        let form = Form::of(&head);
        let admission = self.gate.admit(&mut head, &form);
        let request = Request::from_parts(head, body);
        let stage = match admission {
            Admission::Admitted(hold) => Stage::Runs { response: self.inner.call(request), hold },
            Admission::Refused(refusal) => Stage::Refused(refusal),
            Admission::Waits(wait) => {
                let clone = self.inner.clone();
                let ready = mem::replace(&mut self.inner, clone);
                Stage::Waits { wait, then: Some(Box::new((ready, request))) }
            }
        };
        ResponseFuture { form, stage }
    }
}

/// The future of a [`Guarded`] service.
///
/// # Cancel safety
/// Dropped, as by a server whose client has gone, it gives back at once whatever it has: its place among the waiting, its
/// permit, the service inside.
#[pin_project]
pub struct ResponseFuture<S: Service<Request<B>>, B> {
    form: Form,
    #[pin]
    stage: Stage<S, S::Future, B>,
}

#[pin_project(project = StageProjection, project_replace = StageReplaced)]
enum Stage<S, F, B> {
    /// In line. Whoever does not wait has no use for the box.
    Waits {
        wait: Wait,
        then: Option<Box<(S, Request<B>)>>,
    },
    /// Let in. The fields are dropped in this order: the permit is given back when the call inside is gone.
    Runs {
        #[pin]
        response: F,
        hold: Hold,
    },
    Refused(Box<Refusal>),
    Over,
}

impl<S, B, R> Future for ResponseFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: http_body::Body,
{
    type Output = Result<Response<Body<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let refusal = match this.stage.as_mut().project() {
                StageProjection::Waits { wait, then } => match (ready!(wait.as_mut().poll(cx)), then.take()) {
                    (Ok(hold), Some(then)) => {
                        let (mut ready, request) = *then;
                        this.stage.set(Stage::Runs { response: ready.call(request), hold });
                        continue;
                    }
                    (Ok(_), None) => return Poll::Pending,
                    (Err(refusal), _) => refusal,
                },
                StageProjection::Runs { response, hold } => {
                    // What is ready is given, however late it is.
                    if let Poll::Ready(result) = response.poll(cx) {
                        let hold = mem::take(hold);
                        this.stage.set(Stage::Over);
                        return Poll::Ready(result.map(|response| this.form.guard(response, hold)));
                    }
                    ready!(hold.poll_over(cx))
                }
                StageProjection::Refused(_) => match this.stage.as_mut().project_replace(Stage::Over) {
                    StageReplaced::Refused(refusal) => *refusal,
                    _ => return Poll::Pending,
                },
                // Polled again after its end.
                StageProjection::Over => return Poll::Pending,
            };
            this.stage.set(Stage::Over);
            return Poll::Ready(Ok(this.form.refuse(refusal)));
        }
    }
}

impl<S: Service<Request<B>>, B> fmt::Debug for ResponseFuture<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match &self.stage {
            Stage::Waits { .. } => "waits",
            Stage::Runs { .. } => "runs",
            Stage::Refused(_) => "refused",
            Stage::Over => "over",
        };
        f.debug_struct("ResponseFuture").field("stage", &stage).finish_non_exhaustive()
    }
}
