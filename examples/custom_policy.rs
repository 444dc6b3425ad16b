//! Policies of your own: one that prints a line for each try, and one that sheds load.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use steadfast::error::Kind;
use steadfast::policy::{Call, Next, Outcome, Policy, Settings, Site};
use steadfast::{Clock, ConfigError, Error, Executor, Retry};

/// Prints how each try ended, and how long it took.
struct Log;

impl Settings for Log {}

impl<T: Send, E: Send> Policy<T, E> for Log {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        let start = call.clock().now();
        let outcome = next.call(call).await;
        let took = call.clock().now().since(start);
        println!("try {}: {:?} after {} ms", call.number(), outcome.verdict(), took.as_millis());
        outcome
    }
}

/// Refuses calls while as many as allowed are in flight.
struct Gate {
    most: usize,
    in_flight: AtomicUsize,
}

impl Settings for Gate {
    fn validate(&self, _: &mut Site<'_>) -> Result<(), ConfigError> {
        if self.most == 0 { Err(ConfigError::new("most", 0, "must be at least 1")) } else { Ok(()) }
    }
}

impl<T: Send, E: Send> Policy<T, E> for Gate {
    async fn run<N: Next<T, E>>(&self, call: Call<'_, E>, next: N) -> Outcome<T, E> {
        let before = self.in_flight.fetch_add(1, Ordering::Relaxed);
        // Held across the await: a call that is refused, fails, or is dropped half-way gives its place back.
        let _place = Place(&self.in_flight);
        if before >= self.most {
            return Outcome::rejected(Error::refused(Kind::Overloaded));
        }
        next.call(call).await
    }
}

struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[tokio::main]
async fn main() -> Result<(), ConfigError> {
    let gate = Arc::new(Gate { most: 2, in_flight: AtomicUsize::new(0) });
    let search = Executor::builder("search").policies((Arc::clone(&gate), Retry::immediate(), Log)).build()?;
    let query = || {
        search.run(|attempt| async move {
            Clock::tokio().sleep(Duration::from_millis(10)).await;
            if attempt.is_retry() { Ok("found") } else { Err("index is being built") }
        })
    };

    // Three at once, of which one is too many.
    let (one, two, three) = tokio::join!(query(), query(), query());
    assert!(matches!((one, two), (Ok("found"), Ok("found"))));
    assert!(three.is_err_and(|error| error.kind() == Kind::Overloaded));

    // A call that is given up leaves its place.
    let given_up = tokio::select! {
        biased;
        _ = query() => false,
        () = Clock::tokio().sleep(Duration::from_millis(5)) => true,
    };
    assert!(given_up && gate.in_flight.load(Ordering::Relaxed) == 0);
    Ok(())
}
