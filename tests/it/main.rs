//! Behaviour through the public API, on the manual clock. One binary: it links once. The modules mirror `src/lib.rs`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy does not take the helpers of tests for tests")]

mod adapters;
mod backoff;
mod breaker;
mod breaker_cases;
mod breaker_permit;
mod breaker_retry;
mod breaker_table;
mod breaker_trial;
mod breaker_window;
mod breakers;
mod budget;
mod callbacks;
mod cancellation;
mod chain;
mod clock;
mod errors;
mod events;
mod executor;
mod hedge;
mod hedge_model;
mod judge;
mod nodivbyzero;
mod operation;
mod policies;
mod policy;
mod regressions;
mod reqwest;
mod reqwest_body;
mod reqwest_server;
mod retry;
mod seed_002;
mod snippets;
mod support;
mod timeout;
mod verdict_table;
