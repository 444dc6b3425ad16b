//! Which types can be sent, shared and unpinned: a promise that a private field can break without a word.

use steadfast::breaker::{self, AbandonedTrial, BreakerConfig, Counts, Permit, Rejected, State, Transition, TripRule};
use steadfast::budget::{Draw, First};
use steadfast::chain::BoxPolicy;
use steadfast::chaos::{Delay, Fail, Replace, Switch};
use steadfast::clock::{Clock, Deadline, ManualClock, Moment, Sleep};
use steadfast::error::{BoxError, Full, Kind, Limit, Name, Opaque, Refusal};
use steadfast::event::{CutOff, Event, Observer, RunEnd, RunId, What};
use steadfast::executor::{AnyError, AnyValue, Builder, Erased, Report, Stopped, With};
use steadfast::fallback::{Always, Function, Value, When};
use steadfast::judge::{AttemptsFor, ByError, Classify, Judged, JudgedBy, RetryAfter, RetryIf};
use steadfast::limit::{BulkheadConfig, BulkheadPermit, RateLimiterConfig};
use steadfast::operation::{Fault, Faults, Nested, Op, StateFuture, WithState, WithToken};
use steadfast::policy::{Call, End, Frame, Guard, Outcome, Reason, Site, Tail};
use steadfast::registry::RegistryConfig;
use steadfast::retry::{Backoff, Jitter, OnLongWait, OnRejection, RetryEvent};
use steadfast::snapshot::ExecutorSnapshot;
use steadfast::standard::StandardConfig;
use steadfast::{
    Attempt, Breaker, Budget, Bulkhead, Cancellation, CancellationToken, Cause, Chaos, ConfigError, Context, Error,
    Executor, Fallback, Hedge, Keyed, Priority, RateLimiter, Registry, Retry, StandardChain, Timeout, Verdict,
};

fn all<T: Send + Sync + Unpin>() {}
fn send<T: Send + ?Sized>() {}
fn shared<T: Send + Sync + ?Sized>() {}
fn unpin<T: Unpin + ?Sized>() {}
fn owned<T: Send + Sync + Unpin + 'static>() {}

#[test]
fn what_a_caller_holds_can_go_anywhere() {
    owned::<Context>();
    owned::<Priority>();
    owned::<CancellationToken>();
    owned::<Cancellation>();
    owned::<Cause>();
    owned::<Attempt>();
    owned::<Executor>();
    owned::<Executor<(Retry, Timeout)>>();
    owned::<Builder<(Retry, Timeout)>>();
    owned::<Report<u32, String>>();
    owned::<Stopped>();
    all::<With<'_, Retry, (&Retry, Timeout)>>();
}

#[test]
fn settings_and_what_operators_see_can_go_anywhere() {
    owned::<StandardChain>();
    owned::<StandardConfig>();
    owned::<Executor<StandardChain>>();
    owned::<Registry>();
    owned::<RegistryConfig>();
    owned::<ExecutorSnapshot>();
    owned::<RunId>();
    owned::<RunEnd>();
    owned::<CutOff>();
    owned::<steadfast::metrics::Metrics>();
    owned::<steadfast::tracing::Tracing>();
}

#[test]
fn a_breaker_and_what_it_gives_can_be_shared() {
    owned::<Breaker>();
    owned::<BreakerConfig>();
    owned::<TripRule>();
    owned::<AbandonedTrial>();
    owned::<Counts>();
    owned::<State>();
    owned::<Transition>();
    owned::<breaker::Cause>();
    owned::<Rejected>();
    // It may be given back by another thread than the one that took it.
    owned::<Permit>();
}

#[test]
fn limits_and_what_they_give_can_be_shared() {
    owned::<RateLimiter>();
    owned::<RateLimiterConfig>();
    owned::<Bulkhead>();
    owned::<BulkheadConfig>();
    owned::<BulkheadPermit>();
    owned::<Keyed<RateLimiter>>();
    let (limiter, bulkhead, cx) = (RateLimiter::per_second(1), Bulkhead::new(1), Context::new());
    is_send(&limiter.acquire_many(1));
    is_send(&limiter.acquire_with(&cx, 1));
    is_send(&bulkhead.acquire());
    is_send(&bulkhead.acquire_with(&cx));
}

fn is_send<T: Send>(_: &T) {}

#[cfg(feature = "server")]
#[test]
fn layers_for_servers_and_what_they_give_can_be_sent() {
    use steadfast::server::{Body, BulkheadLayer, DeadlineLayer, Guarded, Key, RateLimitLayer, ResponseFuture};
    owned::<Key>();
    owned::<RateLimitLayer>();
    owned::<BulkheadLayer>();
    owned::<DeadlineLayer>();
    owned::<Guarded<String>>();
    owned::<Body<String>>();
    send::<ResponseFuture<Ready, String>>();

    /// A service that is as plain as can be.
    struct Ready;

    impl tower::Service<http::Request<String>> for Ready {
        type Response = http::Response<String>;
        type Error = String;
        type Future = std::future::Ready<Result<http::Response<String>, String>>;

        fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), String>> {
            std::task::Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: http::Request<String>) -> Self::Future {
            std::future::ready(Err(String::new()))
        }
    }
}

