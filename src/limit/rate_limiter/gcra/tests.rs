use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn start() -> Moment {
    Moment::from_nanos(24 * 3600 * 1_000_000_000)
}

fn rate(tokens: u64, period: Duration, burst: u64) -> Rate {
    Rate::new(tokens, period, burst).expect("a rate that can work")
}

/// As in the first era.
fn mark(now: Moment) -> Mark {
    Mark::new(now, 0)
}

/// A bucket for one caller after another.
struct Bucket(Balance, Rate);

impl Bucket {
    fn new(rate: Rate) -> Bucket {
        Bucket(Balance::UNUSED, rate)
    }

    /// The wait, or `None` if the tokens were taken.
    fn take(&mut self, now: Moment, weight: u64) -> Option<Duration> {
        let taken = take(self.0, self.1, mark(now), weight);
        let answer = ask(self.0, self.1, mark(now), 0, weight);
        assert_eq!(taken.map(Answer::Now), Some(answer).filter(|answer| matches!(answer, Answer::Now(_))));
        match answer {
            Answer::Now(next) => {
                self.0 = next;
                None
            }
            Answer::SteppedBack => {
                self.0 = Balance::owing(mark(now), self.1.burst);
                self.take(now, weight)
            }
            Answer::After(wait) => Some(wait),
            Answer::Never => Some(Duration::MAX),
        }
    }
}

#[test]
fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
    let mut bucket = Bucket::new(rate(10, SECOND, 3));
    let taken = (0..10).take_while(|_| bucket.take(start(), 1).is_none()).count();
    assert_eq!(taken, 3);
    assert_eq!(bucket.take(start(), 1), Some(Duration::from_millis(100)));
    assert_eq!(bucket.take(start(), 3), Some(Duration::from_millis(300)));
    assert_eq!(bucket.take(start() + Duration::from_millis(99), 1), Some(Duration::from_millis(1)));
    assert_eq!(bucket.take(start() + Duration::from_millis(100), 1), None);
}

#[test]
fn a_pause_fills_no_more_than_the_bucket() {
    let mut bucket = Bucket::new(rate(10, SECOND, 3));
    assert_eq!(bucket.take(start(), 3), None);
    let later = start() + 3600 * SECOND;
    let taken = (0..10).take_while(|_| bucket.take(later, 1).is_none()).count();
    assert_eq!(taken, 3);
}

#[test]
fn more_than_the_burst_is_never_there() {
    let mut bucket = Bucket::new(rate(10, SECOND, 3));
    assert_eq!(ask(bucket.0, bucket.1, mark(start()), 0, 4), Answer::Never);
    assert_eq!(ask(bucket.0, bucket.1, mark(start()), 0, u64::MAX), Answer::Never);
    assert_eq!(bucket.take(start(), 3), None, "and that it was asked has changed nothing");
}

/// Case `float-rounding-starves`.
#[test]
fn the_wait_that_is_named_is_always_enough_and_never_too_long() {
    for (tokens, period) in [(3, SECOND), (7, SECOND), (1, 10 * SECOND), (1, 86_400 * SECOND), (1_000_000, SECOND)] {
        let mut bucket = Bucket::new(rate(tokens, period, 1));
        let (mut now, begun) = (start(), start());
        assert_eq!(bucket.take(now, 1), None);
        for _ in 0..10_000 {
            let wait = bucket.take(now, 1).expect("the burst is 1");
            let early = now + wait.saturating_sub(Duration::from_nanos(1));
            assert!(bucket.take(early, 1).is_some(), "a nanosecond less is not enough");
            now = now + wait;
            assert_eq!(bucket.take(now, 1), None);
        }
        let (took, ideal) = (now.since(begun).as_secs_f64(), period.as_secs_f64() / tokens as f64 * 10_000.0);
        assert!((took / ideal - 1.0).abs() < 0.001, "{tokens} in {period:?}: {took} s instead of {ideal} s");
    }
}

/// Case `wait-hint-explodes-on-clock-skew`.
#[test]
fn a_clock_that_steps_back_costs_a_burst_at_most() {
    let rate = rate(2_000, SECOND, 5_000);
    let mut bucket = Bucket::new(rate);
    let now = start() + 2_000 * SECOND;
    for call in 0..8 {
        let older = Moment::from_nanos(now.nanos() - 500 * call);
        assert_eq!(bucket.take(older, 1), None, "somewhat older readings are no harm");
    }
    let back = start() + 109 * SECOND;
    let wait = bucket.take(back, 1).expect("it begins anew with an empty bucket");
    assert!(wait <= 2_500 * SECOND / 1_000, "{wait:?}");
    let refilled = back + SECOND;
    let taken = (0..10_000).take_while(|_| bucket.take(refilled, 1).is_none()).count();
    assert_eq!(taken, 2_000);
}

#[test]
fn one_reading_far_ahead_costs_a_burst_at_most() {
    let mut bucket = Bucket::new(rate(10, SECOND, 5));
    assert_eq!(bucket.take(start() + 10_000_000 * SECOND, 1), None);
    assert_eq!(bucket.take(start(), 1), Some(Duration::from_millis(100)));
    assert_eq!(bucket.take(start() + SECOND / 2, 5), None);
}

#[test]
fn a_small_step_back_is_time_that_stands_still() {
    let mut bucket = Bucket::new(rate(10, SECOND, 5));
    assert_eq!(bucket.take(start() + SECOND / 2, 5), None);
    assert_eq!(bucket.take(start(), 1), Some(Duration::from_millis(100)), "no more than a full debt");
    assert_eq!(bucket.take(start() + SECOND / 2, 1), Some(Duration::from_millis(100)));
    assert_eq!(bucket.take(start() + SECOND, 5), None);
}

