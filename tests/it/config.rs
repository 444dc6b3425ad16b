//! Settings in files: what is read, what is written, what is refused.

use std::fmt::Debug;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use steadfast::breaker::{AbandonedTrial, BreakerConfig, TripRule};
use steadfast::budget::BudgetConfig;
use steadfast::limit::{BulkheadConfig, RateLimiterConfig};
use steadfast::registry::RegistryConfig;
use steadfast::retry::{Jitter, OnLongWait, OnRejection};
use steadfast::standard::StandardConfig;
use steadfast::{Hedge, Retry, Timeout, Verdict};

use crate::support::{mins, ms, secs};

/// Reads TOML and the same in JSON, which must give the same.
fn read<T: DeserializeOwned + Debug>(text: &str) -> Result<T, String> {
    let from_toml = toml::from_str::<T>(text).map_err(|error| error.to_string());
    let table: toml::Table = toml::from_str(text).unwrap();
    let json = serde_json::to_string(&table).unwrap();
    let from_json = serde_json::from_str::<T>(&json).map_err(|error| error.to_string());
    assert_eq!(from_toml.is_ok(), from_json.is_ok(), "{from_toml:?} {from_json:?}");
    if let (Ok(toml), Ok(json)) = (&from_toml, &from_json) {
        assert_eq!(format!("{toml:?}"), format!("{json:?}"));
    }
    from_toml
}

fn refused<T: DeserializeOwned + Debug>(text: &str) -> String {
    read::<T>(text).expect_err(text)
}

/// Settings are the same after they were written and read, in both formats.
fn survives<T: Serialize + DeserializeOwned + Debug>(settings: &T) {
    let json = serde_json::to_string(settings).unwrap();
    let again: T = serde_json::from_str(&json).unwrap();
    assert_eq!(format!("{again:?}"), format!("{settings:?}"), "{json}");
    if let Ok(text) = toml::to_string(settings) {
        let again: T = toml::from_str(&text).unwrap();
        assert_eq!(format!("{again:?}"), format!("{settings:?}"), "{text}");
    }
}

#[test]
fn a_file_names_only_what_differs() {
    let config: StandardConfig = read(
        r#"
        attempt_timeout = "2s"
        [bulkhead]
        permits = 50
        [retry]
        max_attempts = 5
        base = "50ms"
        jitter = { proportional = 0.25 }
        [breaker]
        open_for = "10s"
        open_backoff = { factor = 2.0, cap = "1m" }
        rule = { failure_rate = 0.25, consecutive = "off" }
        [rate_limit]
        per = 90
        period = "1m"
        max_wait = "250ms"
        [budget]
        ratio = 0.2
        "#,
    )
    .unwrap();
    let rule = TripRule::failure_rate(0.25).window(10, secs(3)).minimum_calls(20);
    let expected = StandardConfig::default()
        .attempt_timeout(secs(2))
        .bulkhead(BulkheadConfig::new(50))
        .retry(Retry::exponential().max_attempts(5).base(ms(50)).jitter(Jitter::Proportional(0.25)))
        .breaker(BreakerConfig::default().rule(rule).open_for(secs(10)).open_backoff(2.0, mins(1)))
        .rate_limit(RateLimiterConfig::per(90, mins(1)).max_wait(ms(250)))
        .budget(BudgetConfig::ratio(0.2));
    assert_eq!(format!("{config:?}"), format!("{expected:?}"));
    assert_eq!(config.check(), Ok(()));
}

#[test]
fn an_empty_file_is_the_default() {
    let config: StandardConfig = read("").unwrap();
    assert_eq!(format!("{config:?}"), format!("{:?}", StandardConfig::default()));
    let config: RegistryConfig = read("").unwrap();
    assert_eq!(format!("{config:?}"), format!("{:?}", RegistryConfig::default()));
}

