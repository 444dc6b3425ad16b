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
    let word = AtomicU64::new(0);
    let mutex = Mutex::new(0_u64);
    vec![
        ("the loop that measures the parts below it", again(|| 7_u64)),
        ("`Clock::tokio().now()`", again(move || tokio.now())),
        ("`Clock::fast().now()`", again(move || fast.now())),
        ("`Instant::now()` of std", again(Instant::now)),
        ("`Clock::now()` of quanta", again(move || quanta.now())),
        ("a compare-and-swap, nobody else", again(move || add_one(&word))),
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

fn add_one(word: &AtomicU64) -> bool {
    let now = word.load(Ordering::Relaxed);
    word.compare_exchange(now, now + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

fn register_sleep() -> bool {
    let mut sleep = pin!(sleep(Duration::from_secs(1)));
    sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
}
