//! Behaviour through the public API, on the manual clock. One binary: it links once. The modules mirror `src/lib.rs`.

mod backoff;
mod policies;
mod retry;
mod support;
mod verdict_table;
