// Defined below the policies, so that events can tell of transitions.
pub use crate::transition::{Cause, Counts, State, Transition};
