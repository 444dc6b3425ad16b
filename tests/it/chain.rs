//! Chains: tuples, options, references, boxes and lists mean the same as what they are made of.

use std::sync::Arc;

use steadfast::chain::BoxPolicy;
use steadfast::error::Kind;
use steadfast::judge::retry_if;
use steadfast::policy::{Policy, Settings, Site};
use steadfast::{Executor, Retry, Timeout, try_do};

use crate::policies::Probe;
use crate::support::{Script, at_rest, err, hangs, ok, scenario, secs, timed_out};

fn retry() -> Retry {
    Retry::fixed(secs(1))
}

#[test]
fn the_first_policy_is_the_outermost() {
    let inside = scenario(|| (retry(), Timeout::secs(2))).everywhere([hangs::<(), ()>()]);
    assert_eq!(inside.took, secs(8), "three attempts of 2 s, two waits");
    let outside = scenario(|| (Timeout::secs(2), retry())).everywhere([hangs::<(), ()>()]);
    assert_eq!(outside.took, secs(2));
}

#[test]
fn a_nested_tuple_means_the_same_as_a_flat_one() {
    let steps = [err("down"), hangs(), ok(7)];
    let flat = scenario(|| (Timeout::secs(60), retry(), Timeout::secs(2))).everywhere(steps.clone());
    let left = scenario(|| ((Timeout::secs(60), retry()), Timeout::secs(2))).everywhere(steps.clone());
    let right = scenario(|| (Timeout::secs(60), (retry(), (Timeout::secs(2),), ()))).everywhere(steps);
    assert_eq!((&flat, &flat), (&left, &right));
    assert_eq!(flat.result, Ok(7));
}

#[test]
fn twelve_policies_fit_into_a_tuple() {
    let probes: [Probe; 10] = std::array::from_fn(|_| Probe::default());
    let [a, b, c, d, e, f, g, h, i, j] = probes.clone();
    let (clock, cx) = at_rest();
    let twelve = (a, retry(), b, c, d, e, Timeout::secs(2), f, g, h, i, j);
    let script = Script::new(&clock, [err("down"), ok(7)]);
    assert_eq!(clock.block_on(try_do(&cx, |_| script.call_plain(), twelve)).unwrap(), 7);
    let counts: Vec<_> = probes.iter().map(|probe| probe.ends().len()).collect();
    assert_eq!(counts, [1, 2, 2, 2, 2, 2, 2, 2, 2, 2]);
}

#[test]
fn none_passes_every_call_through() {
    let steps = [err("down"), ok(7)];
    let some = scenario(|| (Some(retry()), None::<Timeout>)).everywhere(steps.clone());
    assert_eq!(some, scenario(retry).everywhere(steps.clone()));
    let none = scenario(|| None::<Retry>).everywhere(steps.clone());
    assert_eq!(none, scenario(|| ()).everywhere(steps));
}

#[test]
fn references_and_arcs_share_a_policy() {
    let (clock, cx) = at_rest();
    let probe = Probe::default();
    let (shared, policy) = (Arc::new(probe.clone()), retry());
    clock.block_on(async {
        try_do(&cx, |_| async { Ok::<_, ()>(()) }, &shared).await.unwrap();
        try_do(&cx, |_| async { Ok::<_, ()>(()) }, (&policy, Arc::clone(&shared))).await.unwrap();
        try_do(&cx, |_| async { Ok::<_, u8>(7) }, (&policy, &&shared)).await.unwrap();
    });
    assert_eq!(probe.ends().len(), 3);
    let dynamic = Executor::builder("arc").policies(Arc::new((retry(), Timeout::secs(1)))).clock(&clock).build();
    assert_eq!(clock.block_on(dynamic.unwrap().run(|_| async { Ok::<_, ()>(7) })).unwrap(), 7);
}

#[test]
fn boxed_policies_mean_the_same_as_what_is_in_the_box() {
    let steps = [err("down"), hangs(), ok(7)];
    let plain = scenario(|| (Timeout::secs(60), retry(), Timeout::secs(2))).everywhere(steps.clone());
    let list = || -> Vec<BoxPolicy<i32, &'static str>> {
        vec![BoxPolicy::new(Timeout::secs(60)), BoxPolicy::new(retry()), BoxPolicy::new(Timeout::secs(2))]
    };
    let one = || BoxPolicy::new((Timeout::secs(60), retry(), Timeout::secs(2)));
    let mixed = || (Timeout::secs(60), BoxPolicy::new(retry()), vec![BoxPolicy::new(Timeout::secs(2))], Vec::new());
    assert_eq!(scenario(list).typed(steps.clone()), plain);
    assert_eq!(scenario(one).typed(steps.clone()), plain);
    assert_eq!(scenario(mixed).typed(steps), plain);
}

#[test]
fn a_list_can_be_put_together_at_run_time() {
    for limit in [None, Some(secs(2))] {
        let list = move || {
            let mut policies: Vec<BoxPolicy<(), ()>> = vec![BoxPolicy::new(retry().max_attempts(1))];
            policies.extend(limit.map(|limit| BoxPolicy::new(Timeout::new(limit))));
            policies
        };
        let seen = scenario(list).typed([ok(()).after(secs(5))]);
        assert_eq!(seen.result.is_ok(), limit.is_none());
    }
    assert_eq!(scenario(Vec::<BoxPolicy<i32, ()>>::new).typed([ok(7)]).result, Ok(7));
}

