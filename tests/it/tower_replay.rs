//! Request bodies that are remembered while they are sent: nothing is lost, nothing is sent twice in one attempt, nothing is
//! kept beyond the bound.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::{FutureExt, StreamExt};
use http::HeaderMap;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Body, Frame};
use steadfast::tower::{CloneRequest, DEFAULT_REPLAY_LIMIT, Replay};

type Sent = Result<Frame<Bytes>, std::io::Error>;
type Slow = StreamBody<UnboundedReceiver<Sent>>;

/// A body that comes when the test sends it.
fn slow(limit: usize) -> (UnboundedSender<Sent>, Replay<Slow>) {
    let (sender, receiver) = unbounded();
    (sender, Replay::with_limit(StreamBody::new(receiver), limit))
}

fn data(bytes: &'static str) -> Sent {
    Ok(Frame::data(bytes.into()))
}

/// What a copy gives now: a frame, its end or an error, or nothing yet.
fn next<B: Body<Data = Bytes, Error = tower::BoxError> + Unpin>(body: &mut B) -> Poll<Option<Result<String, String>>> {
    let text = |frame: Frame<Bytes>| match frame.into_data() {
        Ok(data) => String::from_utf8(data.to_vec()).unwrap(),
        Err(frame) => format!("{:?}", frame.into_trailers().unwrap()),
    };
    match body.frame().now_or_never() {
        None => Poll::Pending,
        Some(polled) => Poll::Ready(polled.map(|frame| frame.map(text).map_err(|error| error.to_string()))),
    }
}

fn some(text: &str) -> Poll<Option<Result<String, String>>> {
    Poll::Ready(Some(Ok(text.to_owned())))
}

#[test]
fn a_copy_gives_what_the_first_has_given() {
    let (sender, template) = slow(100);
    let mut first = template.try_clone().unwrap();
    for part in ["to ", "be ", "continued"] {
        sender.unbounded_send(data(part)).unwrap();
        assert_eq!(next(&mut first), some(part));
    }
    assert_eq!(next(&mut first), Poll::Pending);
    drop(sender);
    assert_eq!(next(&mut first), Poll::Ready(None));
    for _ in 0..2 {
        let mut copy = template.try_clone().unwrap();
        assert_eq!([next(&mut copy), next(&mut copy), next(&mut copy)], [some("to "), some("be "), some("continued")]);
        assert!(copy.is_end_stream());
        assert_eq!(next(&mut copy), Poll::Ready(None));
    }
}

#[test]
fn what_is_there_at_once_is_remembered_with_the_first_frame() {
    let (sender, template) = slow(100);
    for part in ["to ", "be ", "continued"] {
        sender.unbounded_send(data(part)).unwrap();
    }
    drop(sender);
    let mut first = template.try_clone().unwrap();
    assert_eq!(next(&mut first), some("to "));
    assert_eq!(template.can_clone(), Ok(()), "all of it is there, while the first is being sent");
    let mut beside = template.try_clone().unwrap();
    assert_eq!([next(&mut beside), next(&mut first), next(&mut beside)], [some("to "), some("be "), some("be ")]);
}

#[test]
fn a_body_that_is_still_coming_is_not_sent_twice_at_a_time() {
    let (sender, template) = slow(100);
    sender.unbounded_send(data("to ")).unwrap();
    let mut first = template.try_clone().unwrap();
    assert_eq!(next(&mut first), some("to "));
    assert!(template.can_clone().unwrap_err().contains("still being sent"));
    assert!(template.try_clone().is_none());
    // Its attempt is over: the next one has what was sent, and reads on.
    drop(first);
    let mut second = template.try_clone().unwrap();
    sender.unbounded_send(data("be")).unwrap();
    drop(sender);
    assert_eq!([next(&mut second), next(&mut second)], [some("to "), some("be")]);
    assert_eq!(next(&mut second), Poll::Ready(None));
}