#[test]
fn off_takes_away_what_can_be_absent() {
    let config: StandardConfig = read(
        r#"
        budget = "off"
        rate_limit = "off"
        total_timeout = "never"
        retry = { max_attempts = "off", max_elapsed = "20s" }
        breaker = { rule = { failure_rate = "off" } }
        "#,
    )
    .unwrap();
    let expected = StandardConfig::default()
        .budget(None)
        .total_timeout(Duration::MAX)
        .retry(Retry::exponential().unlimited().max_elapsed(secs(20)))
        .breaker(BreakerConfig::default().rule(TripRule::consecutive(10)).open_for(secs(5)));
    assert_eq!(format!("{config:?}"), format!("{expected:?}"));
}

#[test]
fn unknown_fields_are_refused_wherever_they_are() {
    for (text, field) in [
        ("timeout = \"9s\"", "timeout"),
        ("[retry]\nattempts = 3", "attempts"),
        ("[breaker]\nopen = \"5s\"", "open"),
        ("[breaker.rule]\nrate = 0.5", "rate"),
        ("[breaker.rule.window]\nbuckets = 3\nwidth = \"1s\"\nheight = 2", "height"),
        ("[breaker.open_backoff]\nfactor = 2.0\ncap = \"1m\"\nmax = 3", "max"),
        ("[bulkhead]\nsize = 3", "size"),
        ("[rate_limit]\nper_minute = 3", "per_minute"),
        ("[budget]\nrate = 0.1", "rate"),
    ] {
        let refused = refused::<StandardConfig>(text);
        assert!(refused.contains(&format!("unknown field `{field}`")), "{refused}");
    }
    assert!(refused::<RegistryConfig>("[billing]\n").contains("unknown field `billing`"));
    assert!(refused::<RegistryConfig>("[executors.billing]\nretires = 3").contains("unknown field `retires`"));
}

#[test]
fn what_has_no_meaning_is_refused_where_it_stands() {
    let line = refused::<StandardConfig>("attempt_timeout = \"2s\"\ntotal_timeout = \"ten\"");
    assert!(line.contains("line 2") && line.contains("\"ten\" is not a time"), "{line}");
    assert!(refused::<StandardConfig>("total_timeout = 30").contains("a time with its unit"));
    assert!(refused::<StandardConfig>("[retry]\nmax_attempts = -1").contains("-1"));
    assert!(refused::<StandardConfig>("[retry]\njitter = \"some\"").contains("unknown variant `some`"));
    assert!(refused::<StandardConfig>("budget = \"on\"").contains("on"));
    assert!(refused::<StandardConfig>("[rate_limit]\nburst = 3").contains("needs `per_second`, or `per` and `period`"));
    assert!(refused::<StandardConfig>("[rate_limit]\nper_second = 3\nper = 4").contains("not both"));
    assert!(refused::<StandardConfig>("[budget]\nratio = 0.1\nconcurrent = 0.1").contains("one of"));
    let no_rule = "[breaker.rule]\nfailure_rate = \"off\"\nconsecutive = \"off\"";
    assert!(refused::<StandardConfig>(no_rule).contains("a rule needs one of"));
    let of_one = refused::<RegistryConfig>("[executors.search.budget]\nratio = 0.1\nconcurrent = 0.1");
    assert!(of_one.contains("executors.search: a budget has one of"), "{of_one}");
}

