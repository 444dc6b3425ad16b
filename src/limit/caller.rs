//! A caller without a chain, as far as its context tells.

use tokio_util::sync::CancellationToken;

use crate::clock::Moment;
use crate::context::Context;
use crate::error::Kind;

/// Why a caller wants nothing any more.
pub(super) fn ended(cx: &Context) -> Option<Kind> {
    if cx.token().is_some_and(CancellationToken::is_cancelled) {
        Some(Kind::Cancelled)
    } else if cx.remaining().is_some_and(|left| left.is_zero()) {
        Some(Kind::DeadlineExceeded)
    } else {
        None
    }
}

/// Waits until a caller wants nothing any more.
pub(super) async fn end(cx: &Context) -> Kind {
    let deadline = cx.deadline().map_or(Moment::NEVER, |deadline| deadline.at());
    let cancelled = async {
        match cx.token() {
            Some(token) => token.cancelled().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = cancelled => Kind::Cancelled,
        () = cx.clock().sleep_until(deadline) => Kind::DeadlineExceeded,
    }
}