#[test]
fn a_body_longer_than_the_bound_passes_through_once() {
    let (sender, template) = slow(8);
    let mut first = template.try_clone().unwrap();
    for part in ["12345678", "9"] {
        sender.unbounded_send(data(part)).unwrap();
    }
    assert_eq!(next(&mut first), some("12345678"));
    assert!(template.can_clone().unwrap_err().contains("longer"));
    sender.unbounded_send(data("10")).unwrap();
    assert_eq!([next(&mut first), next(&mut first), next(&mut first)], [some("9"), some("10"), Poll::Pending]);
    drop(sender);
    assert_eq!(next(&mut first), Poll::Ready(None));
    assert!(template.try_clone().is_none());
}

#[test]
fn exactly_the_bound_is_remembered() {
    let whole = Bytes::from(vec![7; DEFAULT_REPLAY_LIMIT]);
    let (sender, receiver) = unbounded::<Sent>();
    let template = Replay::new(StreamBody::new(receiver));
    sender.unbounded_send(Ok(Frame::data(whole.clone()))).unwrap();
    drop(sender);
    let read = |body: Replay<Slow>| body.collect().now_or_never().unwrap().unwrap().to_bytes();
    assert!(read(template.try_clone().unwrap()) == whole && read(template.try_clone().unwrap()) == whole);
    // One more is known to be too long before anything is sent.
    let longer = Replay::new(Full::new(Bytes::from(vec![7; DEFAULT_REPLAY_LIMIT + 1])));
    assert!(longer.can_clone().unwrap_err().contains("longer"));
    assert_eq!(longer.collect().now_or_never().unwrap().unwrap().to_bytes().len(), DEFAULT_REPLAY_LIMIT + 1);
}

#[test]
fn what_was_remembered_is_freed_once_it_is_too_much() {
    /// Counts its copies that are alive.
    struct Counted(Arc<AtomicUsize>);
    impl AsRef<[u8]> for Counted {
        fn as_ref(&self) -> &[u8] {
            &[7; 100]
        }
    }
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_sub(1, SeqCst);
        }
    }
    let alive = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&alive);
    let chunks = futures::stream::iter(0..1_000).map(move |_| {
        count.fetch_add(1, SeqCst);
        Sent::Ok(Frame::data(Bytes::from_owner(Counted(Arc::clone(&count)))))
    });
    let mut body = Replay::with_limit(StreamBody::new(chunks), 1_000);
    let mut most = 0;
    let mut given = 0;
    while let Some(frame) = body.frame().now_or_never().unwrap() {
        given += frame.unwrap().into_data().unwrap().len();
        most = most.max(alive.load(SeqCst));
    }
    assert_eq!((given, alive.load(SeqCst)), (100_000, 0));
    assert!(most <= 11, "{most} chunks of 1,000");
}

#[test]
fn small_frames_are_counted_for_what_they_cost() {
    let polled = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&polled);
    let endless = futures::stream::repeat_with(move || {
        count.fetch_add(1, SeqCst);
        Sent::Ok(Frame::data(Bytes::from_static(b"7")))
    });
    let mut body = Replay::with_limit(StreamBody::new(endless), 1_000);
    assert_eq!(next(&mut body), some("7"));
    assert!(polled.load(SeqCst) <= 40, "{} frames for 1,000 bytes", polled.load(SeqCst));
}

#[test]
fn frames_without_data_do_not_keep_it_reading_for_ever() {
    let endless = futures::stream::repeat_with(|| Sent::Ok(Frame::data(Bytes::new())));
    let mut body = Replay::with_limit(StreamBody::new(endless), 1_000);
    for _ in 0..100 {
        assert_eq!(next(&mut body), some(""));
    }
    assert!(body.can_clone().unwrap_err().contains("longer"));
}

#[test]
fn a_copy_that_cannot_have_all_of_it_fails() {
    let (sender, template) = slow(8);
    // Two are made before anybody reads: one of them follows the other.
    let (mut first, mut follower) = (template.try_clone().unwrap(), template.try_clone().unwrap());
    sender.unbounded_send(data("1234")).unwrap();
    assert_eq!([next(&mut first), next(&mut follower)], [some("1234"), some("1234")]);
    sender.unbounded_send(data("56789")).unwrap();
    assert_eq!(next(&mut first), some("56789"));
    let Poll::Ready(Some(Err(error))) = next(&mut follower) else { panic!("it must not end quietly") };
    assert!(error.contains("longer"), "{error}");
}