#[test]
fn any_clock_will_do_for_a_bucket_that_was_never_used() {
    for nanos in [0, 1, u64::MAX / 16, u64::MAX / 16 + 1, u64::MAX / 8, u64::MAX / 2, u64::MAX - 1] {
        let mut bucket = Bucket::new(rate(10, SECOND, 5));
        let now = Moment::from_nanos(nanos);
        assert_eq!(bucket.take(now, 5), None, "{nanos}");
        assert_eq!(bucket.take(now, 1), Some(Duration::from_millis(100)), "{nanos}");
        if nanos < u64::MAX / 2 {
            assert_eq!(bucket.take(now + SECOND / 10, 1), None, "{nanos}");
        }
    }
}

#[test]
fn a_new_rate_keeps_the_tokens_as_far_as_it_holds_them() {
    let (old, now) = (rate(10, SECOND, 10), start());
    let mut bucket = Bucket::new(old);
    assert_eq!(bucket.take(now, 4), None);
    for (new, left) in
        [(rate(100, SECOND, 100), 6), (rate(1, SECOND, 10), 6), (rate(10, SECOND, 3), 3), (rate(10, SECOND, 1), 1)]
    {
        let debt = bucket.0.converted(old, new, mark(now));
        let mut changed = Bucket(Balance::owing(mark(now), debt), new);
        let taken = (0..200).take_while(|_| changed.take(now, 1).is_none()).count();
        assert_eq!(taken, left, "{new:?}");
    }
    assert_eq!(Balance::UNUSED.converted(old, rate(1, SECOND, 50), mark(now)), 0, "a full bucket of any size");
}

#[test]
fn a_bucket_that_was_never_used_has_another_balance_after_each_change() {
    let now = start();
    let mut balances: Vec<_> =
        std::iter::successors(Some(Balance::UNUSED), |last| Some(last.next_unused())).take(1_000).collect();
    assert!(
        balances.iter().all(|balance| balance.is_unused() && !balance.is_waiting() && balance.debt(mark(now)) == 0)
    );
    balances.dedup();
    assert_eq!(balances.len(), 1_000);
    assert!(balances.is_sorted_by_key(|balance| balance.0), "none comes again");
    let last = Balance((UNUSED_BALANCES - 1) << WAITING_BITS);
    assert!(last.is_unused() && last.next_unused() == Balance::UNUSED);
    assert!(!Balance::owing(Mark(0), 0).is_unused(), "one that was used is told apart wherever the clock is");
}

/// Whatever the debt before and after, and wherever the clock is.
#[test]
fn the_first_balance_of_an_era_is_later_than_all_before_it() {
    let second = 1_000_000_000 * UNITS_PER_NANO;
    let (mut era, mut last) = (0, Balance::owing(mark(start()), 9 * second));
    for (at, debt) in [(0, 1), (0, 9), (0, 9), (1, 0), (100, 3), (50, 0), (0, 100), (1_000, 0)] {
        let now = start() + SECOND * at;
        era = last.next_era(now, era, debt * second);
        let next = Balance::owing(Mark::new(now, era), debt * second);
        assert_eq!(next.debt(Mark::new(now, era)), debt * second);
        assert!(next.0 > last.0, "{at} {debt}");
        last = next;
    }
}

proptest! {
    /// In any stretch of time no more are admitted than the burst and what the rate gives, by a clock that may step.
    #[test]
    fn it_never_over_admits(
        tokens in 1_u64..2_000,
        period_ms in 1_u64..5_000,
        burst in 1_u64..50,
        steps in prop::collection::vec((0_u64..200_000_000, 1_u64..8, -3_000_000_000_i64..3_000_000_000, any::<u8>()), 1..300),
    ) {
        let period = Duration::from_millis(period_ms);
        let limit = rate(tokens, period, burst);
        let mut bucket = Bucket::new(limit);
        // The true time, and how far the clock is off.
        let (mut now, mut off) = (0_u64, 0_i64);
        let mut admitted: Vec<(u64, u64)> = Vec::new();
        for (pause, weight, step, luck) in steps {
            now += pause;
            // A step ahead is time that has passed, as far as anybody can tell.
            if luck < 10 && step < 0 { off += step; }
            let reading = start() + Duration::from_nanos((now as i64 + off + 1_000_000_000_000) as u64);
            let weight = weight.min(burst);
            if bucket.take(reading, weight).is_none() {
                admitted.push((now, weight));
            }
        }
        for (first, (from, _)) in admitted.iter().enumerate() {
            let mut sum = 0;
            for (to, weight) in &admitted[first..] {
                sum += weight;
                let earned = (to - from) as f64 * tokens as f64 / period.as_nanos() as f64;
                prop_assert!(sum as f64 <= burst as f64 + earned + 1e-6, "{sum} in {} ns", to - from);
            }
        }
    }

    /// Who comes back after the wait that was named is admitted, if nobody else came.
    #[test]
    fn the_named_wait_is_exact(
        tokens in 1_u64..1_000_000_000,
        period_ns in 1_000_000_000_u64..100_000_000_000,
        burst in 1_u64..1_000,
        takes in prop::collection::vec((1_u64..1_000, 0_u64..10_000_000), 1..50),
    ) {
        let limit = rate(tokens, Duration::from_nanos(period_ns), burst);
        let mut bucket = Bucket::new(limit);
        let mut now = start();
        for (weight, pause) in takes {
            let weight = weight.min(burst);
            if let Some(wait) = bucket.take(now, weight) {
                prop_assert!(wait > Duration::ZERO);
                let early = now + (wait - Duration::from_nanos(1));
                prop_assert!(bucket.take(early, weight).is_some());
                now = now + wait;
                prop_assert_eq!(bucket.take(now, weight), None);
            }
            now = now + Duration::from_nanos(pause);
        }
    }
}
