//! Requests and answers of any type.

use std::any::Any;

use super::clone_request::{CloneRequest, Template};
use super::protocol::{Protocol, Report, Requests};
use crate::attempt::Attempt;
use crate::cancel::Cancellation;
use crate::clock::Clock;
use crate::context::Context;
use crate::drive::Ended;
use crate::error::{BoxError, Error, Opaque};
use crate::http::find;
use crate::policy::Outcome;
use crate::verdict::{Classified, Verdict};

/// Any requests and answers: `Ok` is a success and an error worth another attempt, unless a
/// [judgement](super::Layer::judge) says otherwise. A request is sent again whenever it can be
/// [copied](super::CloneRequest).
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain;

impl<Req: CloneRequest + Send + 'static> Requests<Req> for Plain {
    type Template = Template<Req>;
    type Request = Req;

    fn context(&self, _: &Req) -> Context {
        Context::new()
    }

    fn template(&self, request: Req, _: &dyn Fn() -> Cancellation) -> Template<Req> {
        Template::new(request)
    }

    fn make(&self, template: &Template<Req>, _: &Attempt) -> Option<Req> {
        template.make()
    }
}

impl<Req, Res, E> Protocol<Req, Res, E> for Plain
where
    Req: CloneRequest + Send + 'static,
    Res: Send + 'static,
    E: Send + 'static,
{
    type Answer = Res;
    type Response = Res;

    const STREAMS: bool = false;

    async fn receive(&self, _: &Template<Req>, answer: Result<Res, E>, _: &Clock) -> Outcome<Res, E> {
        match answer {
            Ok(answer) => Outcome::success(answer),
            Err(error) => failed(error),
        }
    }

    fn repeat(&self, template: &Template<Req>, after: Option<&Outcome<Res, E>>) -> Result<(), &'static str> {
        template.can_make(after.is_none())
    }

    async fn discard(&self, answer: Res, _: &Clock) {
        drop(answer);
    }

    fn finish(&self, _: Template<Req>, ended: Ended<Res, E>, _: &Clock) -> Result<Res, Error<E>> {
        ended.result
    }
}

impl<E: Into<BoxError>> Report<E> for Plain {
    type Error = BoxError;

    fn report(&self, error: Error<E>) -> BoxError {
        error.boxed().into()
    }
}

/// An error of the service inside, worth another attempt. Only one that comes from a chain further inside knows better.
pub(super) fn failed<T, E: 'static>(error: E) -> Outcome<T, E> {
    let boxed = (&error as &dyn Any).downcast_ref::<BoxError>();
    let verdict = boxed.and_then(|error| find::<Error<Opaque>>(&**error)).map(Classified::verdict);
    Outcome::failed(error, verdict.unwrap_or(Verdict::Transient))
}
