//! Those who call, and those who get in their way.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{Either, select};
use steadfast::chain::BoxPolicy;
use steadfast::clock::Moment;
use steadfast::operation::faults;
use steadfast::{Context, Error, Executor};

use super::backend::{Thrown, Trouble};
use super::run::Run;
use super::story::Story;
use super::world::World;
use crate::support::{Dice, ms, secs};

/// One caller with an executor of its own, whose policies all of them share.
pub(super) struct Client {
    pub(super) number: u64,
    pub(super) executor: Executor<Arc<Vec<BoxPolicy<u64, Trouble>>>>,
    dice: Dice,
    story: Story,
    shut_down: Arc<AtomicBool>,
}

/// How a caller ends a run that takes too long.
#[derive(Clone, Copy)]
enum Patience {
    Drops,
    Cancels,
}

impl Client {
    pub(super) fn new(world: &World, number: u64) -> Client {
        let story = Story::new(world.notes());
        let builder = Executor::builder(format!("client {number}")).policies(Arc::clone(&world.chain.policies));
        let builder = builder.clock(&world.clock).seed(number).observe(story.clone());
        let builder = match &world.chain.budget {
            Some((budget, _)) => builder.budget(budget.clone()),
            None => builder.unbudgeted(),
        };
        let executor = builder.build().unwrap();
        let dice = Dice::new((world.dice.unit() * 1e15) as u64);
        Client { number, executor, dice, story, shut_down: Arc::default() }
    }

    /// Calls a few times.
    pub(super) async fn live(&self, world: &World) {
        for _ in 0..1 + self.dice.below(8) {
            if self.dice.chance(0.8) {
                world.clock.clock().sleep(self.dice.between(ms(0), secs(4))).await;
            }
            self.call(world).await;
        }
    }

    async fn call(&self, world: &World) {
        let (notes, dice) = (world.notes(), &self.dice);
        let limit = dice.chance(0.4).then(|| dice.between(ms(0), secs(10)));
        let max_attempts = dice.chance(0.2).then(|| 1 + dice.below(4) as u32);
        let run = Arc::new(Run::new(&world.chain, notes.now(), limit, max_attempts, &self.shut_down));
        self.story.turn(&run);
        notes.reach(|reached| reached.runs += 1);
        let mut cx = self.executor.context().with_token(run.token.clone());
        if let Some(limit) = limit {
            cx = cx.with_timeout(limit);
        }
        if let Some(most) = max_attempts {
            cx = cx.with_max_attempts(most);
        }
        if dice.chance(0.02) {
            run.token.cancel();
        }
        let patience = dice.between(ms(0), secs(40)).mul_f64(if dice.chance(0.3) { 0.1 } else { 1.0 });
        let then = dice.pick(&[Patience::Drops, Patience::Cancels]);
        match self.wait(world, &run, &cx, patience, then).await {
            Some(result) => {
                run.ends(notes, &result);
                self.story.is_told();
                notes.reach(|reached| reached.successes += u64::from(result.is_ok()));
            }
            None => run.is_dropped(),
        }
    }

    /// What comes of a run, if its caller hears of it.
    async fn wait(
        &self,
        world: &World,
        run: &Arc<Run>,
        cx: &Context,
        patience: Duration,
        then: Patience,
    ) -> Option<Result<u64, Error<Trouble>>> {
        let notes = world.notes();
        let operation = faults(|attempt| world.backend.call(Arc::clone(run), attempt));
        let running = pin!(AssertUnwindSafe(self.executor.run_with(cx, operation)).catch_unwind());
        let caught = match select(running, pin!(world.clock.clock().sleep(patience))).await {
            Either::Left((caught, _)) => caught,
            Either::Right(((), running)) => match then {
                Patience::Drops => {
                    notes.reach(|reached| reached.dropped += 1);
                    return None;
                }
                Patience::Cancels => {
                    notes.reach(|reached| reached.cancelled += 1);
                    run.token.cancel();
                    self.at_once(world, notes.now(), running).await
                }
            },
        };
        match caught {
            Ok(result) => Some(result),
            Err(thrown) if thrown.is::<Thrown>() => {
                notes.reach(|reached| reached.panics += 1);
                None
            }
            Err(thrown) => resume_unwind(thrown),
        }
    }

    /// A run that is ended from outside ends as soon as it is polled.
    async fn at_once<F: Future + Unpin>(&self, world: &World, ended: Moment, running: F) -> F::Output {
        let output = running.await;
        let (now, latest) = (world.clock.now(), world.notes().latest(ended));
        world.notes().expect(now <= latest, || format!("cancelled at {ended:?}, ended at {now:?}"));
        output
    }
}

/// Jumps with the clock, resizes, forces breakers, shuts executors down; for ever.
pub(super) async fn trouble_makers(world: &World, clients: &[Client]) {
    let dice = &world.dice;
    loop {
        world.clock.clock().sleep(dice.between(ms(100), secs(10))).await;
        match dice.below(12) {
            0..4 => world.jump(dice.between(ms(0), secs(5))),
            4 => world.clock.set_wall(world.clock.clock().wall() - secs(dice.below(10_000))),
            5 | 6 => {
                let size = 1 + dice.below(4) as usize;
                world.chain.bulkheads.iter().for_each(|watch| watch.bulkhead.resize(size).unwrap());
            }
            7 | 8 => {
                let what = dice.below(6);
                world.chain.breakers.iter().for_each(|watch| watch.command(what));
            }
            9 if dice.chance(0.2) => {
                let client = &clients[dice.below(clients.len() as u64) as usize];
                client.shut_down.store(true, Relaxed);
                client.executor.shutdown();
            }
            _ => {}
        }
    }
}
