//! Policies that users write: what they are given, and what they may do.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use futures::future::{Either, select};
use steadfast::error::Kind;
use steadfast::policy::{Call, End, Frame, Guard, Next, Outcome, Policy, Reason, Settings, Site};
use steadfast::{CancellationToken, Cause, Context, Error, Executor, Retry, Timeout, Verdict, try_do};

use crate::policies::{self, Probe};
use crate::support::{ASYNC_WAYS, Script, WAYS, at_rest, err, hangs, ms, ok, scenario, secs, throttled};

/// A limit of its own making, which says in its frame why it drops what is inside.
struct Impatient {
    limit: Duration,
    started: Arc<Mutex<Vec<bool>>>,
}

impl Settings for Impatient {
    fn limit(&self, inner: Option<Duration>) -> Option<Duration> {
        Some(inner.map_or(self.limit, |inner| inner.min(self.limit)))
    }
}

impl<T: Send, E: Send> Policy<T, E> for Impatient {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        let frame = Frame::until(call, call.now() + self.limit);
        let raced = {
            let inner = pin!(next.call(call.within(&frame)));
            let timer = pin!(call.clock().sleep(self.limit));
            match select(inner, timer).await {
                Either::Left((outcome, _)) => Some(outcome),
                Either::Right(_) => {
                    frame.give_up(Reason::TimedOut);
                    None
                }
            }
        };
        self.started.lock().unwrap().push(frame.was_started());
        let limit = self.limit;
        raced.unwrap_or_else(|| Outcome::new(Err(Error::refused(Kind::TimedOut { limit })), Verdict::Transient))
    }
}

#[test]
fn a_custom_limit_behaves_as_one_of_ours() {
    let started = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&started);
    let chain = move || (Retry::fixed(secs(1)), Impatient { limit: secs(2), started: Arc::clone(&seen) });
    let run = scenario(chain).everywhere([hangs(), err("down"), ok(7)]);
    assert_eq!((run.result, run.calls), (Ok(7), [0, 3, 4].map(secs).to_vec()));
    assert_eq!(*started.lock().unwrap(), [true; 3 * ASYNC_WAYS]);
}

#[test]
fn a_frame_limits_what_is_inside_of_it() {
    let (clock, cx) = at_rest();
    let remaining = |outer: Timeout, inner: Duration| {
        let policy = Impatient { limit: inner, started: Arc::default() };
        let run = try_do(&cx, |attempt| async move { Ok::<_, ()>(attempt.remaining()) }, (outer, policy));
        clock.block_on(run).unwrap().unwrap()
    };
    assert_eq!(remaining(Timeout::secs(9), secs(2)), secs(2));
    assert_eq!(remaining(Timeout::secs(2), secs(9)), secs(2));
}

/// Runs two lanes, and takes the one that ends first.
struct Twice;

impl Settings for Twice {}

impl<T: Send, E: Send> Policy<T, E> for Twice {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        if next.repeat(None).is_err() {
            return next.call(call).await;
        }
        let (first, second) = (Frame::inside(call), Frame::inside(call));
        let lanes = (pin!(next.call(call.within(&first))), pin!(next.call(call.within(&second))));
        let (outcome, loser) = match select(lanes.0, lanes.1).await {
            Either::Left((outcome, _)) => (outcome, &second),
            Either::Right((outcome, _)) => (outcome, &first),
        };
        loser.give_up(Reason::LostRace);
        outcome
    }
}

#[test]
fn lanes_of_one_run_share_its_limits_and_its_count() {
    let chain = || (Retry::fixed(secs(1)), Twice, Timeout::secs(5));
    let seen = scenario(chain).everywhere([hangs(), ok::<_, ()>("second").after(secs(2))]);
    assert_eq!((seen.result, seen.calls.len(), seen.took), (Ok("second"), 2, secs(2)));
    let failing = scenario(chain).everywhere([err::<(), _>("down").after(secs(1))]);
    assert_eq!((failing.failure().attempts, failing.took), (6, secs(5)));
    let stuck = scenario(chain).everywhere([hangs::<(), ()>()]);
    assert_eq!((stuck.failure().attempts, stuck.took), (6, secs(17)));
}

#[test]
fn two_lanes_register_one_timer_each_at_most() {
    let (clock, cx) = at_rest();
    let chain = (Timeout::secs(60), Twice, Timeout::secs(5));
    let mut run = tokio_test::task::spawn(try_do(&cx, |_| std::future::pending::<Result<(), ()>>(), chain));
    assert!(run.poll().is_pending());
    assert_eq!(clock.sleepers(), 2);
    drop(run);
    assert_eq!(clock.sleepers(), 0);
}

