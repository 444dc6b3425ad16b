//! What operators do to a client and a server while calls go on.

use std::sync::Arc;

use steadfast::breaker::TripRule;
use steadfast::budget::BudgetConfig;
use steadfast::clock::{Clock, Moment};
use steadfast::limit::{BulkheadConfig, RateLimiterConfig};

use crate::AnyResult;
use crate::client::{Client, ms, sleep};
use crate::faults::{Dice, Fault, Injected};
use crate::server::Server;

/// Does one thing after another until the time is up, and leaves everything as it was.
pub(crate) async fn meddle(
    client: Arc<Client>,
    server: Arc<Server>,
    injected: Arc<Injected>,
    until: Moment,
) -> AnyResult<()> {
    let mut dice = Dice::new(99);
    let mut turn = 0;
    while Clock::tokio().now() < until {
        sleep(dice.millis(200, 900)).await;
        match turn % 4 {
            0 => server.restart(dice.millis(10, 200)).await?,
            1 => {
                injected.count(Fault::ForcedOpen);
                client.breaker.force_open();
            }
            2 => {
                injected.count(Fault::Isolated);
                client.breaker.isolate();
                sleep(ms(30)).await;
                client.breaker.release();
            }
            _ => client.breaker.reset(),
        }
        injected.count(Fault::Reconfigured);
        reconfigure(&client, &mut dice, turn)?;
        turn += 1;
    }
    client.limiter.reconfigure(Client::limiter_config())?;
    client.bulkhead.reconfigure(Client::bulkhead_config())?;
    client.breaker.reconfigure(Client::breaker_config())?;
    client.budget.reconfigure(Client::budget_config())?;
    Ok(())
}

fn reconfigure(client: &Client, dice: &mut Dice, turn: u64) -> AnyResult<()> {
    match turn % 5 {
        0 => {
            let rate = RateLimiterConfig::per_second(200 + dice.below(4_000));
            client.limiter.reconfigure(rate.burst(1 + dice.below(100)).max_wait(dice.millis(0, 200)).queue(64))?;
        }
        1 => {
            let permits = usize::try_from(4 + dice.below(60))?;
            client.bulkhead.reconfigure(BulkheadConfig::new(permits).queue(32).max_wait(dice.millis(1, 300)))?;
        }
        2 => {
            let rule = TripRule::failure_rate(0.6).window(10, ms(100)).or(TripRule::consecutive(15));
            let config = Client::breaker_config().rule(rule).open_for(dice.millis(50, 200)).trials(1);
            client.breaker.reconfigure(config)?;
        }
        3 => client.budget.reconfigure(BudgetConfig::concurrent(0.1).min(1))?,
        // Back, while calls are waiting for the others.
        _ => {
            client.limiter.reconfigure(Client::limiter_config())?;
            client.bulkhead.reconfigure(Client::bulkhead_config())?;
            client.breaker.reconfigure(Client::breaker_config())?;
            client.budget.reconfigure(Client::budget_config())?;
        }
    }
    Ok(())
}
