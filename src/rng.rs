//! Where the library gets its randomness from.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

/// A source of randomness whose clones all draw from one stream, and so never repeat each other.
///
/// It is for spreading load, not for secrets.
#[derive(Clone)]
pub(crate) struct Rng(Source);

#[derive(Clone)]
enum Source {
    /// The drawing thread's own generator: no lock, no sharing between threads.
    Thread,
    /// One generator for all clones, of a kind that gives the same numbers on every platform.
    Seeded(Arc<Mutex<Xoshiro256PlusPlus>>),
}

impl Rng {
    /// Draws that nobody can foresee; for production.
    pub(crate) const THREAD: &'static Rng = &Rng(Source::Thread);

    /// Draws that the seed decides; for tests and simulations. Threads that share it each get a
    /// part of the one sequence, which part is up to their scheduling.
    pub(crate) fn seeded(seed: u64) -> Rng {
        let generator = Xoshiro256PlusPlus::seed_from_u64(seed);
        Rng(Source::Seeded(Arc::new(Mutex::new(generator))))
    }

    /// A number drawn evenly from `[0, 1)`.
    pub(crate) fn unit(&self) -> f64 {
        match &self.0 {
            Source::Thread => thread_rng().random(),
            Source::Seeded(shared) => with(shared, RngExt::random),
        }
    }

    /// A duration drawn evenly, by the nanosecond, from zero to `most`, both included.
    pub(crate) fn up_to(&self, most: Duration) -> Duration {
        let range = 0..=most.as_nanos();
        let nanos = match &self.0 {
            Source::Thread => thread_rng().random_range(range),
            Source::Seeded(shared) => with(shared, |generator| generator.random_range(range)),
        };
        from_nanos(nanos)
    }
}

impl fmt::Debug for Rng {
    /// Keeps the state to itself: with it the next draws could be told.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Source::Thread => "Rng::Thread",
            Source::Seeded(_) => "Rng::Seeded",
        })
    }
}

#[expect(clippy::disallowed_methods, reason = "this is where the library draws from the thread")]
fn thread_rng() -> rand::rngs::ThreadRng {
    rand::rng()
}

/// A generator is sound after every draw, so a poisoned one is as good as any.
fn with<T>(shared: &Mutex<Xoshiro256PlusPlus>, draw: impl FnOnce(&mut Xoshiro256PlusPlus) -> T) -> T {
    draw(&mut shared.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The duration of so many nanoseconds, which must have been drawn from within a duration.
fn from_nanos(nanos: u128) -> Duration {
    let seconds = u64::try_from(nanos / NANOS_PER_SEC).unwrap_or(u64::MAX);
    let rest = (nanos % NANOS_PER_SEC) as u32;
    Duration::new(seconds, rest)
}

const NANOS_PER_SEC: u128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread;

    use super::*;

    fn bits(rng: &Rng, count: usize) -> Vec<u64> {
        (0..count).map(|_| rng.unit().to_bits()).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_sequence() {
        assert_eq!(bits(&Rng::seeded(7), 100), bits(&Rng::seeded(7), 100));
        assert_ne!(bits(&Rng::seeded(7), 100), bits(&Rng::seeded(8), 100));
    }

    /// Simulations are replayed by their seed: another sequence belongs in the changelog.
    #[test]
    fn a_seed_means_the_same_in_every_release() {
        let rng = Rng::seeded(42);
        let drawn: Vec<u64> = (0..3).map(|_| rng.up_to(Duration::from_secs(1)).as_nanos() as u64).collect();
        assert_eq!(drawn, [318_821_040, 701_135_598, 588_098_467]);
    }

    #[test]
    fn clones_take_turns_in_one_sequence() {
        let alone = bits(&Rng::seeded(7), 100);

        let rng = Rng::seeded(7);
        let clone = rng.clone();
        let shared: Vec<u64> = (0..50).flat_map(|_| [bits(&rng, 1)[0], bits(&clone, 1)[0]]).collect();
        assert_eq!(shared, alone);
    }

    #[test]
    fn clones_on_other_threads_do_not_repeat_each_other() {
        for rng in [&Rng::seeded(7), Rng::THREAD] {
            let draws: Vec<u64> = thread::scope(|scope| {
                let threads: Vec<_> = (0..4)
                    .map(|_| {
                        let clone = rng.clone();
                        scope.spawn(move || bits(&clone, 100))
                    })
                    .collect();
                threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
            });
            let distinct: HashSet<u64> = draws.iter().copied().collect();
            assert_eq!(distinct.len(), 400);
        }
    }

    #[test]
    fn units_fill_the_range_from_zero_to_below_one() {
        for rng in [&Rng::seeded(7), Rng::THREAD] {
            let draws: Vec<f64> = (0..10_000).map(|_| rng.unit()).collect();
            assert!(draws.iter().all(|unit| (0.0..1.0).contains(unit)));
            assert!(draws.iter().any(|unit| *unit < 0.01));
            assert!(draws.iter().any(|unit| *unit > 0.99));
        }
    }

    #[test]
    fn units_are_spread_evenly() {
        let rng = Rng::seeded(7);
        let mut tenths = [0_u32; 10];
        for _ in 0..100_000 {
            tenths[(rng.unit() * 10.0) as usize] += 1;
        }
        // Five standard deviations of a fair draw.
        assert!(tenths.iter().all(|count| count.abs_diff(10_000) < 475), "{tenths:?}");
    }

    #[test]
    fn durations_include_both_ends() {
        let rng = Rng::seeded(7);
        let drawn: HashSet<Duration> = (0..1_000).map(|_| rng.up_to(Duration::from_nanos(3))).collect();
        assert_eq!(drawn, (0..=3).map(Duration::from_nanos).collect());
    }

    #[test]
    fn nothing_is_drawn_from_nothing() {
        for rng in [&Rng::seeded(7), Rng::THREAD] {
            assert_eq!(rng.up_to(Duration::ZERO), Duration::ZERO);
        }
    }

    #[test]
    fn the_longest_duration_is_a_range_like_any_other() {
        let rng = Rng::seeded(7);
        let drawn: Vec<Duration> = (0..1_000).map(|_| rng.up_to(Duration::MAX)).collect();
        assert!(drawn.iter().any(|d| *d < Duration::MAX / 10));
        assert!(drawn.iter().any(|d| *d > Duration::MAX / 10 * 9));
        assert_eq!(from_nanos(Duration::MAX.as_nanos()), Duration::MAX);
    }

    #[test]
    fn a_poisoned_source_still_draws() {
        let rng = Rng::seeded(7);
        let Source::Seeded(shared) = &rng.0 else { unreachable!() };
        let poisoning = AssertUnwindSafe(|| with(shared, |_| -> f64 { panic!("on purpose") }));
        assert!(catch_unwind(poisoning).is_err());
        assert!(shared.is_poisoned());

        assert_eq!(bits(&rng, 10), bits(&Rng::seeded(7), 10));
    }

    #[test]
    fn its_state_is_not_shown() {
        assert_eq!(format!("{:?} {:?}", Rng::THREAD, Rng::seeded(7)), "Rng::Thread Rng::Seeded");
    }
}
