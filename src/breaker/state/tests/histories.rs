//! The breaker beside the model, over random histories: everything that can be seen is compared after every step.

use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, RngSeed};

use super::listening::{Log, entries, logging};
use super::model::{Admitted, Command, Model, Setting};
use super::*;
use crate::verdict::Verdict;

proptest! {
    #![proptest_config(Config {
        // Miri is some hundred times slower than the machine.
        cases: if cfg!(miri) { 8 } else { 12_000 },
        rng_seed: RngSeed::Fixed(7),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::default()
    })]

    #[test]
    fn every_history_goes_as_in_the_model(
        setting in settings(),
        start in prop_oneof![Just(0), 0..SECOND, Just(86_400 * SECOND)],
        history in histories(),
    ) {
        let mut pair = Pair::new(setting, start);
        for step in history {
            pair.take(step)?;
            pair.compare()?;
        }
        pair.compare_transitions()?;
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A call that ends at once; whether it counts as slow.
    Call(End, bool),
    Acquire(Option<u64>),
    Settle(Index, End, bool),
    /// The call is never heard of again.
    Forget(Index),
    Record(End),
    /// So many thousandths of a bucket pass.
    Pass(u64),
    /// So many nanoseconds pass.
    Wait(u64),
    GoBack(u64),
    Obey(Command),
    /// New settings; whether they have the windows of the old ones.
    Reconfigure(Box<Setting>, bool),
}

struct Pair {
    core: Core,
    model: Model,
    log: Log,
    running: Vec<(Ticket, Admitted)>,
    now: u64,
    latest: u64,
}

impl Pair {
    fn new(setting: Setting, start: u64) -> Self {
        let (config, log) = logging(config(&setting).seed(SEED));
        assert_eq!(config.check(), Ok(()));
        let (core, model) = (breaker(config), Model::new(setting, SEED));
        Pair { core, model, log, running: Vec::new(), now: start, latest: start }
    }

    fn moment(&self) -> Moment {
        Moment::from_nanos(self.now)
    }

    fn take(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Call(end, slow) => {
                if self.acquire(None)? {
                    self.settle(self.running.len() - 1, end, slow);
                }
            }
            Step::Acquire(limit) => drop(self.acquire(limit)?),
            Step::Settle(which, end, slow) if !self.running.is_empty() => {
                self.settle(which.index(self.running.len()), end, slow);
            }
            Step::Forget(which) if !self.running.is_empty() => {
                self.running.swap_remove(which.index(self.running.len()));
            }
            Step::Settle(..) | Step::Forget(_) => {}
            Step::Record(end) => {
                self.core.record(end, self.moment());
                self.model.record(end, self.now);
            }
            Step::Pass(_) | Step::Wait(_) | Step::GoBack(_) => self.move_clock(&step),
            Step::Obey(command) => {
                obey(&self.core, command, self.moment());
                self.model.obey(command, self.now);
            }
            Step::Reconfigure(next, same_windows) => self.reconfigure(*next, same_windows)?,
        }
        Ok(())
    }

    fn move_clock(&mut self, step: &Step) {
        let Setting { width, buckets, .. } = self.model.setting;
        match *step {
            Step::Pass(thousandths) => self.now = self.now.saturating_add(width / 1_000 * thousandths),
            Step::Wait(time) => self.now = self.now.saturating_add(time),
            // Within the three windows that generations are apart at least.
            Step::GoBack(time) => {
                self.now = self.now.saturating_sub(time).max(self.latest.saturating_sub(2 * buckets * width));
            }
            _ => {}
        }
        self.now = self.now.min(END_OF_TIME);
        self.latest = self.latest.max(self.now);
    }

    fn acquire(&mut self, limit: Option<u64>) -> Result<bool, TestCaseError> {
        let answer = self.core.try_acquire(|| self.moment(), || limit.map(Duration::from_nanos));
        let expected = self.model.acquire(self.now, limit);
        let seen = answer.map(Ticket::is_trial).map_err(|refused| (refused.retry_after, refused.is_pause));
        let nanos = |(left, is_pause): (Option<u64>, bool)| (left.map(Duration::from_nanos), is_pause);
        prop_assert_eq!(seen, expected.map(|its| its.1).map_err(nanos));
        self.running.extend(answer.ok().zip(expected.ok()));
        Ok(answer.is_ok())
    }

    fn settle(&mut self, index: usize, end: End, slow: bool) {
        let (ticket, admitted) = self.running.swap_remove(index);
        let slow = slow && self.core.needs().start();
        if slow {
            self.core.settle_slow(ticket, end, self.moment());
        } else {
            self.core.settle(ticket, end, self.moment());
        }
        self.model.settle(admitted, end, slow, self.now);
    }

    fn reconfigure(&mut self, mut next: Setting, same_windows: bool) -> Result<(), TestCaseError> {
        if same_windows {
            let present = &self.model.setting;
            (next.buckets, next.width) = (present.buckets, present.width);
            next.of_calls = present.of_calls.map(|(size, percent, minimum)| {
                next.of_calls
                    .map_or((size, percent, minimum), |(_, percent, minimum)| (size, percent, minimum.min(size)))
            });
            if !present.has_window() {
                (next.percent, next.slow_percent, next.most_failures) = (None, None, None);
                next.in_a_row = if next.of_calls.is_none() { next.in_a_row.or(Some(3)) } else { next.in_a_row };
            } else if !next.has_window() {
                next.percent = Some(50);
            }
        }
        let taken = self.core.family().reconfigure(config(&next)).is_ok();
        prop_assert_eq!(taken, self.model.reconfigure(next));
        Ok(())
    }

    fn compare(&self) -> Result<(), TestCaseError> {
        let (state, left) = self.model.outlook(self.now);
        let left = if left == u64::MAX { Duration::MAX } else { Duration::from_nanos(left) };
        prop_assert_eq!(self.core.state(self.moment()), state);
        prop_assert_eq!(self.core.remaining_open(self.moment()), left);
        prop_assert_eq!(self.core.counts(self.moment()), self.model.counts(self.now));
        Ok(())
    }

    fn compare_transitions(&self) -> Result<(), TestCaseError> {
        let told = entries(&self.log).into_iter();
        let told = told.map(|told| (told.from, told.to, told.cause, told.at, told.open_for));
        prop_assert_eq!(told.collect::<Vec<_>>(), &self.model.log[..]);
        Ok(())
    }
}