#[test]
fn numbers_that_cannot_work_are_named_with_their_part_and_rule() {
    for (text, said) in [
        ("attempt_timeout = \"30s\"", "attempt_timeout = 30s: must be shorter than the total timeout"),
        ("total_timeout = \"0s\"", "total_timeout = 0s: must be longer than zero"),
        ("[retry]\nmax_attempts = 0", "retry.max_attempts = 0: must be at least 1"),
        ("[retry]\nbackoff = \"linear\"\nfactor = 2.0", "retry.factor = 2: only an exponential backoff has a factor"),
        ("[breaker]\nopen_for = \"0s\"", "breaker.open_for = 0ns: must be more than zero"),
        ("[breaker.rule]\nfailure_rate = 1.5", "breaker.failure_rate = 1.5: must be above 0 and at most 1"),
        ("[bulkhead]\npermits = 0", "bulkhead.permits = 0: must be from 1 to 2,147,483,647"),
        ("[rate_limit]\nper_second = 0", "rate_limit.per = 0: must be at least 1"),
        ("[rate_limit]\nper_second = 5\nweight = 2", "rate_limit.weight = 2: must be 1 in a chain"),
        ("[budget]\ncap = 0", "budget.cap = 0: must be from 1 to 400,000"),
        ("[budget]\nmin = 3", "budget.min = 3: only an in-flight budget has one"),
        (
            "[breaker.rule]\nwindow = { buckets = 10, width = \"800ms\" }",
            "breaker.rule.window = 8s: must be at least as",
        ),
    ] {
        let refused = read::<StandardConfig>(text).unwrap().check().unwrap_err();
        assert!(refused.to_string().starts_with(said), "{refused}");
    }
    let config: RegistryConfig = read("[executors.search.bulkhead]\npermits = 0").unwrap();
    let refused = config.check().unwrap_err();
    assert_eq!((refused.part(), refused.field(), refused.value()), ("executors.search.bulkhead", "permits", "0"));
    let config: RegistryConfig = read("[defaults]\nattempt_timeout = \"1h\"").unwrap();
    assert_eq!(config.check().unwrap_err().part(), "defaults");
}

#[test]
fn what_is_written_is_read_as_the_same() {
    let rule = TripRule::slow_rate(0.5).slow_call(secs(2)).or(TripRule::count_window(50, 0.3));
    let breaker = BreakerConfig::default()
        .rule(rule.clone().window(5, ms(1500)).minimum_calls(7))
        .open_jitter(0.1)
        .open_backoff(1.5, mins(5))
        .trial_rate(5, 0.4)
        .trial_deadline(secs(9))
        .abandoned_trial(AbandonedTrial::Reopen)
        .pause_on_retry_after(secs(30))
        .throttled_as(Verdict::Transient);
    survives(&breaker);
    survives(&BreakerConfig::default().rule(TripRule::consecutive(3)));
    survives(&rule.window(5, ms(1500)).minimum_calls(7));
    survives(&Retry::exponential().factor(1.5).unlimited().max_elapsed(secs(7)).keep_errors(2));
    let fixed = Retry::fixed(mins(2)).jitter(Jitter::Decorrelated).max_jitter(ms(3));
    survives(&fixed.on_long_wait(OnLongWait::Cap).on_rejection(OnRejection::Wait).max_retry_after(Duration::MAX));
    survives(&[Retry::linear(secs(1)), Retry::fibonacci(secs(1)), Retry::immediate()]);
    survives(&[Timeout::secs(9), Timeout::new(Duration::MAX), Timeout::millis(3).covering_body()]);
    survives(&[Hedge::after(ms(20)).max(2), Hedge::percentile(0.95).floor(ms(2)).ceiling(secs(1)).window(mins(2))]);
    survives(&RateLimiterConfig::per(90, mins(1)).burst(5).max_wait(ms(3)).queue(7).weight(2));
    survives(&BulkheadConfig::new(3).queue(4).max_wait(ms(5)));
    survives(&[
        BudgetConfig::default(),
        BudgetConfig::ratio(0.3).floor(Duration::MAX),
        BudgetConfig::concurrent(0.2).min(5),
    ]);
    let config = StandardConfig::default().rate_limit(RateLimiterConfig::per_second(9)).breaker(breaker);
    survives(&config);
    survives(&StandardConfig::default().budget(None));
    survives(&RegistryConfig::default().defaults(config.clone()).executor("search", config));
}

