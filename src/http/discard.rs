//! How a response is given up for another attempt.

use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use bytes::Buf;
use futures::future::select;
use http::Version;
use http_body::Body;

use crate::clock::Clock;

/// Reads what is left of a short body, so that its connection can serve the next attempt. A long one costs less to break
/// off, and over HTTP/2 a stream can end without its connection.
pub(crate) async fn discard<B: Body>(version: Version, body: B, clock: &Clock) {
    if body.size_hint().lower() > DRAIN_BYTES || version >= Version::HTTP_2 {
        return;
    }
    select(pin!(drain(body)), pin!(clock.sleep(DRAIN_TIME))).await;
}

async fn drain<B: Body>(body: B) {
    let mut body = pin!(body);
    let mut read = 0;
    while read <= DRAIN_BYTES
        && let Some(Ok(frame)) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await
    {
        // An empty frame counts too, or a body of nothing else would be read for ever.
        read += frame.data_ref().map_or(0, |data| data.remaining() as u64).max(1);
    }
}

/// The most that is read of a response that is given up: what usually is under way already, since servers and kernels
/// buffer about as much. More is cheaper to break off.
const DRAIN_BYTES: u64 = 64 * 1024;

/// The longest time that a response is read for after it was given up: about the time that a new connection with TLS
/// takes, which is all that can be saved.
const DRAIN_TIME: Duration = Duration::from_millis(50);
