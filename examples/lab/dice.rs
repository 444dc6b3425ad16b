//! Randomness that is the same on every machine.

use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

/// A source of numbers that the seed decides.
///
/// Sums, products and roots of floats are the same everywhere, logarithms and the like are not: those are `libm`'s.
pub(crate) struct Dice(Xoshiro256PlusPlus);

impl Dice {
    /// Sources of one seed and different streams have nothing to do with each other: so arrivals stay as they are, whatever a policy
    /// makes of the calls. The generator spreads its seed with SplitMix64, which adds a constant for each word: it must not be the
    /// one here, or the words of one seed would be those of the next one, too.
    pub(crate) fn new(seed: u64, stream: u64) -> Dice {
        Dice(Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_mul(SEEDS).wrapping_add(stream)))
    }

    /// From `[0, 1)`.
    pub(crate) fn unit(&mut self) -> f64 {
        self.0.random()
    }

    pub(crate) fn chance(&mut self, share: f64) -> bool {
        self.unit() < share
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        // Not `usize`, whose draws depend on its width.
        self.0.random_range(0..n as u64) as usize
    }

    /// The time to the next event of a Poisson process.
    pub(crate) fn exponential(&mut self, mean: Duration) -> Duration {
        mean.mul_f64(-libm::log(1.0 - self.unit()))
    }

    /// With a mean of 0 and a deviation of 1 (Box and Muller).
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * libm::log(1.0 - self.unit())).sqrt();
        radius * libm::cos(std::f64::consts::TAU * self.unit())
    }

    pub(crate) fn lognormal(&mut self, median: Duration, sigma: f64) -> Duration {
        scaled(median, libm::exp(sigma * self.normal()))
    }
}

/// What is too long for a `Duration` is for ever.
pub(crate) fn scaled(time: Duration, factor: f64) -> Duration {
    Duration::try_from_secs_f64(time.as_secs_f64() * factor).unwrap_or(Duration::MAX)
}

/// Odd, so that no two seeds are the same; the digits of the square root of two.
const SEEDS: u64 = 0x6A09_E667_F3BC_C909;

#[cfg(test)]
mod tests {
    use super::*;

    /// To the last bit: what comes out of it decides which of two things happens first.
    #[test]
    fn it_draws_the_same_on_every_machine() {
        let mut dice = Dice::new(1, 2);
        let drawn = [dice.unit(), dice.normal()].map(f64::to_bits);
        assert_eq!(drawn, [4_606_599_290_990_992_324, 13_830_879_083_780_411_493]);
        let times = [dice.exponential(Duration::from_secs(1)), dice.lognormal(Duration::from_secs(1), 0.5)];
        assert_eq!(times, [2_445_006_469, 1_839_866_806].map(Duration::from_nanos));
    }
}
