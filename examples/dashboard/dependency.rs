//! The dependency that has the outage. It stands for a server: what it does is the script's business.

use std::fmt;
use std::future::pending;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use steadfast::clock::{Clock, Moment};

use crate::script::{Behaviour, Phase, phase_at};

/// What it answers when it is not well.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unavailable;

/// It knows what things cost, when it is well.
pub(crate) struct Dependency {
    clock: Clock,
    /// When the script began.
    began: Moment,
    dice: Mutex<SmallRng>,
}

impl Dependency {
    /// The script begins now.
    pub(crate) fn new(seed: u64) -> Dependency {
        let clock = Clock::tokio();
        Dependency { began: clock.now(), dice: Mutex::new(SmallRng::seed_from_u64(seed)), clock }
    }

    /// How long the script has been playing.
    pub(crate) fn playing(&self) -> Duration {
        self.clock.now().since(self.began)
    }

    pub(crate) fn phase(&self) -> &'static Phase {
        phase_at(self.playing())
    }

    /// The price of something, in cents.
    pub(crate) async fn price(&self) -> Result<u32, Unavailable> {
        let (work, luck) = self.roll();
        match self.phase().behaviour {
            Behaviour::Healthy => self.answer_after(work).await,
            Behaviour::Slow(time) => self.answer_after(time + work * 4).await,
            Behaviour::Errors(share) if luck < share => {
                self.clock.sleep(work).await;
                Err(Unavailable)
            }
            Behaviour::Errors(_) => self.answer_after(work).await,
            Behaviour::Dead => pending().await,
        }
    }

    async fn answer_after(&self, time: Duration) -> Result<u32, Unavailable> {
        self.clock.sleep(time).await;
        Ok(PRICE)
    }

    /// How long it takes this time, and a number below one.
    fn roll(&self) -> (Duration, f64) {
        let mut dice = self.dice.lock().unwrap_or_else(PoisonError::into_inner);
        (QUICKEST + SPREAD.mul_f64(dice.random::<f64>().powi(3)), dice.random())
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("503 Service Unavailable")
    }
}

const PRICE: u32 = 19_99;

/// What a healthy answer takes: between 5 and 35 ms, and mostly little.
const QUICKEST: Duration = Duration::from_millis(5);
const SPREAD: Duration = Duration::from_millis(30);
