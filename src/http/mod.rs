//! What the adapters to HTTP share, whatever sends the requests: what an answer is worth, which requests are sent again, and
//! the guard around a body that outlives its run.

mod body;
mod body_error;
mod body_timeout;
mod causes;
mod discard;
mod judge;
#[cfg(any(feature = "reqwest", feature = "tonic"))]
mod network;
mod repeat;
mod response;
mod retry_after;

pub(crate) use self::body::{Blame, Guarded, Rules, has_no_data};
pub use self::body_error::BodyError;
pub(crate) use self::body_error::GivenUp;
pub use self::body_timeout::{BodyTimeout, DEFAULT_IDLE_LIMIT};
pub(crate) use self::body_timeout::{Limits, is_event_stream};
pub(crate) use self::causes::{causes, find};
pub(crate) use self::discard::discard;
pub(crate) use self::judge::{answer, status};
#[cfg(feature = "tonic")]
pub(crate) use self::network::Sign;
#[cfg(any(feature = "reqwest", feature = "tonic"))]
pub(crate) use self::network::{sign, was_not_processed};
pub(crate) use self::repeat::{NO_COPY, Repeat, did_nothing};
pub use self::response::{NotRepeated, ResponseExt};
