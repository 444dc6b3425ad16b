use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use super::ManualClock;
use super::signal::Signal;

impl ManualClock {
    /// Runs `fut` to its end on this thread, with time that passes by itself: whenever the future
    /// is pending and nothing has woken it, the clock jumps to the next sleeper's deadline.
    ///
    /// No runtime is needed. When nothing sleeps, the thread waits for another one to wake the
    /// future. A clock that several threads run on jumps as soon as one of them is idle.
    ///
    /// # Panics
    ///
    /// When nothing sleeps on this clock and nobody holds the future's waker: it could never go on.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use steadfast::clock::Clock;
    ///
    /// let manual = Clock::manual();
    /// let clock = manual.clock();
    /// let waited = manual.block_on(async {
    ///     let start = clock.now();
    ///     for seconds in 1..=3 {
    ///         clock.sleep(Duration::from_secs(seconds)).await;
    ///     }
    ///     clock.now().since(start)
    /// });
    /// assert_eq!(waited, Duration::from_secs(6));
    /// ```
    #[track_caller]
    pub fn block_on<F: Future>(&self, fut: F) -> F::Output {
        let signal = Arc::new(Signal::here());
        let waker = Waker::from(Arc::clone(&signal));
        let mut fut = pin!(fut);
        loop {
            if let Poll::Ready(output) = fut.as_mut().poll(&mut Context::from_waker(&waker)) {
                return output;
            }
            self.pass_time_until_woken(&signal);
        }
    }

    #[track_caller]
    fn pass_time_until_woken(&self, signal: &Arc<Signal>) {
        while !signal.take() {
            if self.advance_to_next() {
                continue;
            }
            let forgotten = signal.is_forgotten();
            // Whoever gave up the last waker may have used it, or have left a timer behind.
            assert!(
                !forgotten || signal.is_set() || self.sleepers() > 0,
                "the future can never go on: it is pending, nothing sleeps on this manual clock and nobody holds its waker"
            );
            // A wake ends the wait at once; a new timer, or a waker given up, does not.
            thread::park_timeout(LOOK_AGAIN);
        }
    }
}

/// Real time, in which only another thread can do something for a waiting `block_on`.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use tokio::sync::oneshot;

    use super::super::Clock;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn poll_once(future: std::pin::Pin<&mut impl Future<Output = ()>>) -> Poll<()> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn block_on_returns_what_is_ready_at_once() {
        let clock = Clock::manual();
        let start = clock.now();
        assert_eq!(clock.block_on(async { 7 }), 7);
        assert_eq!(clock.now(), start);
    }

    #[test]
    fn block_on_passes_through_nested_sleeps() {
        let manual = Clock::manual();
        let clock = manual.clock();
        let start = manual.now();
        let nap = async |seconds: u32| {
            clock.sleep(seconds * SECOND).await;
            clock.sleep(seconds * SECOND).await;
            clock.now().since(start)
        };
        let ends = manual.block_on(async {
            let (one, three) = tokio::join!(nap(1), nap(3));
            (one, three, nap(10 * 365 * 24 * 3600).await)
        });
        let twenty_years = 20 * 365 * 24 * 3600 * SECOND;
        assert_eq!(ends, (2 * SECOND, 6 * SECOND, 6 * SECOND + twenty_years));
        assert_eq!(manual.sleepers(), 0);
    }

    #[test]
    fn block_on_leaves_the_time_alone_while_the_future_is_woken() {
        let manual = Clock::manual();
        let clock = manual.clock();
        let start = manual.now();
        manual.block_on(async {
            let mut sleep = pin!(clock.sleep(SECOND));
            assert!(poll_once(sleep.as_mut()).is_pending());
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            assert_eq!(clock.now(), start);
        });
    }

    #[test]
    fn block_on_passes_a_sleeper_that_is_not_its_own() {
        let manual = Clock::manual();
        let mut other = pin!(manual.clock().sleep(SECOND));
        assert!(poll_once(other.as_mut()).is_pending());
        manual.block_on(manual.clock().sleep(2 * SECOND));
        assert!(poll_once(other.as_mut()).is_ready());
    }

    #[test]
    fn block_on_waits_for_another_thread() {
        let clock = Clock::manual();
        let (answer, question) = oneshot::channel();
        let (polled, was_polled) = mpsc::channel();
        let helper = thread::spawn(move || {
            was_polled.recv().unwrap();
            answer.send(7).unwrap();
        });
        let got = clock.block_on(async {
            let mut question = pin!(question);
            std::future::poll_fn(|cx| {
                let poll = question.as_mut().poll(cx);
                let _ = polled.send(());
                poll
            })
            .await
        });
        assert_eq!(got, Ok(7));
        helper.join().unwrap();
    }

    #[test]
    fn block_on_sees_a_timer_that_another_thread_sets_later() {
        let clock = Clock::manual();
        let start = clock.now();
        let (answer, question) = oneshot::channel();
        let mover = clock.clone();
        let helper = thread::spawn(move || {
            mover.block_on(mover.clock().sleep(SECOND));
            answer.send(()).unwrap();
        });
        assert_eq!(clock.block_on(question), Ok(()));
        assert_eq!(clock.now().since(start), SECOND);
        helper.join().unwrap();
    }

    #[test]
    #[should_panic(expected = "nobody holds its waker")]
    fn block_on_refuses_to_wait_for_nobody() {
        Clock::manual().block_on(std::future::pending::<()>());
    }

    #[test]
    #[should_panic(expected = "nobody holds its waker")]
    fn block_on_refuses_to_sleep_for_ever() {
        let clock = Clock::manual();
        clock.block_on(clock.clock().sleep(Duration::MAX));
    }

    #[test]
    #[should_panic(expected = "nobody holds its waker")]
    fn block_on_notices_that_the_last_waker_is_given_up() {
        let (hand_over, taken) = mpsc::channel::<Waker>();
        let helper = thread::spawn(move || drop(taken.recv().unwrap()));
        Clock::manual().block_on(std::future::poll_fn(|cx| {
            let _ = hand_over.send(cx.waker().clone());
            Poll::<()>::Pending
        }));
        helper.join().unwrap();
    }

    #[test]
    fn the_panic_names_the_callers_line() {
        let line = Arc::new(Mutex::new(None));
        let seen = Arc::clone(&line);
        let caller = thread::Builder::new().name("names the line".into());
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if thread::current().name() == Some("names the line") {
                *seen.lock().unwrap() = info.location().map(std::panic::Location::line);
            } else {
                previous(info);
            }
        }));
        let expected = line!() + 2;
        let blocked = caller.spawn(|| {
            Clock::manual().block_on(std::future::pending::<()>());
        });
        assert!(blocked.unwrap().join().is_err());
        assert_eq!(*line.lock().unwrap(), Some(expected));
    }

    #[test]
    fn sleeps_on_many_threads_all_end() {
        let clock = Clock::manual();
        thread::scope(|scope| {
            for n in 1..=8 {
                let clock = &clock;
                scope.spawn(move || {
                    for _ in 0..50 {
                        clock.block_on(clock.clock().sleep(n * SECOND));
                    }
                });
            }
        });
        assert_eq!(clock.sleepers(), 0);
    }
}