#[test]
fn a_boxed_policy_can_live_in_a_struct_field_and_hold_a_judgement() {
    struct Service {
        policy: BoxPolicy<(), &'static str>,
    }
    let service = Service { policy: BoxPolicy::new((Retry::immediate(), retry_if(|error: &&str| *error != "gone"))) };
    let (clock, cx) = at_rest();
    let error = clock.block_on(try_do(&cx, |_| async { Err::<(), _>("gone") }, &service.policy)).unwrap_err();
    assert_eq!(error.attempts(), 1);
}

#[test]
fn settings_are_checked_wherever_a_policy_hides() {
    let bad = || Timeout::secs(0);
    let refused: [Box<dyn Settings>; 6] = [
        Box::new((Retry::immediate(), bad())),
        Box::new(Some(bad())),
        Box::new(Arc::new(bad())),
        Box::new(((), ((), bad()))),
        Box::new(BoxPolicy::<(), ()>::new(bad())),
        Box::new(vec![BoxPolicy::<(), ()>::new(Retry::immediate()), BoxPolicy::new(bad())]),
    ];
    for settings in refused {
        let built = Executor::builder("hidden").policies(Dynamic(settings)).build();
        assert_eq!(built.unwrap_err().field(), "timeout");
    }
}

/// Only for its settings.
struct Dynamic(Box<dyn Settings>);

impl Settings for Dynamic {
    fn validate(&self, site: &mut Site<'_>) -> Result<(), steadfast::ConfigError> {
        self.0.validate(site)
    }
}

#[test]
fn a_chain_knows_how_long_it_may_run() {
    let limit = |settings: &dyn Settings| settings.limit(None);
    assert_eq!(limit(&()), None);
    assert_eq!(limit(&Retry::exponential()), None, "the operation has no bound");
    assert_eq!(limit(&Timeout::secs(2)), Some(secs(2)));
    assert_eq!(limit(&(Timeout::secs(9), Timeout::secs(2))), Some(secs(2)));
    assert_eq!(limit(&(Retry::fixed(secs(1)).max_retry_after(secs(3)).cap(secs(1)), Timeout::secs(2))), Some(secs(12)));
    assert_eq!(limit(&(Timeout::secs(5), Retry::fixed(secs(1)), Timeout::secs(2))), Some(secs(5)));
    assert_eq!(limit(&(Retry::immediate().unlimited(), Timeout::secs(2))), None);
    assert_eq!(limit(&(Retry::immediate().unlimited().max_elapsed(secs(9)), Timeout::secs(2))), Some(secs(11)));
    assert_eq!(
        limit(&vec![BoxPolicy::<(), ()>::new(Timeout::secs(2)), BoxPolicy::new(Retry::immediate())]),
        Some(secs(2))
    );
    assert_eq!(limit(&Some(Timeout::secs(2))), Some(secs(2)));
    assert_eq!(limit(&None::<Timeout>), None);
}

#[test]
fn a_policy_of_generic_code_needs_one_bound() {
    async fn twice<P: Policy<u32, String>>(cx: &steadfast::Context, policies: &P) -> u32 {
        let first = try_do(cx, |_| async { Ok::<_, String>(1) }, policies).await.unwrap();
        first + try_do(cx, |_| async { Ok::<_, String>(2) }, policies).await.unwrap()
    }
    let (clock, cx) = at_rest();
    assert_eq!(clock.block_on(twice(&cx, &(retry(), Timeout::secs(1)))), 3);
}

#[test]
fn a_limit_inside_a_boxed_list_is_seen_by_attempts() {
    let (clock, cx) = at_rest();
    let policies: Vec<BoxPolicy<_, ()>> = vec![BoxPolicy::new(Timeout::secs(9)), BoxPolicy::new(Timeout::secs(2))];
    let run = try_do(&cx, |attempt| async move { Ok(attempt.remaining()) }, policies);
    assert_eq!(clock.block_on(run).unwrap(), Some(secs(2)));
    let list: Vec<BoxPolicy<(), ()>> = vec![BoxPolicy::new(Timeout::secs(2))];
    let error = clock.block_on(try_do(&cx, |_| std::future::pending::<Result<(), ()>>(), list)).unwrap_err();
    assert_eq!(error.kind(), timed_out(secs(2)));
}

#[test]
fn try_do_refuses_settings_before_anything_is_started() {
    let (clock, cx) = at_rest();
    let script = Script::new(&clock, [ok::<_, &str>(())]);
    let error = clock.block_on(try_do(&cx, |_| script.call_plain(), (retry(), Timeout::secs(0)))).unwrap_err();
    assert_eq!((error.kind(), script.calls().len()), (Kind::Misconfigured, 0));
    assert_eq!(error.to_string(), "misconfigured: timeout = 0 s: must be longer than zero");
}