/// Keeps the first call waiting, and no other.
#[derive(Default)]
struct HoldsUpTheFirst(AtomicBool);

impl Settings for HoldsUpTheFirst {}

impl<T: Send, E: Send> Policy<T, E> for HoldsUpTheFirst {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        if !self.0.swap(true, Relaxed) {
            call.clock().sleep(secs(60)).await;
        }
        next.call(call).await
    }
}

#[test]
fn what_another_lane_has_started_is_not_the_doing_of_a_limit() {
    let (clock, cx) = at_rest();
    let probe = Probe::default();
    let chain = (Twice, probe.clone(), Timeout::secs(1), HoldsUpTheFirst::default());
    let run = clock.block_on(try_do(&cx, |_| std::future::pending::<Result<(), ()>>(), chain));
    assert_eq!(run.unwrap_err().kind(), Kind::TimedOut { limit: secs(1) });
    // Both limits pass at once. That of the first lane is seen first, and in it nothing was started.
    let first = policies::End::Judged(Verdict::Rejected { retry_after: None });
    assert_eq!(probe.ends(), [first, policies::End::Dropped]);
}

/// Writes down what a call says of itself.
#[derive(Clone, Default)]
struct Reads(Arc<Mutex<Vec<Read>>>);

#[derive(Debug, PartialEq)]
struct Read {
    number: u32,
    is_retry: bool,
    remaining: Option<Duration>,
    ended: Option<Cause>,
    key: Option<String>,
    executor: Option<&'static str>,
    limit: Option<Duration>,
}

impl Settings for Reads {}

impl<T: Send, E: Send> Policy<T, E> for Reads {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        self.0.lock().unwrap().push(Read {
            number: call.number(),
            is_retry: call.is_retry(),
            remaining: call.remaining(),
            ended: call.ended(),
            key: call.context().key().map(str::to_owned),
            executor: call.executor().map(steadfast::error::Name::as_str),
            limit: next.limit(),
        });
        assert_eq!((call.hedge(), call.is_trial(), call.streams()), (0, false, false));
        next.call(call).await
    }
}

#[test]
fn a_call_tells_a_policy_all_about_the_try() {
    let (clock, cx) = at_rest();
    let cx = cx.with_timeout(secs(60)).with_key("host-7");
    let reads = Reads::default();
    let chain = (Retry::fixed(secs(1)).max_attempts(2), reads.clone(), Timeout::secs(2));
    let executor = Executor::builder("reads").policies(chain).clock(&clock).build().unwrap();
    clock.block_on(executor.run_with(&cx, |_| async { Err::<(), _>("down") })).unwrap_err();
    let read = |number, left| Read {
        number,
        is_retry: number > 1,
        remaining: Some(secs(left)),
        ended: None,
        key: Some("host-7".to_owned()),
        executor: Some("reads"),
        limit: Some(secs(2)),
    };
    assert_eq!(*reads.0.lock().unwrap(), [read(1, 60), read(2, 59)]);
}

/// Cancels the caller's token, looks, and goes on.
struct CancelsAndLooks(CancellationToken);

impl Settings for CancelsAndLooks {}

impl<T: Send, E: Send> Policy<T, E> for CancelsAndLooks {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        assert_eq!(call.ended(), None);
        self.0.cancel();
        assert_eq!(call.ended(), Some(Cause::Cancelled));
        let mut error = Error::refused(Kind::Cancelled);
        call.attach_last(&mut error);
        let _ = next;
        Outcome::new(Err(error), Verdict::Ignored).stop()
    }
}

#[test]
fn a_policy_that_is_about_to_start_sees_the_cancellation() {
    let (clock, cx) = at_rest();
    let token = CancellationToken::new();
    let cx = cx.with_token(token.clone());
    let run = try_do(&cx, |_| async { Ok::<_, ()>(()) }, (Retry::immediate(), CancelsAndLooks(token)));
    let error = clock.block_on(run).unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (Kind::Cancelled, 0));
}

/// Forbids more attempts after the first.
struct OnlyOnce;

impl Settings for OnlyOnce {}

impl<T: Send, E: Send> Policy<T, E> for OnlyOnce {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        let outcome = next.call(call).await.stop();
        assert!(outcome.is_stopped());
        outcome
    }
}

