//! The breaker beside the model, over random histories: everything that can be seen is compared after every step.

use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, RngSeed};

use super::listening::{Log, entries, logging};
use super::model::{Admitted, Model, Setting};
use super::*;

proptest! {
    #![proptest_config(Config {
        cases: 1_500,
        rng_seed: RngSeed::Fixed(7),
        failure_persistence: None,
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
    /// A call that ends at once.
    Call(End),
    Acquire(Option<u64>),
    Settle(Index, End),
    /// The call is never heard of again.
    Forget(Index),
    Record(End),
    /// So many thousandths of a bucket pass.
    Pass(u64),
    /// So many nanoseconds pass.
    Wait(u64),
    GoBack(u64),
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
        let (config, log) = logging(config(&setting));
        assert_eq!(config.check(), Ok(()));
        let (core, model) = (Core::new(config), Model::new(setting));
        Pair { core, model, log, running: Vec::new(), now: start, latest: start }
    }

    fn moment(&self) -> Moment {
        Moment::from_nanos(self.now)
    }

    fn take(&mut self, step: Step) -> Result<(), TestCaseError> {
        let width = self.model.setting.width;
        match step {
            Step::Call(end) => {
                if self.acquire(None)? {
                    self.settle(self.running.len() - 1, end);
                }
            }
            Step::Acquire(limit) => {
                self.acquire(limit)?;
            }
            Step::Settle(which, end) if !self.running.is_empty() => self.settle(which.index(self.running.len()), end),
            Step::Forget(which) if !self.running.is_empty() => {
                self.running.swap_remove(which.index(self.running.len()));
            }
            Step::Settle(..) | Step::Forget(_) => {}
            Step::Record(end) => {
                self.core.record(end, self.moment());
                self.model.record(end, self.now);
            }
            Step::Pass(thousandths) => self.now = self.now.saturating_add(width / 1_000 * thousandths).min(END_OF_TIME),
            Step::Wait(time) => self.now = self.now.saturating_add(time).min(END_OF_TIME),
            Step::GoBack(time) => {
                // Within the two windows by which generations are apart.
                let earliest = self.latest.saturating_sub(2 * self.model.setting.buckets * width);
                self.now = self.now.saturating_sub(time).max(earliest);
            }
        }
        self.latest = self.latest.max(self.now);
        Ok(())
    }

    fn acquire(&mut self, limit: Option<u64>) -> Result<bool, TestCaseError> {
        let answer = self.core.try_acquire(self.moment(), || limit.map(Duration::from_nanos));
        let expected = self.model.acquire(self.now, limit);
        let seen = answer.map(Ticket::is_trial).map_err(|refused| refused.retry_after);
        prop_assert_eq!(seen, expected.map(|its| its.1).map_err(|left| left.map(Duration::from_nanos)));
        self.running.extend(answer.ok().zip(expected.ok()));
        Ok(answer.is_ok())
    }

    fn settle(&mut self, index: usize, end: End) {
        let (ticket, admitted) = self.running.swap_remove(index);
        self.core.settle(ticket, end, self.moment());
        self.model.settle(admitted, end, self.now);
    }

    fn compare(&self) -> Result<(), TestCaseError> {
        let (state, left) = self.model.outlook(self.now);
        prop_assert_eq!(self.core.state(self.moment()), state);
        prop_assert_eq!(self.core.remaining_open(self.moment()), Duration::from_nanos(left));
        prop_assert_eq!(self.core.counts(self.moment()), self.model.counts(self.now));
        Ok(())
    }

    fn compare_transitions(&self) -> Result<(), TestCaseError> {
        let told = entries(&self.log).into_iter().map(|told| (told.from, told.to, told.cause, told.at));
        prop_assert_eq!(told.collect::<Vec<_>>(), &self.model.log[..]);
        Ok(())
    }
}

fn config(setting: &Setting) -> BreakerConfig {
    let rate = setting.percent.map(|percent| {
        TripRule::failure_rate(percent as f64 / 100.0)
            .window(setting.buckets as u32, Duration::from_nanos(setting.width))
            .minimum_calls(setting.minimum as u32)
    });
    let row = setting.in_a_row.map(|most| TripRule::consecutive(most as u32));
    let rule = rate.into_iter().chain(row).reduce(TripRule::or).expect("one rule at least");
    let config = BreakerConfig::default()
        .rule(rule)
        .open_for(Duration::from_nanos(setting.open))
        .trials(setting.trials as u32)
        .successes_to_close(setting.successes as u32)
        .abandoned_trial(if setting.release { AbandonedTrial::Release } else { AbandonedTrial::Reopen });
    match setting.deadline {
        Some(deadline) => config.trial_deadline(Duration::from_nanos(deadline)),
        None => config,
    }
}

fn settings() -> impl Strategy<Value = Setting> {
    let rules = prop_oneof![
        (1..=100u64).prop_map(|percent| (Some(percent), None)),
        (1..6u64).prop_map(|in_a_row| (None, Some(in_a_row))),
        (1..=100u64, 1..9u64).prop_map(|(percent, in_a_row)| (Some(percent), Some(in_a_row))),
    ];
    let window = (1..12u64, 1..8u64, select(WIDTHS));
    let half_open = (1..4u64, 1..4u64, prop::option::of(1..90u64), any::<bool>());
    (rules, window, 1..60u64, half_open).prop_map(|(rules, window, open, half_open)| Setting {
        percent: rules.0,
        in_a_row: rules.1,
        minimum: window.0,
        buckets: window.1,
        width: window.2,
        open: open * SECOND,
        trials: half_open.0,
        successes: half_open.1,
        deadline: half_open.2.map(|deadline| deadline * SECOND),
        release: half_open.3,
    })
}

/// Most histories are of verdicts; some have hardly any, to flood a half-open breaker without.
fn histories() -> impl Strategy<Value = Vec<Step>> {
    let of = |verdicts, others| prop::collection::vec(steps(verdicts, others), 1..150);
    prop_oneof![4 => of(12, 4), 1 => of(1, 60)]
}

fn steps(verdicts: u32, others: u32) -> impl Strategy<Value = Step> {
    prop_oneof![
        16 => ends(verdicts, others).prop_map(Step::Call),
        6 => prop::option::of((0..90u64).prop_map(|limit| limit * SECOND)).prop_map(Step::Acquire),
        4 => (any::<Index>(), ends(verdicts, others)).prop_map(|(which, end)| Step::Settle(which, end)),
        1 => any::<Index>().prop_map(Step::Forget),
        4 => ends(12, 4).prop_map(Step::Record),
        8 => (0..2_500u64).prop_map(Step::Pass),
        5 => (0..70u64).prop_map(|wait| Step::Wait(wait * SECOND)),
        1 => select(IDLE_TIMES).prop_map(Step::Wait),
        1 => (0..=SECOND).prop_map(Step::GoBack),
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
    ]
}

const SECOND: u64 = 1_000_000_000;
const YEAR: u64 = 365 * 86_400 * SECOND;
const WIDTHS: &[u64] = &[SECOND, SECOND / 4, 7_000_000, 3_333_333_333];
const IDLE_TIMES: &[u64] = &[25 * SECOND, 3_600 * SECOND, 10 * YEAR, 100 * YEAR];
const END_OF_TIME: u64 = 500 * YEAR;