#[test]
fn what_is_not_data_is_not_written() {
    fn refusal(settings: &impl Serialize) -> String {
        serde_json::to_string(settings).unwrap_err().to_string()
    }
    assert!(refusal(&Retry::custom(|_, _| secs(1))).contains("computed"));
    assert!(refusal(&Retry::immediate().on_retry(|_| {})).contains("listener"));
    assert!(refusal(&Retry::immediate().factor(2.0)).contains("factor"));
    assert!(refusal(&Timeout::with(|_| secs(1))).contains("computed"));
    assert!(refusal(&Hedge::with(|_| None)).contains("computed"));
    assert!(refusal(&TripRule::should_trip(|_| true)).contains("function"));
    assert!(refusal(&TripRule::consecutive(3).window(1, secs(1))).contains("no use for"));
    assert!(refusal(&BreakerConfig::default().on_transition(drop)).contains("listeners"));
    assert!(refusal(&BreakerConfig::default().seed(7)).contains("seed"));
    assert!(refusal(&RateLimiterConfig::per_second(1).weigh_by(|_| 1)).contains("weights"));
    let listening = BreakerConfig::default().on_transition(drop);
    assert!(refusal(&StandardConfig::default().breaker(listening)).contains("listeners"));
}

#[test]
fn settings_by_themselves_are_read_over_their_own_defaults() {
    let hedge: Hedge = read("percentile = 0.9\nmin_samples = 5").unwrap();
    assert_eq!(format!("{hedge:?}"), format!("{:?}", Hedge::percentile(0.9).min_samples(5)));
    assert!(refused::<Hedge>("max = 1").contains("one of `after` and `percentile`"));
    assert_eq!(read::<Hedge>("after = \"1ms\"\nfloor = \"1ms\"").unwrap().check().unwrap_err().field(), "floor");
    let rule: TripRule = read("consecutive = 3").unwrap();
    assert_eq!(rule, TripRule::consecutive(3));
    assert!(refused::<TripRule>("").contains("a rule needs one of"));
    let misplaced: BreakerConfig = read("[rule]\nfailure_rate = \"off\"\nconsecutive = 3\nminimum_calls = 5").unwrap();
    assert_eq!(misplaced.check().unwrap_err().value(), "minimum_calls");
    let limiter: RateLimiterConfig = read("per_second = 5\nburst = 2").unwrap();
    assert_eq!(format!("{limiter:?}"), format!("{:?}", RateLimiterConfig::per_second(5).burst(2)));
    assert!(refused::<BulkheadConfig>("queue = 3").contains("missing field `permits`"));
    let retry: Retry = read("backoff = \"fixed\"\nbase = \"45s\"").unwrap();
    assert_eq!(format!("{retry:?}"), format!("{:?}", Retry::fixed(secs(45))));
}

#[test]
fn one_document_is_laid_over_another() {
    let config: RegistryConfig = read(
        r#"
        [defaults]
        total_timeout = "20s"
        attempt_timeout = "5s"
        rate_limit = { per_second = 10, burst = 3 }
        [executors.billing]
        [executors.search]
        attempt_timeout = "500ms"
        rate_limit = { per_second = 50 }
        [executors.mail]
        rate_limit = "off"
        "#,
    )
    .unwrap();
    let base = StandardConfig::default().total_timeout(secs(20)).attempt_timeout(secs(5));
    let limited = |n| RateLimiterConfig::per_second(n).burst(3);
    let expected = RegistryConfig::default()
        .defaults(base.clone().rate_limit(limited(10)))
        .executor("billing", base.clone().rate_limit(limited(10)))
        .executor("search", base.clone().attempt_timeout(ms(500)).rate_limit(limited(50)))
        .executor("mail", base);
    assert_eq!(format!("{config:?}"), format!("{expected:?}"));
}

#[test]
fn what_is_seldom_meant_is_a_warning_and_no_error() {
    let config: StandardConfig = read("retry = { max_attempts = 4 }").unwrap();
    assert_eq!(config.check(), Ok(()));
    let warnings = config.warnings();
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].to_string().starts_with("attempt_timeout = 9s, 4 times: is longer than the total timeout"));
    assert!(StandardConfig::default().warnings().is_empty());
    let unlimited = StandardConfig::default().retry(Retry::exponential().unlimited());
    assert!(unlimited.warnings().is_empty(), "the total limit is meant to end it");
    let config = RegistryConfig::default().executor("search", config);
    assert_eq!(config.warnings()[0].part(), "executors.search");
}
