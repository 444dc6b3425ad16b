//! What has to be known of a kind of requests and answers to put a chain around them.

use crate::attempt::Attempt;
use crate::cancel::Cancellation;
use crate::clock::Clock;
use crate::context::Context;
use crate::drive::Ended;
use crate::error::{ConfigError, Error};
use crate::policy::{Call, Outcome};

/// How the requests of a call are made.
///
/// Apart from [`Protocol`], which speaks of the answers of the service inside: what those are depends on what it is asked with.
#[expect(unnameable_types, reason = "sealed: users choose among the protocols that there are")]
pub trait Requests<Req>: Send + Sync + 'static {
    /// What is kept for all attempts of a call.
    type Template: Send + Sync + 'static;
    /// What the service inside is asked with.
    type Request: Send + 'static;

    /// What the caller brings to this call.
    fn context(&self, request: &Req) -> Context;

    /// Begins a call. `merged` makes the token of a result that outlives the run.
    fn template(&self, request: Req, merged: &dyn Fn() -> Cancellation) -> Self::Template;

    /// The request of one attempt; `None` if there cannot be another.
    fn make(&self, template: &Self::Template, attempt: &Attempt) -> Option<Self::Request>;

    /// Refuses settings that cannot work.
    fn check(&self, template: &Self::Template) -> Result<(), ConfigError> {
        let _ = template;
        Ok(())
    }
}

/// What becomes of the answers `Result<Res, E>` of the service inside.
#[expect(unnameable_types, reason = "sealed: users choose among the protocols that there are")]
pub trait Protocol<Req, Res, E>: Requests<Req> {
    /// What an attempt ends with, as the policies see it.
    type Answer: Send + 'static;
    /// What the caller gets.
    type Response;

    /// Whether an answer outlives its run, as the body of a response does.
    const STREAMS: bool;

    /// Receives and judges the answer to one attempt, within the attempt.
    fn receive(
        &self,
        template: &Self::Template,
        answer: Result<Res, E>,
        clock: &Clock,
    ) -> impl Future<Output = Outcome<Self::Answer, E>> + Send;

    /// Revises the judgement on an attempt.
    fn revise(&self, call: Call<'_, E>, outcome: Outcome<Self::Answer, E>) -> Outcome<Self::Answer, E> {
        let _ = call;
        outcome
    }

    /// Whether there may be another attempt after `after`, or beside a running one if that is `None`.
    fn repeat(&self, template: &Self::Template, after: Option<&Outcome<Self::Answer, E>>) -> Result<(), &'static str>;

    /// Gives up an answer that the caller will not get.
    fn discard(&self, answer: Self::Answer, clock: &Clock) -> impl Future<Output = ()> + Send;

    /// Makes of the end of the run what the caller gets.
    fn finish(
        &self,
        template: Self::Template,
        ended: Ended<Self::Answer, E>,
        clock: &Clock,
    ) -> Result<Self::Response, Error<E>>;
}

/// What the caller gets if there is no answer.
#[expect(unnameable_types, reason = "sealed: users choose among the protocols that there are")]
pub trait Report<E> {
    /// The error of the service.
    type Error;

    /// The error in that form.
    fn report(&self, error: Error<E>) -> Self::Error;
}
