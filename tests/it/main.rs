//! Behaviour through the public API, on the manual clock. One binary: it links once. The modules mirror `src/lib.rs`.

mod adapters;
mod backoff;
mod callbacks;
mod cancellation;
mod chain;
mod clock;
mod errors;
mod events;
mod executor;
mod judge;
mod nodivbyzero;
mod operation;
mod policies;
mod policy;
mod reqwest;
mod reqwest_body;
mod reqwest_server;
mod retry;
mod seed_002;
mod snippets;
mod support;
mod timeout;
mod verdict_table;