#[test]
fn a_stopped_outcome_keeps_its_verdict_and_gets_no_further_attempt() {
    let probe = Probe::default();
    let outer = probe.clone();
    let chain = move || (outer.clone(), Retry::immediate(), OnlyOnce);
    let seen = scenario(chain).everywhere([err::<(), _>("down")]);
    assert_eq!((seen.kind(), seen.calls.len()), (Kind::Failed, 1));
    assert_eq!(probe.verdicts(), [Verdict::Transient; WAYS]);
    let throttled = scenario(|| (Retry::immediate(), OnlyOnce)).everywhere([throttled::<(), _>("busy", ms(1))]);
    assert_eq!(throttled.calls.len(), 1);
}

/// Refuses its own settings and a place outside of a judgement.
struct Picky(u32);

impl Settings for Picky {
    fn validate(&self, site: &mut Site<'_>) -> Result<(), steadfast::ConfigError> {
        site.reads_verdicts("Picky")?;
        if self.0 == 0 {
            return Err(steadfast::ConfigError::new("picky", self.0, "must be at least 1"));
        }
        Ok(())
    }
}

#[test]
fn a_custom_policy_has_its_settings_and_its_place_checked() {
    assert!(Executor::builder("picky").policies((Picky(1), steadfast::judge::by_error())).build().is_ok());
    let settings = Executor::builder("picky").policies((Picky(0), Retry::immediate())).build().unwrap_err();
    assert_eq!(settings.to_string(), "picky = 0: must be at least 1");
    let place = Executor::builder("picky").policies((steadfast::judge::by_error(), Picky(1))).build().unwrap_err();
    assert_eq!((place.field(), place.value()), ("by_error", "outside of Picky"));
}

/// Leaves a guard behind with every outcome.
struct Leaves(Arc<Mutex<Vec<End>>>);

struct Ends(Arc<Mutex<Vec<End>>>);

impl Guard for Ends {
    fn end(&mut self, end: End) {
        self.0.lock().unwrap().push(end);
    }
}

impl Settings for Leaves {}

impl<T: Send, E: Send> Policy<T, E> for Leaves {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        let mut outcome = next.call(call).await;
        outcome.tail_mut().push(Ends(Arc::clone(&self.0)));
        outcome
    }
}

#[test]
fn a_tail_that_nobody_takes_ends_as_dropped_for_each_answer() {
    let ends = Arc::new(Mutex::new(Vec::new()));
    let (clock, cx) = at_rest();
    let script = Script::new(&clock, [err("down"), err("down"), ok(7)]);
    let run = try_do(&cx, |_| script.call_plain(), (Retry::immediate(), Leaves(Arc::clone(&ends))));
    assert_eq!(clock.block_on(run).unwrap(), 7);
    assert_eq!(*ends.lock().unwrap(), [End::Dropped; 3]);
}

#[test]
fn a_tail_tells_its_guards_once_from_the_outside_in() {
    let ends = Arc::new(Mutex::new(Vec::new()));
    let mut outcome = Outcome::<(), ()>::success(());
    assert!(outcome.tail_mut().is_empty());
    outcome.tail_mut().push(Ends(Arc::clone(&ends)));
    let tail = outcome.tail_mut().take();
    drop(outcome);
    assert!(ends.lock().unwrap().is_empty(), "it was taken out");
    tail.end(End::Complete);
    assert_eq!(*ends.lock().unwrap(), [End::Complete]);
}

#[test]
fn context_values_reach_policies_and_clones_are_independent() {
    let (clock, cx): (_, Context) = at_rest();
    let keyed = cx.clone().with_key("a");
    let other = keyed.clone().with_key("b").with_priority(steadfast::Priority::High);
    assert_eq!((cx.key(), keyed.key(), other.key()), (None, Some("a"), Some("b")));
    assert_eq!((keyed.priority(), other.priority()), (steadfast::Priority::Normal, steadfast::Priority::High));
    assert_eq!((keyed.max_attempts(), other.once().max_attempts()), (None, Some(1)));
    drop(clock);
}

#[test]
fn a_frame_that_was_given_up_is_dropped_in_the_same_poll() {
    let (clock, cx) = at_rest();
    let probe = Probe::default();
    let policy = Impatient { limit: secs(2), started: Arc::default() };
    let chain = (policy, probe.clone());
    let mut run = tokio_test::task::spawn(try_do(&cx, |_| std::future::pending::<Result<(), ()>>(), chain));
    assert!(run.poll().is_pending());
    clock.advance(secs(2));
    let Poll::Ready(result) = run.poll() else { panic!("its limit has passed") };
    assert_eq!(result.unwrap_err().kind(), Kind::TimedOut { limit: secs(2) });
    assert_eq!(probe.ends(), [crate::policies::End::Dropped]);
}
