//! A request body that is remembered while it is sent for the first time.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use super::clone_request::CloneRequest;
use crate::error::BoxError;
use crate::shield::{discard, wake_all};

/// A request body that is remembered while it is sent for the first time, up to a bound, so that it can be sent again.
///
/// It is read when a connection asks for it, and then as far ahead as data is there and fits into the bound: a short body is
/// in memory as soon as its first frame is sent. A body that turns out to be longer is let go: what was remembered is freed,
/// the rest passes through, and there is no other attempt, whose response says [why](super::NotRepeated). Nothing is ever
/// sent in part: an attempt has all of the body or does not begin, and one that can no longer have all of it fails.
///
/// ```
/// use steadfast::tower::{CloneRequest, Replay};
///
/// # use bytes::Bytes;
/// # use http_body_util::Full;
/// let request = http::Request::put("http://reports.example/7").body(Full::<Bytes>::from("rows"))?;
/// let request = request.map(Replay::new);
/// assert!(request.body().can_clone().is_ok());
/// # Ok::<_, http::Error>(())
/// ```
///
/// With tower's builder, `.map_request(|request: Request<Body>| request.map(Replay::new))` outside of the
/// [`Layer`](super::Layer) does so for all requests.
pub struct Replay<B> {
    memory: Arc<Mutex<Memory<B>>>,
    /// The body itself, while this copy is the one that reads it.
    reading: Option<Pin<Box<B>>>,
    /// How many of the remembered frames this copy has given.
    next: usize,
    /// What this copy has read ahead and nobody remembers.
    ahead: VecDeque<Bytes>,
    /// What the body failed with, after all that is ahead.
    failed: Option<BoxError>,
    /// How many bytes this copy has given.
    given: u64,
    is_over: bool,
}

/// What all copies of a body share.
struct Memory<B> {
    /// The body itself, while no copy reads it.
    rest: Option<Pin<Box<B>>>,
    frames: Vec<Bytes>,
    trailers: Option<HeaderMap>,
    /// How much more may be remembered, in bytes.
    room: usize,
    state: State,
    /// What the body has said of its size at the beginning.
    whole: SizeHint,
    /// Copies that wait for what another one reads.
    followers: Vec<Waker>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// All that was read is remembered, and there may be more.
    Open,
    /// All of the body is remembered.
    Complete,
    /// Nothing is remembered any more, and why.
    Lost(&'static str),
}

type Polled = Poll<Option<Result<Frame<Bytes>, BoxError>>>;

impl<B: Body> Replay<B> {
    /// Remembers up to [`DEFAULT_REPLAY_LIMIT`] of the body.
    pub fn new(body: B) -> Replay<B> {
        Replay::with_limit(body, DEFAULT_REPLAY_LIMIT)
    }

    /// Remembers up to `most` bytes of the body; 0 for a body that is to be sent only once, whatever its size.
    pub fn with_limit(body: B, most: usize) -> Replay<B> {
        let whole = body.size_hint();
        let state = if body.is_end_stream() {
            State::Complete
        } else if whole.lower() > most as u64 || most == 0 {
            State::Lost(TOO_LONG)
        } else {
            State::Open
        };
        let (rest, frames, followers) = (Some(Box::pin(body)), Vec::new(), Vec::new());
        Replay::of(Arc::new(Mutex::new(Memory { rest, frames, trailers: None, room: most, state, whole, followers })))
    }
}

impl<B> Replay<B> {
    fn of(memory: Arc<Mutex<Memory<B>>>) -> Replay<B> {
        let ahead = VecDeque::new();
        Replay { memory, reading: None, next: 0, ahead, failed: None, given: 0, is_over: false }
    }
}

impl<B> CloneRequest for Replay<B> {
    fn try_clone(&self) -> Option<Replay<B>> {
        self.can_clone().ok().map(|()| Replay::of(Arc::clone(&self.memory)))
    }

    /// Not while it is being sent and more is to come, and not after it was longer than the bound.
    fn can_clone(&self) -> Result<(), &'static str> {
        let memory = lock(&self.memory);
        match memory.state {
            State::Complete => Ok(()),
            State::Open if memory.rest.is_some() => Ok(()),
            State::Open => Err(IN_USE),
            State::Lost(why) => Err(why),
        }
    }
}

impl<B> Body for Replay<B>
where
    B: Body<Error: Into<BoxError>>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        if self.is_over {
            return Poll::Ready(None);
        }
        self.read_ahead(cx);
        let polled = match self.remembered(cx) {
            Some(polled) => polled,
            None => self.pass_through(cx),
        };
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                self.given += frame.data_ref().map_or(0, Bytes::len) as u64;
                self.is_over = frame.is_trailers();
            }
            Poll::Ready(_) => self.is_over = true,
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        let memory = lock(&self.memory);
        let is_at_end = memory.state == State::Complete && self.next == memory.frames.len();
        self.is_over || is_at_end && memory.trailers.is_none() && self.ahead.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let memory = lock(&self.memory);
        let mut left = SizeHint::new();
        left.set_lower(memory.whole.lower().saturating_sub(self.given));
        if let Some(upper) = memory.whole.upper() {
            left.set_upper(upper.saturating_sub(self.given));
        }
        left
    }
}

