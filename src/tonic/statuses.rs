//! A service whose errors are statuses.

use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project::pin_project;
use tonic::Status;

use crate::error::BoxError;

/// A service inside of a [`Layer`](super::Layer): its errors become what tonic's clients make of them, a [`Status`] with the error
/// as its source.
#[derive(Clone, Debug)]
pub struct Statuses<S>(pub(super) S);

impl<S, R> tower_service::Service<R> for Statuses<S>
where
    S: tower_service::Service<R, Error: Into<BoxError>>,
{
    type Response = S::Response;
    type Error = Status;
    type Future = StatusFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        self.0.poll_ready(cx).map_err(status_of)
    }

    fn call(&mut self, request: R) -> StatusFuture<S::Future> {
        StatusFuture(self.0.call(request))
    }
}

/// The answer of [`Statuses`].
#[pin_project]
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct StatusFuture<F>(#[pin] F);

impl<F, T, E> Future for StatusFuture<F>
where
    F: Future<Output = Result<T, E>>,
    E: Into<BoxError>,
{
    type Output = Result<T, Status>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, Status>> {
        self.project().0.poll(cx).map_err(status_of)
    }
}

fn status_of(error: impl Into<BoxError>) -> Status {
    Status::from_error(error.into())
}
