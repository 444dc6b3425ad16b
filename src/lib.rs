//! Keeps a program that calls an unreliable dependency correct, fast and polite.

pub mod executor;
mod drive;
pub mod chain;
pub mod retry;
pub mod timeout;
pub mod operation;
pub mod judge;
pub mod policy;
mod run;
mod outcome;
pub mod event;
mod context;
mod attempt;
mod cancel;
mod life;
mod verdict;
pub mod error;
pub mod clock;
mod rng;

pub use tokio_util::sync::CancellationToken;

pub use self::attempt::Attempt;
pub use self::cancel::{Cancellation, Cause};
pub use self::clock::Clock;
pub use self::context::{Context, Priority};
pub use self::drive::{try_do, try_op};
pub use self::error::{ConfigError, Error, Refusal};
pub use self::executor::Executor;
pub use self::operation::{faults, op};
pub use self::policy::Policy;
pub use self::retry::Retry;
pub use self::timeout::Timeout;
pub use self::verdict::{Classified, Verdict};
