#![doc = include_str!("guide.md")]

mod attempt;
mod body;
mod deadline;
mod judge;
mod layer;
mod protocol;
mod pushback;
mod status;
mod statuses;
mod unary;

pub use self::attempt::RequestExt;
pub use self::layer::{Layer, Service};
pub use self::protocol::Grpc;
pub use self::pushback::Pushback;
pub use self::status::StatusExt;
pub use self::statuses::{StatusFuture, Statuses};
