use std::time::Duration;

use super::config::BreakerConfig;
use crate::clock::Moment;

/// How long a breaker stays open, each time it opens. Pure decisions; the owner holds the lock.
///
/// With a backoff the n-th opening in a row lasts `open_for * factor^(n - 1)`, at most the cap; openings are in a row
/// until the breaker has been closed for a whole healthy window. Jitter then takes away up to its share, so that the cap is
/// the last word and the breakers of many processes do not send their trials together.
#[derive(Debug)]
pub(super) struct OpenTimes {
    /// Openings in a row, before the next one.
    in_a_row: u32,
    closed_since: Option<Moment>,
    /// What the jitter of the next opening will be, from `[0, 1)`. Drawn beforehand, so that how long an expired trial
    /// keeps the breaker open is known before anybody makes that change.
    draw: f64,
}

impl OpenTimes {
    pub(super) fn new(config: &BreakerConfig) -> OpenTimes {
        OpenTimes { in_a_row: 0, closed_since: None, draw: config.draw_jitter() }
    }

    /// The breaker opens at `at`.
    pub(super) fn open(&mut self, config: &BreakerConfig, at: Moment) -> Duration {
        let time = self.next(config, at);
        if self.was_healthy(config, at) {
            self.in_a_row = 0;
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.closed_since = None;
        self.draw = config.draw_jitter();
        time
    }

    /// For how long the breaker would open at `at`.
    pub(super) fn next(&self, config: &BreakerConfig, at: Moment) -> Duration {
        let before = if self.was_healthy(config, at) { 0 } else { self.in_a_row };
        jittered(grown(config, before), config.open_jitter, self.draw)
    }

    /// The breaker, which is open, begins to be so anew: for as long as it was meant to.
    pub(super) fn again(&mut self, config: &BreakerConfig) -> Duration {
        let time = jittered(grown(config, self.in_a_row.saturating_sub(1)), config.open_jitter, self.draw);
        self.draw = config.draw_jitter();
        time
    }

    /// The breaker enters another state than open: one in which it lets calls through and counts them, or not.
    pub(super) fn enter(&mut self, is_counting: bool, at: Moment) {
        self.closed_since = if is_counting { self.closed_since.or(Some(at)) } else { None };
    }

    /// The next opening is the first.
    pub(super) fn reset(&mut self) {
        self.in_a_row = 0;
    }

    /// Whether the next opening would not be the first.
    pub(super) fn are_in_a_row(&self, config: &BreakerConfig, at: Moment) -> bool {
        self.in_a_row > 0 && !self.was_healthy(config, at)
    }

    fn was_healthy(&self, config: &BreakerConfig, at: Moment) -> bool {
        self.closed_since.is_some_and(|since| at.since(since) >= config.healthy_window())
    }
}

/// The open time after so many openings in a row.
fn grown(config: &BreakerConfig, before: u32) -> Duration {
    let Some(backoff) = config.open_backoff else { return config.open_for };
    let exponent = i32::try_from(before).unwrap_or(i32::MAX);
    let seconds = config.open_for.as_secs_f64() * backoff.factor.powi(exponent);
    // What does not fit into a duration is beyond any cap.
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX).min(backoff.cap)
}

/// For ever stays for ever.
fn jittered(time: Duration, jitter: f64, draw: f64) -> Duration {
    if time == Duration::MAX || jitter == 0.0 {
        return time;
    }
    let seconds = time.as_secs_f64() * (1.0 - jitter * draw);
    Duration::try_from_secs_f64(seconds).unwrap_or(time).clamp(Duration::from_nanos(1), time)
}

#[cfg(all(test, not(steadfast_loom)))]
mod tests {
    use super::*;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn at(second: u64) -> Moment {
        Moment::from_nanos(0) + seconds(second)
    }

    fn config() -> BreakerConfig {
        BreakerConfig::default().open_for(seconds(60)).open_backoff(2.0, seconds(300))
    }

    /// `open-time-does-not-grow`
    #[test]
    fn the_open_time_doubles_up_to_the_cap_and_starts_again_after_health() {
        let config = config();
        let mut times = OpenTimes::new(&config);
        let grown = [(); 6].map(|()| times.open(&config, at(0)).as_secs());
        assert_eq!(grown, [60, 120, 240, 300, 300, 300]);
        times.in_a_row = u32::MAX;
        assert_eq!(times.open(&config, at(0)), seconds(300));
        times.enter(true, at(1_000));
        assert_eq!(times.next(&config, at(1_009)), seconds(300), "not healthy for a window yet");
        assert_eq!(times.open(&config, at(1_000 + 3_600)), seconds(60));
        assert_eq!(times.open(&config, at(1_000 + 3_700)), seconds(120));
    }

    #[test]
    fn another_factor_grows_at_its_own_pace() {
        let config = BreakerConfig::default().open_for(seconds(5)).open_backoff(1.5, Duration::MAX);
        let mut times = OpenTimes::new(&config);
        let millis = [(); 3].map(|()| times.open(&config, at(0)).as_millis());
        assert_eq!(millis, [5_000, 7_500, 11_250]);
        times.in_a_row = u32::MAX;
        assert_eq!(times.open(&config, at(0)), Duration::MAX);
    }

    #[test]
    fn what_was_foretold_is_what_happens() {
        let config = config().open_jitter(0.5).seed(7);
        let mut times = OpenTimes::new(&config);
        for second in 0..100 {
            let foretold = times.next(&config, at(second));
            assert_eq!(times.open(&config, at(second)), foretold);
        }
    }

    #[test]
    fn jitter_takes_away_up_to_its_share() {
        let config = BreakerConfig::default().open_for(seconds(100)).open_jitter(0.2).seed(1);
        let mut times = OpenTimes::new(&config);
        let all = (0..1_000).map(|_| times.open(&config, at(0)).as_secs_f64()).collect::<Vec<_>>();
        assert!(all.iter().all(|time| (80.0..=100.0).contains(time)));
        let mean = all.iter().sum::<f64>() / 1_000.0;
        assert!((89.0..91.0).contains(&mean), "{mean}");
    }

    #[test]
    fn the_extremes_do_not_panic() {
        let ends = [Duration::from_nanos(1), Duration::MAX];
        for open_for in ends {
            for cap in ends {
                let config = BreakerConfig::default().open_for(open_for).open_backoff(f64::MAX, cap).open_jitter(1.0);
                let mut times = OpenTimes::new(&config);
                for _ in 0..3 {
                    assert!(times.open(&config, Moment::NEVER) > Duration::ZERO);
                }
            }
        }
    }
}
