//! What calls are made of, each part alone: where an aim is below the sum of what a case cannot do without, no code reaches it.

use std::hint::black_box;
use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use steadfast::policy::{Call, Next, Outcome, Policy, Settings};
use steadfast::{Clock, Executor};
use tokio::time::sleep;

use crate::harness::{Answers, Cost, Group, Subject, Threads, Work, poll_each};
use crate::operation::{Failure, succeed};

pub struct Part {
    pub name: &'static str,
    pub cost: Cost,
}

/// All parts, to be measured on one thread.
pub struct Parts {
    names: Vec<&'static str>,
    pub group: Group,
}

impl Parts {
    pub fn set_up(threads: &Threads) -> Parts {
        let (names, works): (Vec<_>, Vec<_>) = parts().into_iter().unzip();
        let subject = |(name, work): (&&str, Work)| Subject {
            name: (*name).to_owned(),
            works: vec![work],
            answers: Answers::ALL,
        };
        let group = Group::new(names.iter().zip(works).map(subject).collect(), threads);
        Parts { names, group }
    }

    pub fn costs(self, threads: &Threads) -> Vec<Part> {
        self.names.into_iter().zip(self.group.costs(threads)).map(|(name, cost)| Part { name, cost }).collect()
    }
}

fn parts() -> Vec<(&'static str, Work)> {
    let (tokio, fast, quanta) = (Clock::tokio(), Clock::fast(), quanta::Clock::new());
    let (word, window) = (AtomicU64::new(0), Window::new(quanta::Clock::new()));
    let mutex = Mutex::new(0_u64);
    vec![
        ("the loop that measures the parts below it", again(|| 7_u64)),
        ("`Clock::tokio().now()`", again(move || tokio.now())),
        ("`Clock::fast().now()`", again(move || fast.now())),
        ("`Instant::now()` of std", again(Instant::now)),
        ("`Clock::now()` of quanta", again(move || quanta.now())),
        ("a compare-and-swap, nobody else", again(move || add_one(&word))),
        ("the counter read, its bucket found, and a compare-and-swap there", again(move || window.count())),
        (
            "a `Mutex` locked and unlocked, nobody else",
            again(move || mutex.lock().map(|mut locked| *locked += 1).is_ok()),
        ),
        ("a box of 144 bytes, made and dropped", again(|| Box::new(black_box([7_u64; 18])))),
        ("tokio's `Sleep`, made, registered and dropped", again(register_sleep)),
        ("a bare future, polled", Work::new(|_, calls| poll_each(calls, succeed))),
        ("the same in an executor without policies", run(())),
        ("the same through a policy that does nothing", run(Nothing)),
        ("the same through three of them", run((Nothing, Nothing, Nothing))),
    ]
}

fn run(policies: impl Policy<u64, Failure> + 'static) -> Work {
    let executor = Executor::builder("peers").policies(policies).build().expect("nothing is set that could be wrong");
    Work::new(move |_, calls| poll_each(calls, || executor.run(|_| succeed())))
}

/// What a policy costs before it does anything: a future of its own around that of the rest, to set up, to poll and to drop.
struct Nothing;

impl Settings for Nothing {}

impl<T: Send, E: Send> Policy<T, E> for Nothing {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        next.call(call).await
    }
}

/// Does it again and again; what comes of it is shown to a black box, and dropped.
fn again<T>(part: impl Fn() -> T + Send + Sync + 'static) -> Work {
    Work::new(move |_, calls| {
        for _ in 0..calls {
            black_box(black_box(&part)());
        }
        calls
    })
}

/// As little as can count in a window of time: ten buckets of a second. Alone, each of its steps would cost less; but here each waits
/// for the one before, and none is for a clock that the system keeps right.
struct Window {
    counter: quanta::Clock,
    /// The time of a tick of the counter, in ns and 2^-64 of them: of one of 3 GHz, which makes no difference to what it costs.
    tick_ns: u64,
    /// Divides by 10^9, with a shift by 29 afterwards.
    per_width: u64,
    /// Divides by the number of buckets, and leaves the rest.
    per_round: u64,
    buckets: [AtomicU64; 10],
}

impl Window {
    fn new(counter: quanta::Clock) -> Window {
        let per_width = (1_u128 << (64 + 29)).div_ceil(1_000_000_000) as u64;
        let (tick_ns, per_round) = (u64::MAX / 3, u64::MAX / 10 + 1);
        Window { counter, tick_ns, per_width, per_round, buckets: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    fn count(&self) -> bool {
        let high = |one: u64, other: u64| ((u128::from(one) * u128::from(other)) >> 64) as u64;
        let nanos = high(self.counter.raw(), self.tick_ns);
        let second = high(nanos, self.per_width) >> 29;
        let slot = high(second.wrapping_mul(self.per_round), self.buckets.len() as u64);
        add_one(&self.buckets[slot as usize])
    }
}

fn add_one(word: &AtomicU64) -> bool {
    let now = word.load(Ordering::Relaxed);
    word.compare_exchange(now, now + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

fn register_sleep() -> bool {
    let mut sleep = pin!(sleep(Duration::from_secs(1)));
    sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
}
