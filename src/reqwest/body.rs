//! What the end of a body of reqwest means.

use std::error::Error as StdError;

use super::judge;
use crate::http::Blame;
use crate::policy::End;
use crate::verdict::Verdict;

/// A body that cannot be decoded is no failure of a connection, and neither is one for which the request's own body is to
/// blame. A limit may be one of reqwest's own (`timeout`, `read_timeout`).
pub(super) struct OfReqwest;

impl Blame for OfReqwest {
    fn error(&self, error: &(dyn StdError + 'static)) -> End {
        let Some(error) = error.downcast_ref::<reqwest::Error>() else { return End::Failed };
        match judge::error(error) {
            Verdict::Permanent => End::Complete,
            Verdict::Ignored => End::Cancelled,
            _ if error.is_timeout() => End::TimedOut,
            _ => End::Failed,
        }
    }
}
