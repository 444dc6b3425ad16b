//! tower: a layer that puts a chain around any [`Service`](tower_service::Service).

mod body;
mod clone_request;
mod exchange;
mod http;
mod instances;
mod layer;
mod plain;
mod protocol;
mod replay;
mod service;
mod shelf;
mod wrap;

pub use self::body::Body;
pub use self::clone_request::CloneRequest;
#[cfg(feature = "tonic")]
pub(crate) use self::clone_request::Template;
#[cfg(feature = "tonic")]
pub(crate) use self::http::Whole;
pub use self::http::{Http, Idempotent};
pub use self::layer::Layer;
pub use self::plain::Plain;
#[cfg(feature = "tonic")]
pub(crate) use self::protocol::{Protocol, Report, Requests};
pub use self::replay::{DEFAULT_REPLAY_LIMIT, Replay};
pub use self::service::Service;
pub use self::wrap::{Ruled, Typed, WithContext};
pub use crate::http::{BodyError, BodyTimeout, DEFAULT_IDLE_LIMIT, NotRepeated, ResponseExt};