#[cfg(feature = "tower")]
#[test]
fn the_tower_layer_can_go_anywhere() {
    use steadfast::tower::{Body, Http, Layer, Plain, Replay, Service, Typed};
    type Bytes = http_body_util::Full<&'static [u8]>;

    owned::<Layer<(Retry, Timeout)>>();
    owned::<Layer<steadfast::executor::Erased, Typed<Http>>>();
    owned::<Service<(), (Retry, Timeout), Plain>>();
    owned::<Body<Bytes>>();
    owned::<Replay<Bytes>>();
}

#[cfg(feature = "reqwest")]
#[test]
fn a_client_and_what_it_gives_can_be_sent() {
    use steadfast::reqwest::{BodyError, Client, NotRepeated, RequestBuilder};
    owned::<Client>();
    send::<RequestBuilder>();
    owned::<steadfast::reqwest::Error>();
    owned::<BodyError>();
    owned::<NotRepeated>();
}

#[test]
fn policies_and_their_settings_can_be_shared() {
    owned::<Retry>();
    owned::<Backoff>();
    owned::<Jitter>();
    owned::<OnLongWait>();
    owned::<OnRejection>();
    owned::<Timeout>();
    owned::<Hedge>();
    owned::<Budget>();
    all::<Draw<'_>>();
    all::<First<'_>>();
    owned::<BoxPolicy<u32, String>>();
    owned::<Vec<BoxPolicy<u32, String>>>();
    owned::<Erased>();
    owned::<Judged<ByError>>();
    owned::<Judged<RetryIf<fn(&String) -> bool>>>();
    owned::<Judged<RetryAfter<fn(&String) -> Option<std::time::Duration>>>>();
    owned::<Judged<AttemptsFor<fn(&String) -> bool>>>();
    owned::<Judged<Classify<fn(&Result<u32, Error<String>>) -> Verdict>>>();
    owned::<Judged<JudgedBy<()>>>();
}

#[test]
fn errors_are_as_free_as_what_they_hold() {
    owned::<Error<String>>();
    owned::<Refusal>();
    owned::<ConfigError>();
    owned::<Kind>();
    owned::<Limit>();
    owned::<Full>();
    owned::<Name>();
    owned::<Opaque>();
    owned::<BoxError>();
    owned::<Fault<String>>();
    owned::<Verdict>();
    send::<Error<std::cell::Cell<u32>>>();
}

#[test]
fn time_can_be_shared() {
    owned::<Clock>();
    owned::<ManualClock>();
    owned::<Moment>();
    owned::<Deadline>();
    send::<Sleep>();
    shared::<dyn steadfast::clock::TimeSource>();
}

#[test]
fn what_a_policy_sees_can_move_between_threads_at_an_await() {
    all::<Call<'_, String>>();
    shared::<Frame<'_, String>>();
    send::<Outcome<u32, String>>();
    send::<Tail>();
    owned::<End>();
    owned::<Reason>();
    shared::<dyn Guard>();
    shared::<Site<'_>>();
    // A view for the length of a callback.
    unpin::<RetryEvent<'_>>();
    owned::<AnyValue>();
    owned::<AnyError>();
}

#[test]
fn fallbacks_and_faults_on_purpose_are_as_free_as_what_they_hold() {
    type Maker = fn() -> String;
    owned::<Fallback<Value<String>>>();
    owned::<Fallback<Function<Maker>, When<Maker>>>();
    owned::<Always>();
    owned::<Chaos<Fail<Maker>>>();
    owned::<Chaos<Replace<Maker>>>();
    owned::<Chaos<Delay>>();
    owned::<Switch>();
}

#[test]
fn operations_and_their_futures_are_as_free_as_what_they_hold() {
    type Closure = fn(Attempt) -> std::future::Ready<Result<u32, String>>;
    owned::<Op<u32, String, Closure, ()>>();
    owned::<Nested<Closure>>();
    owned::<Faults<std::future::Ready<()>>>();
    owned::<WithToken<std::future::Ready<()>>>();
    shared::<WithState<'_, u32, Closure>>();
    send::<StateFuture<'_, u32>>();
}

#[test]
fn events_can_be_kept_and_sent() {
    owned::<Event>();
    owned::<What>();
    shared::<dyn Observer>();
}

#[cfg(feature = "tonic")]
#[test]
fn a_channel_with_a_chain_can_go_wherever_one_without_can() {
    use steadfast::tonic::{Layer, Pushback, Service};
    use tonic::transport::Channel;

    owned::<Channel>();
    owned::<Service<Channel>>();
    owned::<Layer>();
    owned::<Pushback>();
}
