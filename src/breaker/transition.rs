// Defined below the policies, so that events can tell of transitions.
pub use crate::snapshot::{Counts, State};
pub use crate::transition::{Cause, Transition};
