//! Pages for whoever puts it into production: what orders of policies mean, which numbers to choose, what a limit covers, how a call
//! ends early, how to test, and how to come from other libraries.
//!
//! Pages about one part stay with it: [breakers](crate::breaker), [HTTP](crate::reqwest), [judging](crate::operation).

#[doc = include_str!("order.md")]
pub mod order {}

#[doc = include_str!("numbers.md")]
pub mod numbers {}

#[doc = include_str!("timeouts.md")]
pub mod timeouts {}

#[doc = include_str!("cancellation.md")]
pub mod cancellation {}

#[doc = include_str!("testing.md")]
pub mod testing {}

#[doc = include_str!("migrating.md")]
pub mod migrating {}
