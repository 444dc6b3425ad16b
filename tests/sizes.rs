//! How large what moves through every call is.

use std::time::Duration;

use steadfast::clock::{Clock, Deadline, Moment};
use steadfast::{
    Attempt, Breaker, Bulkhead, Context, Error, Executor, Keyed, RateLimiter, Retry, Timeout, Verdict, try_do,
};

const WORD: usize = size_of::<usize>();

#[test]
fn an_error_is_small_whatever_the_operations_error() {
    assert!(size_of::<Error<()>>() <= 40);
    assert_eq!(size_of::<Error<[u8; 4096]>>(), size_of::<Error<()>>());
    assert_eq!(size_of::<Error<String>>(), size_of::<Error<()>>());
}

#[test]
fn a_result_is_no_larger_than_its_parts_and_a_tag() {
    assert!(size_of::<Result<(), Error<String>>>() <= size_of::<Error<()>>());
    assert!(size_of::<Result<u64, Error<String>>>() <= size_of::<Error<()>>() + WORD);
}

#[test]
fn what_an_operation_is_given_is_a_few_words() {
    assert!(size_of::<Attempt>() <= 4 * WORD);
    assert!(size_of::<Deadline>() <= 3 * WORD);
    assert_eq!((size_of::<Clock>(), size_of::<Moment>()), (2 * WORD, 8));
    assert!(size_of::<Verdict>() <= 24);
}

#[test]
fn handles_are_one_word_and_contexts_are_small() {
    assert_eq!(size_of::<Executor>(), WORD);
    assert_eq!(size_of::<Executor<(Retry, Timeout)>>(), WORD);
    assert!(size_of::<Context>() <= 6 * WORD);
    assert!(size_of::<Timeout>() <= 3 * WORD);
    assert_eq!((size_of::<RateLimiter>(), size_of::<Keyed<RateLimiter>>()), (2 * WORD, WORD));
    assert_eq!(size_of::<Bulkhead>(), 3 * WORD);
}

#[test]
fn the_future_of_a_run_is_small() {
    let executor = Executor::builder("sizes").policies((Retry::exponential(), Timeout::secs(2))).build().unwrap();
    let plain = Executor::builder("sizes").build().unwrap();
    let operation = |_| async { Ok::<_, [u64; 2]>(7_u64) };
    let through_both = size_of_val(&executor.run(operation));
    let through_none = size_of_val(&plain.run(operation));
    assert!(through_both <= 528, "{through_both}");
    assert!(through_none < through_both, "{through_none}");
}

/// The chain that most executors have, with an error of two words: what the peers need 480 bytes and more for.
#[test]
fn the_future_of_a_run_through_a_breaker_too_is_small() {
    let chain = (Retry::exponential(), Breaker::default(), Timeout::secs(2));
    let executor = Executor::builder("sizes").policies(chain).build().unwrap();
    let small = size_of_val(&executor.run(|_| async { Ok::<_, u64>(7_u64) }));
    let large = size_of_val(&executor.run(|_| async { Ok::<_, [u64; 2]>(7_u64) }));
    let most = 528 + OF_TOKIOS_TEST_UTIL;
    assert!(small <= most && large <= most, "{small}, {large}");
}

/// A run of the standard chain holds its numbers, which may change for others meanwhile.
#[test]
fn the_future_of_a_standard_run_holds_its_numbers_and_no_more() {
    let executor = Executor::standard("sizes").build().unwrap();
    let chain = (Bulkhead::new(1), Timeout::secs(30), Retry::exponential(), Breaker::default(), Timeout::secs(9));
    let parts = Executor::builder("sizes").policies((chain, None::<RateLimiter>)).build().unwrap();
    let standard = size_of_val(&executor.run(|_| async { Ok::<_, u64>(7_u64) }));
    let plain = size_of_val(&parts.run(|_| async { Ok::<_, u64>(7_u64) }));
    assert!(standard <= plain + size_of::<Retry>() + 2 * size_of::<Timeout>() + 8 * WORD, "{standard}, {plain}");
}

#[test]
fn a_run_of_its_own_setup_is_not_much_larger() {
    let cx = Context::new();
    let policies = (Retry::exponential(), Timeout::new(Duration::from_secs(2)));
    let operation = |_| async { Ok::<_, [u64; 2]>(7_u64) };
    let size = size_of_val(&try_do(&cx, operation, &policies));
    assert!(size <= 640, "{size}");
}

/// Tests are built with tokio's `test-util`, which makes its timers, and so every future with a limit, larger by two words.
const OF_TOKIOS_TEST_UTIL: usize = 2 * WORD;