fn obey(core: &Core, command: Command, now: Moment) {
    match command {
        Command::ForceOpen => core.force_open(now),
        Command::ForceClose => core.force_close(now),
        Command::Reset => core.reset(now),
        Command::Isolate => core.isolate(now),
        Command::Disable => core.disable(now),
        Command::MetricsOnly => core.metrics_only(now),
        Command::Release => core.release(now),
    }
}

fn config(setting: &Setting) -> BreakerConfig {
    let nanos = Duration::from_nanos;
    let mut config = BreakerConfig::default()
        .rule(rule(setting))
        .open_for(nanos(setting.open))
        .open_jitter(setting.jitter)
        .trials(setting.trials as u32)
        .successes_to_close(setting.successes as u32);
    if let Some((factor, cap)) = setting.backoff {
        config = config.open_backoff(factor as f64, nanos(cap));
    }
    if let Some((trials, percent)) = setting.trial_percent {
        config = config.trial_rate(trials as u32, percent as f64 / 100.0);
    }
    if let Some(deadline) = setting.deadline {
        config = config.trial_deadline(nanos(deadline));
    }
    if let Some(release) = setting.release {
        config = config.abandoned_trial(if release { AbandonedTrial::Release } else { AbandonedTrial::Reopen });
    }
    if let Some(most) = setting.pause {
        config = config.pause_on_retry_after(nanos(most));
    }
    if let Some(verdict) = setting.throttled_as {
        config = config.throttled_as(verdict);
    }
    config
}

fn rule(setting: &Setting) -> TripRule {
    let share = |percent: u64| percent as f64 / 100.0;
    let most = setting.most_failures;
    let of_time = [
        setting.percent.map(|percent| TripRule::failure_rate(share(percent))),
        setting.slow_percent.map(|percent| TripRule::slow_rate(share(percent))),
        most.map(|most| TripRule::should_trip(move |counts| counts.failures >= most)),
    ];
    let of_time = of_time.into_iter().flatten().map(|rule| {
        rule.window(setting.buckets as u32, Duration::from_nanos(setting.width)).minimum_calls(setting.minimum as u32)
    });
    let of_calls = setting.of_calls.map(|(calls, percent, minimum)| {
        TripRule::count_window(calls as u32, share(percent)).minimum_calls(minimum as u32)
    });
    let row = setting.in_a_row.map(|most| TripRule::consecutive(most as u32));
    of_time.chain(of_calls).chain(row).reduce(TripRule::or).expect("one rule at least")
}

