//! The waits of whole runs: the arithmetic itself is tested beside it.

use std::collections::HashSet;
use std::time::Duration;

use futures::future::join_all;
use steadfast::error::Kind;
use steadfast::retry::Jitter;
use steadfast::{Executor, Retry, try_do};

use crate::support::{Script, at_rest, err, mins, ms, ok, scenario, secs};

/// The waits of a run whose calls fail at once.
fn waits(retry: Retry, count: u32) -> Vec<Duration> {
    let seen = scenario(move || retry.clone().max_attempts(count + 1)).everywhere([err::<(), _>("down")]);
    assert_eq!(seen.failure().attempts, count + 1);
    between(&seen.calls)
}

fn between(calls: &[Duration]) -> Vec<Duration> {
    calls.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

/// Exponential, without jitter.
fn doubling(base: Duration, cap: Duration) -> Retry {
    Retry::exponential().base(base).cap(cap).jitter(Jitter::None)
}

fn whole_seconds(waits: &[Duration]) -> Vec<u64> {
    waits.iter().map(Duration::as_secs).collect()
}

#[test]
fn each_backoff_waits_in_its_own_way() {
    let none = |retry: Retry| waits(retry.jitter(Jitter::None), 6);
    assert_eq!(none(Retry::fixed(secs(2))), [secs(2); 6]);
    assert_eq!(none(Retry::immediate()), [secs(0); 6]);
    assert_eq!(whole_seconds(&none(Retry::linear(secs(2)))), [2, 4, 6, 8, 10, 12]);
    assert_eq!(whole_seconds(&none(Retry::fibonacci(secs(2)))), [2, 2, 4, 6, 10, 16]);
    let custom = Retry::custom(|n, _| secs(u64::from(n) * u64::from(n)));
    assert_eq!(whole_seconds(&none(custom)), [1, 4, 9, 16, 25, 30], "the cap bounds a custom backoff");
    assert_eq!(none(Retry::exponential()), [200, 400, 800, 1600, 3200, 6400].map(ms));
}

#[test]
fn a_fixed_wait_may_be_longer_than_the_default_cap() {
    assert_eq!(waits(Retry::fixed(mins(5)), 2), [mins(5); 2]);
}

#[test]
fn backoff_pow_wraps_at_64() {
    let retry = Retry::exponential().base(ms(100)).cap(secs(5)).max_jitter(ms(50));
    let waits = waits(retry, 200);
    assert!(waits[6..].iter().all(|wait| (ms(4950)..=secs(5)).contains(wait)), "{waits:?}");
}

#[test]
fn backoff_negative_after_36() {
    let waits = waits(doubling(ms(100), secs(1)), 100);
    assert_eq!(waits[..5], [100, 200, 400, 800, 1000].map(ms));
    assert!(waits[5..].iter().all(|wait| *wait == secs(1)));
}

#[test]
fn cap_applied_after_overflow() {
    let capped = waits(doubling(secs(1), secs(30)), 70);
    assert!(capped[32..].iter().all(|wait| *wait == secs(30)));
    let uncapped = waits(doubling(secs(1), Duration::MAX), 33);
    assert!(uncapped.windows(2).all(|pair| pair[1] == 2 * pair[0]));
    assert_eq!(uncapped[32], secs(1 << 32));
}

#[test]
fn fibonacci_and_wrapped_cap() {
    let fibonacci = Retry::fibonacci(secs(1)).cap(secs(60)).jitter(Jitter::None);
    for retry in [fibonacci, doubling(secs(1), secs(60))] {
        let waits = waits(retry, 199);
        let capped = waits.iter().position(|wait| *wait == secs(60)).unwrap();
        assert!(waits[..capped].iter().all(|wait| *wait < secs(60)));
        assert!(waits[capped..].iter().all(|wait| *wait == secs(60)));
    }
}

#[test]
fn hot_loop_after_an_hour() {
    let mut steps = vec![err("down"); 199];
    steps.push(ok(()));
    let seen = scenario(|| doubling(ms(250), mins(1)).unlimited()).everywhere(steps);
    assert_eq!(seen.result, Ok(()));
    assert_eq!(seen.took, ms(63_750) + 191 * mins(1));
    assert!(between(&seen.calls)[8..].iter().all(|wait| *wait == mins(1)));
}

#[test]
fn u32_multiply_overflow() {
    let waits = waits(doubling(secs(1), secs(30)).factor(2.0), 65);
    assert_eq!((waits[32], waits[64]), (secs(30), secs(30)));
}

#[test]
fn overflow_path_forgets_cap() {
    let mut steps = vec![err("down"); 1000];
    steps.push(ok(()));
    let seen = scenario(|| doubling(secs(2), mins(5)).max_attempts(u32::MAX)).everywhere(steps);
    assert_eq!(between(&seen.calls)[999], mins(5));
}

#[test]
fn zero_base_becomes_cap() {
    assert!(waits(doubling(secs(0), secs(60)), 1100).iter().all(Duration::is_zero));
}

#[test]
fn timer_clamp_turns_long_into_now() {
    let growing = waits(doubling(secs(1), Duration::MAX).factor(10.0), 8);
    assert_eq!(growing[7], secs(10_000_000), "116 days");
    let three_years = secs(3 * 365 * 24 * 3600);
    assert_eq!(waits(Retry::fixed(three_years), 3), [three_years; 3]);
}

#[test]
fn min_above_max() {
    for jitter in [Jitter::None, Jitter::Full] {
        let retry = doubling(secs(10), secs(5)).jitter(jitter);
        assert_eq!(retry.check().unwrap_err().field(), "base");
        let built = Executor::builder("min_above_max").policies(retry.clone()).build();
        assert_eq!(built.unwrap_err().field(), "base");
        let (clock, cx) = at_rest();
        let script = Script::new(&clock, [ok::<_, ()>(())]);
        let error = clock.block_on(try_do(&cx, |_| script.call_plain(), retry)).unwrap_err();
        assert_eq!(error.kind(), Kind::Misconfigured);
        assert_eq!(script.calls(), []);
    }
}

#[test]
fn wrong_bound_used() {
    let spread = waits(Retry::fixed(ms(50)).jitter(Jitter::Full).max_jitter(ms(40)), 1000);
    assert!(spread.iter().all(|wait| (ms(10)..=ms(50)).contains(wait)));
    assert!(spread.iter().any(|wait| *wait > ms(40)) && spread.iter().any(|wait| *wait < ms(20)));
    assert_eq!(waits(doubling(ms(100), secs(1)), 5), [100, 200, 400, 800, 1000].map(ms));
}

#[test]
fn unlimited_attempts_precomputed() {
    for retry in [Retry::immediate().unlimited(), Retry::immediate().max_attempts(u32::MAX)] {
        let mut steps = vec![err("down"); 9_999];
        steps.push(ok("up"));
        let seen = scenario(move || retry.clone()).everywhere(steps);
        assert_eq!((seen.result, seen.calls.len()), (Ok("up"), 10_000));
    }
}

#[test]
fn jitter_exceeds_cap() {
    let retry = Retry::exponential().base(ms(100)).cap(ms(500));
    let drawn = waits(retry.jitter(Jitter::Proportional(0.5)), 5_000);
    assert!(drawn.iter().all(|wait| *wait <= ms(500)));
    assert!(drawn[3..].iter().all(|wait| *wait >= ms(250)));
    assert!(drawn[3..].iter().any(|wait| *wait > ms(490)) && drawn[3..].iter().any(|wait| *wait < ms(260)));
}

#[test]
fn jitter_tied_to_min_delay() {
    let drawn = waits(Retry::exponential().base(ms(100)).cap(secs(60)), 1_020);
    let (least, most) = (drawn[20..].iter().min().unwrap(), drawn[20..].iter().max().unwrap());
    assert!(*most - *least >= secs(10), "{least:?} to {most:?}");
}

#[test]
fn every_jitter_keeps_to_its_range_in_a_run() {
    let drawn = |jitter| waits(Retry::fixed(ms(100)).jitter(jitter), 500);
    let within = |waits: &[Duration], least, most| waits.iter().all(|wait| (least..=most).contains(wait));
    assert!(within(&drawn(Jitter::Full), ms(0), ms(100)));
    assert!(within(&drawn(Jitter::Equal), ms(50), ms(100)));
    assert!(within(&drawn(Jitter::Proportional(0.2)), ms(80), ms(100)));
    let decorrelated = waits(Retry::decorrelated().base(ms(10)).cap(secs(1)), 500);
    assert!(within(&decorrelated, ms(10), secs(1)));
    let growth = |pair: &[Duration]| pair[1] <= 3 * pair[0].max(ms(10));
    assert!(decorrelated.windows(2).all(growth));
}

#[test]
fn an_inner_retry_begins_anew_with_each_try_of_an_outer_one() {
    let inner = || Retry::decorrelated().base(ms(10)).cap(secs(60)).max_attempts(10);
    let chain = move || (Retry::immediate().max_attempts(50), inner());
    let seen = scenario(chain).everywhere([err::<(), _>("down")]);
    let waits = between(&seen.calls);
    let first_waits = waits.chunks(10).map(|life| life[0]);
    assert!(first_waits.clone().all(|wait| (ms(10)..=ms(30)).contains(&wait)), "{:?}", first_waits.max());
    assert!(waits.iter().any(|wait| *wait > ms(500)), "each of them grows");
}

#[test]
fn jitter_shared_between_runs() {
    let retry = Retry::exponential().base(secs(1)).cap(Duration::MAX).max_attempts(8);
    let (clock, _) = at_rest();
    let executor = |seed| {
        let builder = Executor::builder("shared").policies(retry.clone()).unbudgeted();
        builder.clock(&clock).seed(seed).build().unwrap()
    };
    let (first, second) = (executor(1), executor(2));
    let clone = first.clone();
    let scripts: Vec<_> = (0..50).map(|_| Script::new(&clock, [err::<(), _>("down")])).collect();
    let runs = scripts.iter().enumerate().map(|(n, script)| {
        let executor = [&first, &second, &clone][n % 3];
        executor.run(|_| script.call_plain())
    });
    let results = clock.block_on(join_all(runs));
    assert!(results.iter().all(|result| result.as_ref().is_err_and(|error| error.attempts() == 8)));

    let sequences: HashSet<Vec<Duration>> = scripts.iter().map(|script| between(&script.calls())).collect();
    assert_eq!(sequences.len(), 50, "pairwise different");
    let first_waits: Vec<Duration> = sequences.iter().map(|waits| waits[0]).collect();
    assert!(first_waits.iter().all(|wait| *wait <= secs(1)));
    assert!(first_waits.iter().any(|wait| *wait < ms(200)) && first_waits.iter().any(|wait| *wait > ms(800)));
}

#[test]
fn equal_seeds_give_equal_waits_and_runs_of_one_executor_do_not_repeat() {
    let waits_of = |seed| {
        let (clock, _) = at_rest();
        let builder = Executor::builder("seeded").policies(Retry::exponential().max_attempts(5));
        let executor = builder.clock(&clock).seed(seed).build().unwrap();
        [executor.clone(), executor].map(|executor| {
            let script = Script::new(&clock, [err::<(), _>("down")]);
            clock.block_on(executor.run(|_| script.call_plain())).unwrap_err();
            between(&script.calls())
        })
    };
    let [first, second] = waits_of(7);
    assert_ne!(first, second);
    assert_eq!(waits_of(7), [first.clone(), second]);
    assert_ne!(waits_of(8)[0], first);
}

#[test]
fn clones_of_a_seeded_context_do_not_repeat_each_other() {
    let (clock, cx) = at_rest();
    let cx = cx.with_seed(3);
    let waits = [cx.clone(), cx].map(|cx| {
        let script = Script::new(&clock, [err::<(), _>("down")]);
        clock.block_on(try_do(&cx, |_| script.call_plain(), Retry::exponential())).unwrap_err();
        between(&script.calls())
    });
    assert_ne!(waits[0], waits[1]);
}
