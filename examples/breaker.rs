//! A circuit breaker around a call that is neither HTTP nor async: a database handle, in two steps. The outage is scripted and
//! time is moved by hand, so that half a minute takes no time.

use std::cell::Cell;
use std::time::Duration;

use steadfast::breaker::{BreakerConfig, Rejected, Transition, TripRule};
use steadfast::clock::{Clock, ManualClock, Moment};
use steadfast::{Breaker, ConfigError};

/// The handle that a program uses: a connection, and a breaker around all of its queries.
struct Orders {
    connection: Connection,
    breaker: Breaker,
}

enum OrderError {
    /// The database was not asked.
    Refused(Rejected),
    Database(DatabaseError),
}

impl Orders {
    fn amount(&self, order: u32) -> Result<u32, OrderError> {
        let permit = self.breaker.try_acquire().map_err(OrderError::Refused)?;
        // Should the query panic, the permit is dropped: the call counts as abandoned, and no place is lost.
        let answer = self.connection.query(order);
        match &answer {
            // It answered, whatever it said.
            Ok(_) | Err(DatabaseError::NoSuchRow) => permit.success(),
            Err(DatabaseError::ConnectionLost) => permit.failure(),
        }
        answer.map_err(OrderError::Database)
    }
}

fn main() -> Result<(), ConfigError> {
    let clock = Clock::manual();
    let start = clock.now();
    let config = BreakerConfig::default()
        .rule(TripRule::failure_rate(0.5).or(TripRule::consecutive(5)))
        .open_for(Duration::from_secs(5))
        .on_transition(move |change| report(&change, start));
    let breaker = Breaker::new(config).named("orders");
    breaker.bind(&clock)?;
    let connection = Connection { clock: clock.clone(), start, queries: Cell::new(0) };
    let orders = Orders { connection, breaker };

    for second in 0..25 {
        let (mut answered, mut failed, mut refused) = (0, 0, 0);
        for order in 0..10 {
            match orders.amount(order) {
                Ok(_) | Err(OrderError::Database(DatabaseError::NoSuchRow)) => answered += 1,
                Err(OrderError::Database(DatabaseError::ConnectionLost)) => failed += 1,
                Err(OrderError::Refused(_)) => refused += 1,
            }
            clock.advance(Duration::from_millis(100));
        }
        let state = orders.breaker.state();
        println!("{second:>2} s  {state:<9} {answered:>2} answered {failed:>2} failed {refused:>2} refused");
    }
    println!("The database was asked {} of 250 times.", orders.connection.queries.get());

    // For maintenance, an operator takes it out of service and puts it back.
    orders.breaker.isolate();
    if let Err(OrderError::Refused(rejected)) = orders.amount(7) {
        println!("{rejected}");
    }
    orders.breaker.release();
    assert!(orders.amount(7).is_ok());
    Ok(())
}

/// What goes to the log.
fn report(change: &Transition, start: Moment) {
    let at = change.at.since(start).as_secs_f64();
    let (failures, calls) = (change.counts.failures, change.counts.calls);
    println!("      at {at:.1} s: {} -> {}, {:?}, {failures} of {calls} failed", change.from, change.to, change.cause);
}

/// A connection to a database that is down from second 5 to second 17.
struct Connection {
    clock: ManualClock,
    start: Moment,
    queries: Cell<u32>,
}

#[derive(Debug)]
enum DatabaseError {
    ConnectionLost,
    NoSuchRow,
}

impl Connection {
    fn query(&self, order: u32) -> Result<u32, DatabaseError> {
        self.queries.set(self.queries.get() + 1);
        match self.clock.now().since(self.start).as_secs() {
            5..17 => Err(DatabaseError::ConnectionLost),
            _ if order == 0 => Err(DatabaseError::NoSuchRow),
            _ => Ok(order * 100),
        }
    }
}
