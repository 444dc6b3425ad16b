//! What a chain costs a call that succeeds at once, on both clocks, beside the bare call.
//!
//! ```sh
//! cargo bench --all-features
//! ```

use std::fmt;
use std::time::Duration;

use divan::{Bencher, Divan, black_box};
use futures::FutureExt;
use steadfast::breaker::{BreakerConfig, TripRule};
use steadfast::judge::retry_if;
use steadfast::limit::RateLimiterConfig;
use steadfast::standard::StandardConfig;
use steadfast::{
    Breaker, Bulkhead, Chaos, Clock, Executor, Fallback, Hedge, Keyed, Policy, RateLimiter, Retry, StandardChain,
    Timeout,
};

fn main() {
    // Timers of tokio ask for a runtime, also where nothing waits.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("a runtime without i/o asks nothing of the system that it could refuse");
    let _entered = runtime.enter();
    // A call takes less than a reading of the timer: many of them make a sample.
    Divan::default().sample_size(1_000).config_with_args().main();
}

#[divan::bench]
fn bare(bencher: Bencher<'_, '_>) {
    bencher.bench(|| operation(black_box(7)).now_or_never());
}

/// One reading of the clock: what everything that needs the time pays once.
#[divan::bench(args = CLOCKS)]
fn clock(bencher: Bencher<'_, '_>, time: Time) {
    let clock = time.clock();
    bencher.bench(|| black_box(&clock).now());
}

/// Beside `timeout`.
#[divan::bench]
#[expect(clippy::disallowed_methods, reason = "it is what is measured here")]
fn timeout_of_tokio(bencher: Bencher<'_, '_>) {
    bencher.bench(|| tokio::time::timeout(Duration::from_secs(1), operation(black_box(7))).now_or_never());
}

#[divan::bench(args = CLOCKS)]
fn no_policy(bencher: Bencher<'_, '_>, time: Time) {
    succeed(bencher, time, ());
}

#[divan::bench(args = CLOCKS)]
fn retry(bencher: Bencher<'_, '_>, time: Time) {
    succeed(bencher, time, Retry::exponential());
}

#[divan::bench(args = CLOCKS)]
fn timeout(bencher: Bencher<'_, '_>, time: Time) {
    succeed(bencher, time, Timeout::secs(1));
}

#[divan::bench(args = CLOCKS)]
fn hedge(bencher: Bencher<'_, '_>, time: Time) {
    succeed(bencher, time, Hedge::after(Duration::from_secs(1)));
}

/// One that follows latencies: it counts each of them.
#[divan::bench(args = CLOCKS)]
fn hedge_percentile(bencher: Bencher<'_, '_>, time: Time) {
    succeed(bencher, time, Hedge::percentile(0.95));
}

#[divan::bench(args = CLOCKS)]
fn breaker_rate(bencher: Bencher<'_, '_>, time: Time) {
    succeed(bencher, time, Breaker::default());
}

#[divan::bench(args = CLOCKS)]
fn breaker_consecutive(bencher: Bencher<'_, '_>, time: Time) {
    succeed(bencher, time, Breaker::new(BreakerConfig::default().rule(TripRule::consecutive(5))));
}

#[divan::bench(args = CLOCKS)]
fn chain(bencher: Bencher<'_, '_>, time: Time) {
    succeed(bencher, time, (Retry::exponential(), Breaker::default(), Timeout::secs(1)));
}

/// Two threads that share one executor.
#[divan::bench(args = CLOCKS, threads = 2)]
fn chain_shared(bencher: Bencher<'_, '_>, time: Time) {
    succeed(bencher, time, (Retry::exponential(), Breaker::default(), Timeout::secs(1)));
}

/// A breaker that is open: nothing is called.
#[divan::bench(args = CLOCKS)]
fn breaker_refuses(bencher: Bencher<'_, '_>, time: Time) {
    let rule = TripRule::consecutive(1);
    let breaker = Breaker::new(BreakerConfig::default().rule(rule).open_for(Duration::from_secs(3600)));
    let executor = executor(time, breaker);
    let failed = executor.run(|_| async { Err::<u64, u64>(7) }).now_or_never();
    assert!(failed.is_some_and(|result| result.is_err()));
    bencher.bench(|| executor.run(|_| operation(black_box(7))).now_or_never());
}