impl<B> Replay<B>
where
    B: Body<Error: Into<BoxError>>,
{
    /// Reads what is there at once and can be remembered.
    fn read_ahead(&mut self, cx: &mut Context<'_>) {
        if self.reading.is_none() {
            self.reading = lock(&self.memory).rest.take();
        }
        while let Some(body) = &mut self.reading
            && lock(&self.memory).state == State::Open
        {
            match body.as_mut().poll_frame(cx) {
                Poll::Pending => return,
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(mut data) => self.remember(data.copy_to_bytes(data.remaining())),
                    Err(frame) => lock(&self.memory).trailers = frame.into_trailers().ok(),
                },
                Poll::Ready(Some(Err(error))) => {
                    self.let_go(FAILED);
                    self.failed = Some(error.into());
                    self.reading = None;
                }
                Poll::Ready(None) => {
                    change(&self.memory, |memory| memory.state = State::Complete);
                    self.reading = None;
                }
            }
        }
    }

    fn remember(&mut self, data: Bytes) {
        // Small frames cost more than their data, and empty ones would never end.
        let cost = data.len().max(size_of::<Bytes>());
        let too_long = change(&self.memory, |memory| {
            if data.len() > memory.room || memory.room == 0 {
                return Some(data);
            }
            memory.room = memory.room.saturating_sub(cost);
            memory.frames.push(data);
            None
        });
        if let Some(data) = too_long {
            self.let_go(TOO_LONG);
            self.ahead.push_back(data);
        }
    }

    /// Nothing is remembered from now on; what this copy has yet to give stays with it.
    fn let_go(&mut self, why: &'static str) {
        let frames = change(&self.memory, |memory| {
            memory.state = State::Lost(why);
            std::mem::take(&mut memory.frames)
        });
        self.ahead.extend(frames.into_iter().skip(self.next));
    }

    /// The next frame of those that were read already; `None` if this copy has to read by itself.
    fn remembered(&mut self, cx: &mut Context<'_>) -> Option<Polled> {
        if let Some(data) = self.ahead.pop_front() {
            return Some(Poll::Ready(Some(Ok(Frame::data(data)))));
        }
        if let Some(error) = self.failed.take() {
            return Some(Poll::Ready(Some(Err(error))));
        }
        let mut follower = self.reading.is_none().then(|| cx.waker().clone());
        let frame = self.remembered_or_follow(&mut follower);
        discard(follower);
        frame
    }

    /// Takes the waker of a copy that has to wait for another one.
    fn remembered_or_follow(&mut self, follower: &mut Option<Waker>) -> Option<Polled> {
        let mut memory = lock(&self.memory);
        match (memory.state, memory.frames.get(self.next)) {
            (State::Lost(_), _) if self.reading.is_some() => None,
            (State::Lost(why), _) => Some(Poll::Ready(Some(Err(LetGo(why).into())))),
            (_, Some(data)) => {
                self.next += 1;
                Some(Poll::Ready(Some(Ok(Frame::data(data.clone())))))
            }
            (State::Complete, None) => {
                Some(Poll::Ready(memory.trailers.clone().map(|trailers| Ok(Frame::trailers(trailers)))))
            }
            (State::Open, None) => {
                let is_known = |waker: &Waker| memory.followers.iter().any(|known| known.will_wake(waker));
                let new = follower.take_if(|waker| !is_known(waker));
                memory.followers.extend(new);
                Some(Poll::Pending)
            }
        }
    }

    fn pass_through(&mut self, cx: &mut Context<'_>) -> Polled {
        let Some(body) = &mut self.reading else { return Poll::Ready(None) };
        let frame = |frame: Frame<B::Data>| frame.map_data(|mut data| data.copy_to_bytes(data.remaining()));
        body.as_mut().poll_frame(cx).map(|polled| polled.map(|polled| polled.map(frame).map_err(Into::into)))
    }
}

/// A copy that is given up in the middle leaves the rest to the next one.
impl<B> Drop for Replay<B> {
    fn drop(&mut self) {
        if let Some(body) = self.reading.take() {
            let over =
                change(
                    &self.memory,
                    |memory| {
                        if memory.state == State::Open { memory.rest.replace(body) } else { Some(body) }
                    },
                );
            drop(over);
        }
    }
}

impl<B> fmt::Debug for Replay<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay").field("state", &lock(&self.memory).state).finish_non_exhaustive()
    }
}

/// A copy that was made of a body beside another one, before either was read, and that now cannot have all of it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct LetGo(&'static str);

/// Changes what is remembered, and wakes the copies that wait for it once the lock is free.
fn change<B, R>(memory: &Mutex<Memory<B>>, change: impl FnOnce(&mut Memory<B>) -> R) -> R {
    let mut locked = lock(memory);
    let result = change(&mut locked);
    let followers = std::mem::take(&mut locked.followers);
    drop(locked);
    wake_all(followers);
    result
}

fn lock<T>(cell: &Mutex<T>) -> MutexGuard<'_, T> {
    cell.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many bytes of a request body a [`Replay`] remembers: what Envoy and linkerd keep for retries too. Most requests are far
/// shorter, and a thousand of them under way hold 64 MiB at most.
pub const DEFAULT_REPLAY_LIMIT: usize = 64 * 1024;

const TOO_LONG: &str = "the request body is longer than what is kept of it for another attempt";

const IN_USE: &str = "the request body is still being sent, and not all of it is known";

const FAILED: &str = "the request body failed";
