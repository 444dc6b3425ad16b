//! What the layers of this module have in common: a gate that lets a request in or not, and what it holds while it is inside.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::request::Parts;

use super::answer::Form;
use super::bulkhead::Places;
use super::deadline::{Limits, Running};
use super::rate_limit::Rates;
use crate::clock::Clock;
use crate::context::Context as Caller;
use crate::error::Refusal;
use crate::limit::BulkheadPermit;

/// What stands in front of a service. Clones are the same gate.
#[derive(Clone, Debug)]
pub(super) enum Gate {
    Rate(Arc<Rates>),
    Bulkhead(Arc<Places>),
    Deadline(Arc<Limits>),
}

/// What becomes of a request.
pub(super) enum Admission {
    Admitted(Hold),
    Refused(Box<Refusal>),
    /// It is decided when this has ended.
    Waits(Wait),
}

pub(super) type Wait = Pin<Box<dyn Future<Output = Result<Hold, Refusal>> + Send>>;

impl Gate {
    pub(super) fn admit(&self, head: &mut Parts, form: &Form) -> Admission {
        match self {
            Gate::Rate(rates) => rates.admit(head),
            Gate::Bulkhead(places) => places.admit(head),
            Gate::Deadline(limits) => limits.admit(head, form.is_grpc()),
        }
    }
}

impl Admission {
    pub(super) fn refused(refusal: Refusal) -> Admission {
        Admission::Refused(Box::new(refusal))
    }
}

/// On whose behalf a request waits: whatever a deadline layer outside has said, or nobody in particular.
pub(super) fn caller(head: &Parts, clock: &Clock) -> Caller {
    head.extensions.get().cloned().unwrap_or_else(|| Caller::new().with_clock(clock))
}

/// What a request holds from its admission to the end of its response.
#[derive(Debug, Default)]
pub(super) enum Hold {
    #[default]
    Nothing,
    Permit(#[expect(dead_code, reason = "it is held, and dropped")] BulkheadPermit),
    Deadline(Running),
}

impl Hold {
    /// Ready when the response is not to be waited for any more.
    pub(super) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<Refusal> {
        match self {
            Hold::Nothing | Hold::Permit(_) => Poll::Pending,
            Hold::Deadline(running) => running.poll_over(cx),
        }
    }

    /// Whether the response may not go on, although it could.
    pub(super) fn is_over(&self) -> Option<Refusal> {
        match self {
            Hold::Nothing | Hold::Permit(_) => None,
            Hold::Deadline(running) => running.is_over(),
        }
    }

    /// The headers are there: what is left is the body.
    pub(super) fn begin_body(&mut self) {
        if let Hold::Deadline(running) = self {
            running.begin_body();
        }
    }

    /// The response came to its own end.
    pub(super) fn complete(self) {
        if let Hold::Deadline(running) = self {
            running.complete();
        }
    }
}