/// A window of a millisecond a bucket: a thousand times a second a call begins a new one.
#[divan::bench(args = CLOCKS)]
fn breaker_rollover(bencher: Bencher<'_, '_>, time: Time) {
    let rule = TripRule::failure_rate(0.5).window(10, Duration::from_millis(1));
    succeed(bencher, time, Breaker::new(BreakerConfig::default().rule(rule)));
}

#[divan::bench(args = CLOCKS)]
fn breaker_of_a_key(bencher: Bencher<'_, '_>, time: Time) {
    of_a_key(bencher, time, Keyed::<Breaker>::new(BreakerConfig::default()));
}

#[divan::bench(args = CLOCKS)]
fn rate_limiter(bencher: Bencher<'_, '_>, time: Time) {
    succeed(bencher, time, RateLimiter::per_second(1_000_000_000));
}

#[divan::bench(args = CLOCKS)]
fn rate_limiter_of_a_key(bencher: Bencher<'_, '_>, time: Time) {
    of_a_key(bencher, time, Keyed::<RateLimiter>::new(RateLimiterConfig::per_second(1_000_000_000)));
}

#[divan::bench(args = CLOCKS)]
fn bulkhead(bencher: Bencher<'_, '_>, time: Time) {
    succeed(bencher, time, Bulkhead::new(1_000));
}

#[divan::bench(args = CLOCKS)]
fn fallback(bencher: Bencher<'_, '_>, time: Time) {
    succeed(bencher, time, Fallback::value(0_u64));
}

/// Switched off, as it is in production.
#[divan::bench(args = CLOCKS)]
fn chaos(bencher: Bencher<'_, '_>, time: Time) {
    succeed(bencher, time, Chaos::fail(0.0, || 7_u64));
}

#[divan::bench(args = CLOCKS)]
fn judge(bencher: Bencher<'_, '_>, time: Time) {
    succeed(bencher, time, retry_if(|error: &u64| *error > 0));
}

/// The standard chain, whose numbers may change, and its parts with numbers that may not.
#[divan::bench(args = CLOCKS)]
fn standard(bencher: Bencher<'_, '_>, time: Time) {
    succeed(bencher, time, StandardChain::new(StandardConfig::default()));
}

#[divan::bench(args = CLOCKS)]
fn standard_parts(bencher: Bencher<'_, '_>, time: Time) {
    let rule = TripRule::failure_rate(0.5).or(TripRule::consecutive(10));
    let breaker = Breaker::new(BreakerConfig::default().rule(rule));
    let chain = (Bulkhead::new(1_000), Timeout::secs(30), Retry::exponential(), breaker, Timeout::secs(9));
    succeed(bencher, time, chain);
}

fn of_a_key<P: Policy<u64, u64>>(bencher: Bencher<'_, '_>, time: Time, policies: P) {
    let executor = executor(time, policies);
    let cx = executor.context().with_key("eu-west");
    bencher.bench(|| executor.run_with(&cx, |_| operation(black_box(7))).now_or_never());
}

fn succeed<P: Policy<u64, u64>>(bencher: Bencher<'_, '_>, time: Time, policies: P) {
    let executor = executor(time, policies);
    bencher.bench(|| executor.run(|_| operation(black_box(7))).now_or_never());
}

fn executor<P: Policy<u64, u64>>(time: Time, policies: P) -> Executor<P> {
    let builder = Executor::builder("bench").policies(policies).clock(time.clock());
    builder.build().expect("defaults and plain settings are valid")
}

async fn operation(value: u64) -> Result<u64, u64> {
    Ok(value)
}

const CLOCKS: [Time; 2] = [Time::Tokio, Time::Fast];

#[derive(Clone, Copy)]
enum Time {
    Tokio,
    Fast,
}

impl Time {
    fn clock(self) -> Clock {
        match self {
            Time::Tokio => Clock::tokio(),
            Time::Fast => Clock::fast(),
        }
    }
}

/// The name of the case.
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Time::Tokio => "tokio clock",
            Time::Fast => "fast clock",
        })
    }
}
