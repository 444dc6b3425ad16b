//! A tonic client through an outage of its server, unary calls and a stream: what fails is tried again, a server that is down is
//! left alone, and the stream that is opened first when it is back is the proof that it is.
//!
//! ```sh
//! cargo run --features full --example grpc
//! ```

#[expect(dead_code, reason = "a program rarely calls all methods of a service")]
mod echo;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use futures::{StreamExt, stream};
use steadfast::breaker::{BreakerConfig, State, TripRule};
use steadfast::tonic::{Layer, Service, StatusExt};
use steadfast::{Breaker, Clock, Executor, Retry, Timeout};
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

use self::echo::{EchoClient, EchoServer, Messages, SAY, WATCH};

type AnyResult<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A client as tonic generates it, around a channel with a chain.
type Client = EchoClient<Service<Channel>>;

#[tokio::main]
async fn main() -> AnyResult<()> {
    let server = Server::start().await?;
    let settings = BreakerConfig::default().rule(TripRule::consecutive(5)).open_for(Duration::from_millis(300));
    let breaker = Breaker::new(settings);
    let policies = (Retry::exponential().base(Duration::from_millis(20)), breaker.clone(), Timeout::secs(1));
    let echo = Executor::builder("echo").policies(policies).build()?.erase();
    let layer = Layer::new(echo).unary(|path| path == SAY);
    let channel = Endpoint::from_shared(format!("http://{}", server.address))?.connect_lazy();
    let mut client: Client = EchoClient::new(layer.around(channel));

    let mut ticks = watch(&mut client).await?;
    println!("up:      {} of 20 calls answered, {}", answered(&client, 20).await, tick(&mut ticks).await?);

    server.is_down.store(true, SeqCst);
    let broken = loop {
        // What was under way still comes.
        if let Err(status) = tick(&mut ticks).await {
            break status;
        }
    };
    assert_eq!(
        (broken.code(), breaker.counts().consecutive_failures),
        (Code::Unavailable, 1),
        "the end of the stream counts"
    );
    let before = server.calls.load(SeqCst);
    let (ok, refused) = (answered(&client, 20).await, refused(&client).await);
    let reached = server.calls.load(SeqCst) - before;
    println!("down:    {ok} of 20 calls answered, {reached} attempts reached the server, then: {refused}");
    assert_eq!((ok, reached, breaker.state()), (0, 4, State::Open), "four more failures, and it is left alone");

    server.is_down.store(false, SeqCst);
    Clock::tokio().sleep(breaker.remaining_open()).await;
    let mut ticks = watch(&mut client).await?;
    assert_eq!(breaker.state(), State::Closed, "that it could be opened was the proof");
    let ok = answered(&client, 20).await;
    println!("up again: {ok} of 20 calls answered, {}", tick(&mut ticks).await?);
    assert_eq!(ok, 20, "beside the stream, which is still open");
    Ok(())
}

async fn watch(client: &mut Client) -> Result<Streaming<String>, Status> {
    Ok(client.watch("clock".to_owned()).await?.into_inner())
}

async fn tick(ticks: &mut Streaming<String>) -> Result<String, Status> {
    ticks.message().await?.ok_or_else(|| Status::unknown("the clock has stopped"))
}

/// How many of `n` calls are answered.
async fn answered(client: &Client, n: usize) -> usize {
    let calls = (0..n).map(|_| {
        let mut client = client.clone();
        async move { client.say("hello".to_owned()).await.is_ok() }
    });
    stream::iter(calls).buffered(1).filter(|ok| std::future::ready(*ok)).count().await
}

/// What a call is told while the breaker is open.
async fn refused(client: &Client) -> String {
    let status = client.clone().say("hello".to_owned()).await.expect_err("the breaker is open");
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.pushback().is_some(), "and it says for how long");
    status.refusal().expect("not the server's words").to_string()
}

struct Server {
    address: SocketAddr,
    is_down: Arc<AtomicBool>,
    calls: Arc<AtomicUsize>,
}

impl Server {
    async fn start() -> AnyResult<Server> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (is_down, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let echo = EchoServer::new({
            let (is_down, calls) = (Arc::clone(&is_down), Arc::clone(&calls));
            move |path, _| {
                calls.fetch_add(1, SeqCst);
                std::future::ready(answer(&path, &is_down))
            }
        });
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        tokio::spawn(tonic::transport::Server::builder().serve_with_incoming(echo, incoming));
        Ok(Server { address, is_down, calls })
    }
}

fn answer(path: &str, is_down: &Arc<AtomicBool>) -> Result<Messages, Status> {
    let down = || Status::unavailable("down for maintenance");
    if is_down.load(SeqCst) {
        return Err(down());
    }
    if path != WATCH {
        return Ok(stream::iter([Ok("hello".to_owned())]).boxed());
    }
    let is_down = Arc::clone(is_down);
    let ticks = stream::unfold(0, move |n| {
        let is_down = Arc::clone(&is_down);
        async move {
            Clock::tokio().sleep(Duration::from_millis(20)).await;
            let tick = if is_down.load(SeqCst) { Err(down()) } else { Ok(format!("tick {n}")) };
            Some((tick, n + 1))
        }
    });
    Ok(ticks.boxed())
}
