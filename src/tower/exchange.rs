//! One call as an operation: each attempt with an instance of its own, which was polled ready.

use std::future::poll_fn;
use std::marker::PhantomData;

use tower_service::Service;

use super::instances::Instances;
use super::protocol::{Protocol, Requests};
use crate::attempt::Attempt;
use crate::clock::Clock;
use crate::error::{ConfigError, Error};
use crate::operation::Operation;
use crate::policy::{Call, Outcome};
use crate::verdict::Verdict;

/// One call to the service inside, as often as it is asked for.
pub(super) struct Exchange<'a, S, K, T, Req> {
    pub(super) instances: &'a Instances<S>,
    pub(super) protocol: &'a K,
    pub(super) template: &'a T,
    pub(super) clock: &'a Clock,
    pub(super) request: PhantomData<fn(Req)>,
}

impl<S, K, Req> Operation<<K as Protocol<Req, S::Response, S::Error>>::Answer, S::Error>
    for Exchange<'_, S, K, <K as Requests<Req>>::Template, Req>
where
    S: Service<<K as Requests<Req>>::Request> + Clone + Send,
    S::Future: Send,
    S::Response: Send,
    S::Error: Send,
    K: Requests<Req> + Protocol<Req, S::Response, S::Error>,
{
    fn streams(&self) -> bool {
        K::STREAMS
    }

    fn check(&self) -> Result<(), ConfigError> {
        self.protocol.check(self.template)
    }

    async fn call(&self, attempt: Attempt) -> Outcome<<K as Protocol<Req, S::Response, S::Error>>::Answer, S::Error> {
        let Some(mut instance) = self.instances.next() else {
            return too_late();
        };
        if !instance.is_ready
            && let Err(error) = poll_fn(|cx| instance.service.poll_ready(cx)).await
        {
            return self.protocol.receive(self.template, Err(error), self.clock).await;
        }
        // After the wait: a request that could be copied when this attempt was decided on may be gone by now.
        let Some(request) = self.protocol.make(self.template, &attempt) else {
            self.instances.called(instance);
            return too_late();
        };
        let answer = instance.service.call(request);
        self.instances.called(instance);
        self.protocol.receive(self.template, answer.await, self.clock).await
    }

    fn judge(
        &self,
        call: Call<'_, S::Error>,
        outcome: Outcome<<K as Protocol<Req, S::Response, S::Error>>::Answer, S::Error>,
    ) -> Outcome<<K as Protocol<Req, S::Response, S::Error>>::Answer, S::Error> {
        self.protocol.revise(call, outcome)
    }

    fn repeat(
        &self,
        after: Option<&Outcome<<K as Protocol<Req, S::Response, S::Error>>::Answer, S::Error>>,
    ) -> Result<(), &'static str> {
        self.protocol.repeat(self.template, after)
    }

    async fn discard(&self, answer: <K as Protocol<Req, S::Response, S::Error>>::Answer) {
        self.protocol.discard(answer, self.clock).await;
    }
}

/// There is no request left for this attempt: its body was sent on beyond what is kept while the attempt waited, or a policy
/// has called again without asking whether it may. The attempt was not made: a hedge goes on with the others.
#[cold]
fn too_late<T, E>() -> Outcome<T, E> {
    let config = ConfigError::new("the request", "gone", "a policy must ask `Next::repeat` before it calls again");
    Outcome::new(Err(Error::misconfigured(config)), Verdict::Rejected { retry_after: None })
}
