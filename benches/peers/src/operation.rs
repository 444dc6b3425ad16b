//! What is called: the dependency, the same for all subjects, in the moods that the cases need.

use std::cell::Cell;
use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::hint::black_box;
use std::task::Poll;

use crate::harness::poll_each;

/// The error of the dependency.
#[derive(Clone, Copy, Debug)]
pub struct Failure;

/// Answers at once.
pub async fn succeed() -> Result<u64, Failure> {
    Ok(black_box(7))
}

/// Answers when it is polled again.
pub async fn pending_once() -> Result<u64, Failure> {
    let mut polled = false;
    poll_fn(move |cx| {
        if polled {
            return Poll::Ready(Ok(black_box(7)));
        }
        polled = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

/// Fails every tenth time.
pub async fn fail_every_tenth() -> Result<u64, Failure> {
    if count_to(&TENTHS, 10) { Err(Failure) } else { Ok(black_box(7)) }
}

/// Fails twice and then succeeds.
pub async fn succeed_every_third() -> Result<u64, Failure> {
    if count_to(&THIRDS, 3) { Ok(black_box(7)) } else { Err(Failure) }
}

/// Answers at once, and fails inside of [`trip`].
pub async fn succeed_unless_down() -> Result<u64, Failure> {
    if DOWN.get() { Err(Failure) } else { Ok(black_box(7)) }
}

/// Makes calls while the dependency is down, more than any breaker here needs to open. An open breaker is the only reason why
/// calls are refused afterwards: the dependency is up again.
pub fn trip<T, E, F: Future<Output = Result<T, E>>>(call: impl FnMut() -> F) {
    DOWN.set(true);
    let succeeded = poll_each(ENOUGH_TO_OPEN, call);
    DOWN.set(false);
    assert_eq!(succeeded, 0, "a dependency that is down answered");
}

/// The number of the next of so many keys: all of them in turn, in an order in which neighbours do not follow each other.
pub fn next_key() -> usize {
    let next = (KEY.get() + KEY_STEP) % KEYS;
    KEY.set(next);
    next
}

/// Whether this is the last of `n` calls on this thread.
fn count_to(counter: &'static std::thread::LocalKey<Cell<u32>>, n: u32) -> bool {
    let next = counter.get() + 1;
    counter.set(if next == n { 0 } else { next });
    next == n
}

thread_local! {
    static TENTHS: Cell<u32> = const { Cell::new(0) };
    static THIRDS: Cell<u32> = const { Cell::new(0) };
    static DOWN: Cell<bool> = const { Cell::new(false) };
    static KEY: Cell<usize> = const { Cell::new(0) };
}

pub const KEYS: usize = 10_000;

/// Prime to the number of keys.
const KEY_STEP: usize = 7_919;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the dependency failed")
    }
}

impl Error for Failure {}

const ENOUGH_TO_OPEN: u64 = 200;
