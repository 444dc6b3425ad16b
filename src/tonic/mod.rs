#![doc = include_str!("guide.md")]

mod attempt;
mod deadline;
mod judge;
mod pushback;
mod status;

pub use self::attempt::RequestExt;
pub use self::pushback::Pushback;
pub use self::status::StatusExt;
