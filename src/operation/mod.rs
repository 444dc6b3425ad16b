//! The innermost end of a chain: what the user's code ends with, and adapters that say more about it.
//!
//! A plain closure is an operation: `Ok` is a success, and any `Err` is taken to be worth another attempt. **Tell the
//! library which errors are permanent**, in one of these ways:
//!
//! * [`faults()`]: the closure itself says so, with `.permanent()?` and its like;
//! * [`op()`]: rules beside one closure, `op(f).retry_if(|e| ..)`;
//! * a judging policy of [`judge`](crate::judge), innermost in a chain, for sharing.

mod faults;
mod leaf;
mod op;
mod state;

use std::time::Duration;

pub use self::faults::{Fault, FaultExt, Faults, faults};
pub(crate) use self::leaf::{Function, Leaf};
pub use self::leaf::{Nested, WithToken, nested, with_token};
pub use self::op::{Op, op};
pub use self::state::{StateFuture, WithState, with_state};
use crate::attempt::Attempt;
use crate::error::ConfigError;
use crate::outcome::Outcome;
use crate::policy::Call;
use crate::verdict::Verdict;

/// What an operation may end with: a `Result`, or an [`Outcome`] that is judged already (which is what [`faults()`] gives).
#[diagnostic::on_unimplemented(
    message = "the operation ends with `{Self}`, where `Result<{T}, {E}>` is expected",
    label = "an operation must return a future of a `Result`",
    note = "a judging policy with a closure over `&E` fits only operations whose error is that `E`",
    note = "end the closure with `Ok(value)` or `Err(error)`; if it cannot fail, with `Ok::<_, std::convert::Infallible>(value)`"
)]
pub trait Answer<T, E> {
    /// The answer with its judgement.
    fn judged(self) -> Outcome<T, E>;
}

impl<T, E> Answer<T, E> for Result<T, E> {
    #[inline(always)]
    fn judged(self) -> Outcome<T, E> {
        match self {
            Ok(value) => Outcome::success(value),
            Err(error) => Outcome::failed(error, Verdict::Transient),
        }
    }
}

impl<T, E> Answer<T, E> for Outcome<T, E> {
    #[inline(always)]
    fn judged(self) -> Outcome<T, E> {
        self
    }
}

/// An operation with more to say than a closure can: whether it may be sent again, how long it may run, how a value is given
/// up. For [`try_op`](crate::try_op) and [`Executor::run_op`](crate::Executor::run_op).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an `Operation` that ends with `Result<{T}, {E}>`",
    note = "a closure goes to `try_do` and `Executor::run`, or through `op(closure)` to `try_op` and `Executor::run_op`"
)]
pub trait Operation<T, E>: Sync {
    /// Starts one try.
    fn call(&self, attempt: Attempt) -> impl Future<Output = Outcome<T, E>> + Send;

    /// Revises the judgement on a try.
    fn judge(&self, call: Call<'_, E>, outcome: Outcome<T, E>) -> Outcome<T, E> {
        let _ = call;
        outcome
    }

    /// Whether the operation may be sent again after `after`, or beside a running try if that is `None`. Default: yes.
    ///
    /// # Errors
    /// The reason why not, for errors and reports.
    fn repeat(&self, after: Option<&Outcome<T, E>>) -> Result<(), &'static str> {
        let _ = after;
        Ok(())
    }

    /// Whether the result outlives the run, as the body of a response does, and is given the outcome's
    /// [`Tail`](crate::policy::Tail) to hold. Default: no.
    fn streams(&self) -> bool {
        false
    }

    /// The longest time that a try may run, if the operation bounds it itself. Default: no bound.
    fn limit(&self) -> Option<Duration> {
        None
    }

    /// Gives up a value that the caller will not get, within the wait before the next try. Default: drops it.
    fn discard(&self, value: T) -> impl Future<Output = ()> + Send
    where
        T: Send,
    {
        drop(value);
        std::future::ready(())
    }

    /// Refuses settings of the operation that cannot work.
    ///
    /// # Errors
    /// The setting that is refused.
    fn check(&self) -> Result<(), ConfigError> {
        Ok(())
    }
}