#[test]
fn a_copy_that_follows_is_woken_and_takes_over() {
    let (sender, template) = slow(100);
    let (mut first, mut follower) = (template.try_clone().unwrap(), template.try_clone().unwrap());
    assert_eq!(next(&mut first), Poll::Pending);
    let (waker, woken) = futures_test_waker();
    let mut cx = Context::from_waker(&waker);
    assert!(std::pin::Pin::new(&mut follower).poll_frame(&mut cx).is_pending());
    sender.unbounded_send(data("to be")).unwrap();
    assert_eq!(next(&mut first), some("to be"));
    assert_eq!(woken.load(SeqCst), 1);
    assert_eq!(next(&mut follower), some("to be"));
    assert!(std::pin::Pin::new(&mut follower).poll_frame(&mut cx).is_pending());
    drop(first);
    assert_eq!(woken.load(SeqCst), 2);
    sender.unbounded_send(data("continued")).unwrap();
    assert_eq!(next(&mut follower), some("continued"));
}

/// A waker that counts.
fn futures_test_waker() -> (Waker, Arc<AtomicUsize>) {
    struct Count(Arc<AtomicUsize>);
    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let count = Arc::new(AtomicUsize::new(0));
    (Waker::from(Arc::new(Count(Arc::clone(&count)))), count)
}

#[test]
fn a_body_that_fails_fails_once_and_for_all() {
    let (sender, template) = slow(100);
    let mut first = template.try_clone().unwrap();
    sender.unbounded_send(data("to ")).unwrap();
    sender.unbounded_send(Err(std::io::Error::other("the disk is gone"))).unwrap();
    assert_eq!([next(&mut first), next(&mut first)], [some("to "), Poll::Ready(Some(Err("the disk is gone".into())))]);
    assert_eq!(next(&mut first), Poll::Ready(None));
    assert!(template.can_clone().unwrap_err().contains("failed"));
}

#[test]
fn trailers_are_part_of_it() {
    let (sender, template) = slow(100);
    sender.unbounded_send(data("to be")).unwrap();
    let trailers = HeaderMap::from_iter([(http::header::ETAG, "7".parse().unwrap())]);
    sender.unbounded_send(Ok(Frame::trailers(trailers))).unwrap();
    drop(sender);
    for _ in 0..2 {
        let mut copy = template.try_clone().unwrap();
        assert_eq!(next(&mut copy), some("to be"));
        assert!(!copy.is_end_stream());
        assert_eq!(next(&mut copy), some(r#"{"etag": "7"}"#));
        assert_eq!((next(&mut copy), copy.is_end_stream()), (Poll::Ready(None), true));
    }
}

#[test]
fn its_size_is_announced_as_before() {
    let template = Replay::new(Full::new(Bytes::from("to be continued")));
    for _ in 0..2 {
        let mut copy = template.try_clone().unwrap();
        assert_eq!((copy.size_hint().exact(), copy.is_end_stream()), (Some(15), false));
        assert_eq!(next(&mut copy), some("to be continued"));
        assert_eq!((copy.size_hint().exact(), copy.is_end_stream()), (Some(0), true));
    }
    let empty = Replay::new(Full::new(Bytes::new()));
    assert!(empty.is_end_stream() && empty.try_clone().unwrap().is_end_stream());
    assert_eq!(slow(9).1.size_hint().exact(), None);
}

#[test]
fn nothing_is_read_before_it_is_asked_for() {
    let log = Arc::new(Mutex::new(0));
    let count = Arc::clone(&log);
    let counted = futures::stream::repeat_with(move || {
        *count.lock().unwrap() += 1;
        data("7")
    });
    let template = Replay::new(StreamBody::new(counted.take(3)));
    let copies: Vec<_> = (0..3).map(|_| template.try_clone().unwrap()).collect();
    assert_eq!((*log.lock().unwrap(), copies.len()), (0, 3));
    drop(copies);
    assert_eq!(template.collect().now_or_never().unwrap().unwrap().to_bytes(), "777");
}

#[test]
fn a_bound_of_zero_means_once() {
    let once = Replay::with_limit(Full::new(Bytes::from("7")), 0);
    assert!(once.try_clone().is_none());
    assert_eq!(once.collect().now_or_never().unwrap().unwrap().to_bytes(), "7");
}
