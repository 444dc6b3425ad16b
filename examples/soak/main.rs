//! An axum server and a client for reqwest, for as long as one likes, while much goes wrong: errors, resets, truncated and stalled
//! bodies, restarts of the server, callers that leave, changes of the settings. At the end every call has to have one known outcome, and
//! nothing may be left. It fails if a call is lost, if something has leaked, or if one of the faults never happened.
//!
//! ```sh
//! cargo run --release --features full --example soak                    # a few seconds
//! cargo run --release --features full --example soak -- --minutes 10
//! ```

mod client;
mod connection;
mod faults;
mod ledger;
mod machine;
mod operator;
mod report;
mod seen;
mod server;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use steadfast::breaker::State;
use steadfast::clock::{Clock, Moment};

use crate::client::{ANSWERED, Client, ms, sleep, within};
use crate::faults::{Dice, Injected};
use crate::report::Report;
use crate::server::Server;

pub(crate) type AnyResult<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> AnyResult<ExitCode> {
    let length = length(std::env::args().skip(1))?;
    let mut report = Report::begin();
    let injected = Arc::<Injected>::default();
    let server = Arc::new(Server::start(Arc::clone(&injected))?);
    let client = Arc::new(Client::new(server.url(), Arc::clone(&injected))?);

    load(&client, &server, &injected, length, &mut report).await?;
    report.lost("calls that failed after all faults were over", recover(&client, &server).await?);
    report.lost("calls that a shutdown did not end", shut_down(&client, &server).await?);
    println!("\n{} faults: {}", injected.total(), injected.by_kind());
    report.happened(&client, &injected, length);
    report.accounts(&client, server.shared());
    report.leaks(client, &server).await?;
    server.stop().await;
    report.leaks_of_process().await;
    Ok(report.verdict())
}

/// `--minutes N`, or a few seconds.
fn length(mut args: impl Iterator<Item = String>) -> AnyResult<Duration> {
    match (args.next().as_deref(), args.next()) {
        (None, _) => Ok(Duration::from_secs(6)),
        (Some("--minutes"), Some(minutes)) => Ok(Duration::try_from_secs_f64(60.0 * minutes.parse::<f64>()?)?),
        _ => Err("it takes --minutes N, or nothing".into()),
    }
}

/// Many callers, an operator, and a line every ten seconds.
async fn load(
    client: &Arc<Client>,
    server: &Arc<Server>,
    injected: &Arc<Injected>,
    length: Duration,
    report: &mut Report,
) -> AnyResult<()> {
    let until = Clock::tokio().now() + length;
    let callers: Vec<_> =
        (0..CALLERS).map(|seed| tokio::spawn(keep_calling(Arc::clone(client), until, Dice::new(seed)))).collect();
    let meddling = tokio::spawn(operator::meddle(Arc::clone(client), Arc::clone(server), Arc::clone(injected), until));
    sleep(length / 10).await;
    report.warmed_up();
    while Clock::tokio().now() < until {
        println!("{}", report::line(client, server.shared(), injected));
        Clock::tokio().sleep_until(until.min(Clock::tokio().now() + Duration::from_secs(10))).await;
    }
    for caller in callers {
        caller.await?;
    }
    meddling.await??;
    report.loaded();
    Ok(())
}

async fn keep_calling(client: Arc<Client>, until: Moment, mut dice: Dice) {
    while Clock::tokio().now() < until {
        let ended = client.call(&mut dice, true).await;
        // Whoever is refused at once would make up most calls.
        let most = if ended == Some("circuit_open") { 200 } else { 20 };
        sleep(dice.millis(0, most)).await;
    }
}

/// Once nothing goes wrong any more, every call has to be answered: how many are not.
async fn recover(client: &Client, server: &Server) -> AnyResult<u64> {
    server.shared().calm.store(true, SeqCst);
    let mut dice = Dice::new(7);
    let since = Clock::tokio().now();
    while client.breaker.state() != State::Closed {
        if Clock::tokio().now().since(since) > PATIENCE {
            return Err(format!("the breaker is still {}", client.breaker.state()).into());
        }
        let _trial = client.call(&mut dice, false).await;
        sleep(ms(10)).await;
    }
    let mut unanswered = 0;
    for _ in 0..200 {
        unanswered += u64::from(client.call(&mut dice, false).await != Some(ANSWERED));
    }
    Ok(unanswered)
}

/// A shutdown ends whatever waits, at once: how many calls it does not end.
async fn shut_down(client: &Arc<Client>, server: &Server) -> AnyResult<u64> {
    server.shared().dead.store(true, SeqCst);
    let calls: Vec<_> = (0..16)
        .map(|seed| {
            let client = Arc::clone(client);
            tokio::spawn(async move { client.call(&mut Dice::new(seed), false).await })
        })
        .collect();
    let all_wait = async {
        // One that has ended is found below.
        while client.executor.waiting() < calls.len() && !calls.iter().any(tokio::task::JoinHandle::is_finished) {
            sleep(ms(1)).await;
        }
    };
    let mut others = u64::from(within(PATIENCE, all_wait).await.is_none());
    client.executor.shutdown();
    others += u64::from(within(PATIENCE, client.executor.drained()).await.is_none());
    for call in calls {
        others += u64::from(call.await? != Some("shut_down"));
    }
    Ok(others)
}

const CALLERS: u64 = 64;

const PATIENCE: Duration = Duration::from_secs(10);
