//! What can be added to a protocol.

use std::fmt;

use super::protocol::{Protocol, Report, Requests};
use crate::attempt::Attempt;
use crate::cancel::Cancellation;
use crate::clock::Clock;
use crate::context::Context;
use crate::drive::Ended;
use crate::error::{ConfigError, Error};
use crate::judge::Judged;
use crate::judge::sealed::Judgement;
use crate::policy::{Call, Outcome};

/// A protocol whose errors keep their type; see [`Layer::typed`](super::Layer::typed).
#[derive(Clone, Copy, Debug)]
pub struct Typed<K>(pub(super) K);

/// A protocol with a judgement of its own; see [`Layer::judge`](super::Layer::judge).
#[derive(Clone, Debug)]
pub struct Ruled<K, J> {
    pub(super) protocol: K,
    pub(super) judgement: Judged<J>,
}

/// A protocol whose contexts come from a function; see [`Layer::with_context`](super::Layer::with_context).
#[derive(Clone, Copy)]
pub struct WithContext<K, F> {
    pub(super) protocol: K,
    pub(super) context: F,
}

impl<E, K: Send + Sync> Report<E> for Typed<K> {
    type Error = Error<E>;

    fn report(&self, error: Error<E>) -> Error<E> {
        error
    }
}

impl<E, K: Report<E>, J> Report<E> for Ruled<K, J> {
    type Error = K::Error;

    fn report(&self, error: Error<E>) -> K::Error {
        self.protocol.report(error)
    }
}

impl<E, K: Report<E>, F> Report<E> for WithContext<K, F> {
    type Error = K::Error;

    fn report(&self, error: Error<E>) -> K::Error {
        self.protocol.report(error)
    }
}

impl<Req, K: Requests<Req>> Requests<Req> for Typed<K> {
    type Template = K::Template;
    type Request = K::Request;

    fn context(&self, request: &Req) -> Context {
        self.0.context(request)
    }

    fn template(&self, request: Req, merged: &dyn Fn() -> Cancellation) -> K::Template {
        self.0.template(request, merged)
    }

    fn make(&self, template: &K::Template, attempt: &Attempt) -> Option<K::Request> {
        self.0.make(template, attempt)
    }

    fn check(&self, template: &K::Template) -> Result<(), ConfigError> {
        self.0.check(template)
    }
}

impl<Req, K, J> Requests<Req> for Ruled<K, J>
where
    K: Requests<Req>,
    J: Send + Sync + 'static,
{
    type Template = K::Template;
    type Request = K::Request;

    fn context(&self, request: &Req) -> Context {
        self.protocol.context(request)
    }

    fn template(&self, request: Req, merged: &dyn Fn() -> Cancellation) -> K::Template {
        self.protocol.template(request, merged)
    }

    fn make(&self, template: &K::Template, attempt: &Attempt) -> Option<K::Request> {
        self.protocol.make(template, attempt)
    }

    fn check(&self, template: &K::Template) -> Result<(), ConfigError> {
        self.judgement.check()?;
        self.protocol.check(template)
    }
}

impl<Req, K, F> Requests<Req> for WithContext<K, F>
where
    K: Requests<Req>,
    F: Fn(&Req) -> Context + Send + Sync + 'static,
{
    type Template = K::Template;
    type Request = K::Request;

    fn context(&self, request: &Req) -> Context {
        (self.context)(request)
    }

    fn template(&self, request: Req, merged: &dyn Fn() -> Cancellation) -> K::Template {
        self.protocol.template(request, merged)
    }

    fn make(&self, template: &K::Template, attempt: &Attempt) -> Option<K::Request> {
        self.protocol.make(template, attempt)
    }

    fn check(&self, template: &K::Template) -> Result<(), ConfigError> {
        self.protocol.check(template)
    }
}

impl<Req, Res: Send, E: Send, K: Protocol<Req, Res, E>> Protocol<Req, Res, E> for Typed<K> {
    type Answer = K::Answer;
    type Response = K::Response;

    const STREAMS: bool = K::STREAMS;

    async fn receive(&self, template: &K::Template, answer: Result<Res, E>, clock: &Clock) -> Outcome<K::Answer, E> {
        self.0.receive(template, answer, clock).await
    }

    fn revise(&self, call: Call<'_, E>, outcome: Outcome<K::Answer, E>) -> Outcome<K::Answer, E> {
        self.0.revise(call, outcome)
    }

    fn repeat(&self, template: &K::Template, after: Option<&Outcome<K::Answer, E>>) -> Result<(), &'static str> {
        self.0.repeat(template, after)
    }

    async fn discard(&self, answer: K::Answer, clock: &Clock) {
        self.0.discard(answer, clock).await;
    }

    fn finish(
        &self,
        template: K::Template,
        ended: Ended<K::Answer, E>,
        clock: &Clock,
    ) -> Result<K::Response, Error<E>> {
        self.0.finish(template, ended, clock)
    }
}

impl<Req, Res, E, K, J> Protocol<Req, Res, E> for Ruled<K, J>
where
    Res: Send,
    E: Send,
    K: Protocol<Req, Res, E>,
    J: Judgement<K::Answer, E> + 'static,
{
    type Answer = K::Answer;
    type Response = K::Response;

    const STREAMS: bool = K::STREAMS;

    async fn receive(&self, template: &K::Template, answer: Result<Res, E>, clock: &Clock) -> Outcome<K::Answer, E> {
        self.protocol.receive(template, answer, clock).await
    }

    fn revise(&self, call: Call<'_, E>, outcome: Outcome<K::Answer, E>) -> Outcome<K::Answer, E> {
        self.judgement.revise(call, self.protocol.revise(call, outcome))
    }

    fn repeat(&self, template: &K::Template, after: Option<&Outcome<K::Answer, E>>) -> Result<(), &'static str> {
        self.protocol.repeat(template, after)
    }

    async fn discard(&self, answer: K::Answer, clock: &Clock) {
        self.protocol.discard(answer, clock).await;
    }

    fn finish(
        &self,
        template: K::Template,
        ended: Ended<K::Answer, E>,
        clock: &Clock,
    ) -> Result<K::Response, Error<E>> {
        self.protocol.finish(template, ended, clock)
    }
}

impl<Req, Res, E, K, F> Protocol<Req, Res, E> for WithContext<K, F>
where
    Res: Send,
    E: Send,
    K: Protocol<Req, Res, E>,
    F: Fn(&Req) -> Context + Send + Sync + 'static,
{
    type Answer = K::Answer;
    type Response = K::Response;

    const STREAMS: bool = K::STREAMS;

    async fn receive(&self, template: &K::Template, answer: Result<Res, E>, clock: &Clock) -> Outcome<K::Answer, E> {
        self.protocol.receive(template, answer, clock).await
    }

    fn revise(&self, call: Call<'_, E>, outcome: Outcome<K::Answer, E>) -> Outcome<K::Answer, E> {
        self.protocol.revise(call, outcome)
    }

    fn repeat(&self, template: &K::Template, after: Option<&Outcome<K::Answer, E>>) -> Result<(), &'static str> {
        self.protocol.repeat(template, after)
    }

    async fn discard(&self, answer: K::Answer, clock: &Clock) {
        self.protocol.discard(answer, clock).await;
    }

    fn finish(
        &self,
        template: K::Template,
        ended: Ended<K::Answer, E>,
        clock: &Clock,
    ) -> Result<K::Response, Error<E>> {
        self.protocol.finish(template, ended, clock)
    }
}

impl<K: fmt::Debug, F> fmt::Debug for WithContext<K, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithContext").field("protocol", &self.protocol).finish_non_exhaustive()
    }
}