fn settings() -> impl Strategy<Value = Setting> {
    let of_calls =
        (1..9u64, percent(), 1..9u64).prop_map(|(size, percent, minimum)| (size, percent, minimum.min(size)));
    let rules = (
        prop::option::of(percent()),
        prop::option::weighted(0.3, percent()),
        prop::option::weighted(0.2, 1..9u64),
        prop::option::weighted(0.3, of_calls),
        prop::option::weighted(0.4, 1..9u64),
    );
    let rules = rules.prop_filter("a rule", |(percent, slow, most, of_calls, row)| {
        percent.is_some() || slow.is_some() || most.is_some() || of_calls.is_some() || row.is_some()
    });
    let window = (1..12u64, 1..8u64, select(WIDTHS));
    let opening = (1..60u64, prop::option::of((1..4u64, 1..20u64)), select(&[0.0, 0.0, 0.25, 0.5][..]));
    let half_open = (
        1..4u64,
        1..4u64,
        prop::option::weighted(0.3, (1..6u64, percent())),
        prop::option::of(1..90u64),
        prop::option::weighted(0.6, any::<bool>()),
    );
    let verdicts = [Verdict::Success, Verdict::Transient, Verdict::Ignored, Verdict::Permanent, Verdict::Fatal];
    let throttled = (prop::option::of(1..60u64), prop::option::weighted(0.2, select(verdicts.to_vec())));
    (rules, window, opening, half_open, throttled).prop_map(|(rules, window, opening, half_open, throttled)| Setting {
        percent: rules.0,
        slow_percent: rules.1,
        most_failures: rules.2,
        of_calls: rules.3,
        in_a_row: rules.4,
        minimum: window.0,
        buckets: window.1,
        width: window.2,
        open: opening.0 * SECOND,
        backoff: opening.1.map(|(factor, times)| (factor, opening.0 * times * SECOND)),
        jitter: opening.2,
        trials: half_open.0,
        successes: half_open.1,
        trial_percent: half_open.2,
        deadline: half_open.3.map(|deadline| deadline * SECOND),
        release: half_open.4,
        pause: throttled.0.map(|most| most * SECOND),
        throttled_as: throttled.1,
    })
}

fn percent() -> impl Strategy<Value = u64> {
    1..=100u64
}

/// Most histories are of verdicts; some have hardly any, to flood a half-open breaker without.
fn histories() -> impl Strategy<Value = Vec<Step>> {
    let of = |verdicts, others| prop::collection::vec(steps(verdicts, others), 1..150);
    prop_oneof![4 => of(12, 4), 1 => of(1, 60)]
}

fn steps(verdicts: u32, others: u32) -> impl Strategy<Value = Step> {
    let slow = || prop::bool::weighted(0.3);
    prop_oneof![
        32 => (ends(verdicts, others), slow()).prop_map(|(end, slow)| Step::Call(end, slow)),
        12 => prop::option::of((0..90u64).prop_map(|limit| limit * SECOND)).prop_map(Step::Acquire),
        8 => (any::<Index>(), ends(verdicts, others), slow()).prop_map(|(which, end, slow)| Step::Settle(which, end, slow)),
        2 => any::<Index>().prop_map(Step::Forget),
        8 => ends(12, 4).prop_map(Step::Record),
        16 => (0..2_500u64).prop_map(Step::Pass),
        10 => (0..70u64).prop_map(|wait| Step::Wait(wait * SECOND)),
        2 => select(IDLE_TIMES).prop_map(Step::Wait),
        2 => (0..=SECOND).prop_map(Step::GoBack),
        2 => commands().prop_map(Step::Obey),
        2 => (settings(), prop::bool::weighted(0.9)).prop_map(|(next, same)| Step::Reconfigure(Box::new(next), same)),
    ]
}

fn commands() -> impl Strategy<Value = Command> {
    prop_oneof![
        1 => Just(Command::ForceOpen),
        1 => Just(Command::ForceClose),
        1 => Just(Command::Reset),
        1 => Just(Command::Isolate),
        1 => Just(Command::Disable),
        1 => Just(Command::MetricsOnly),
        2 => Just(Command::Release),
    ]
}

fn ends(verdicts: u32, others: u32) -> impl Strategy<Value = End> {
    prop_oneof![
        verdicts => Just(End::Success),
        verdicts => Just(End::Failure),
        others => Just(End::Nothing),
        2 => Just(End::Throttled(None)),
        1 => (0..90u64).prop_map(|wait| End::Throttled(Some(Duration::from_secs(wait)))),
        1 => Just(End::Abandoned),
        1 => Just(End::LostRace),
    ]
}

const SEED: u64 = 11;
const SECOND: u64 = 1_000_000_000;
const YEAR: u64 = 365 * 86_400 * SECOND;
const WIDTHS: &[u64] = &[SECOND, SECOND / 4, 7_000_000, 3_333_333_333];
const IDLE_TIMES: &[u64] = &[25 * SECOND, 3_600 * SECOND, 10 * YEAR, 100 * YEAR];
const END_OF_TIME: u64 = 500 * YEAR;
