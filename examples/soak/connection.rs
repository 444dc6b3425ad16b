//! The server's ends of its connections: counted, and cut when a handler says so.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use steadfast::Clock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

/// Accepts connections and counts those that are open.
pub(crate) struct Counting {
    pub(crate) listener: TcpListener,
    pub(crate) open: Arc<AtomicUsize>,
}

impl Listener for Counting {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => return (Connection::new(stream, &self.open), peer),
                // Without a free file descriptor, trying again at once only heats the processor.
                Err(_) => Clock::tokio().sleep(Duration::from_millis(10)).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

pub(crate) struct Connection {
    stream: TcpStream,
    wire: Wire,
    open: Arc<AtomicUsize>,
}

/// What handlers have of a connection.
#[derive(Clone, Default)]
pub(crate) struct Wire(Arc<AtomicBool>);

impl Wire {
    /// Resets the connection at its next write.
    pub(crate) fn cut(&self) {
        self.0.store(true, SeqCst);
    }
}

impl Connected<IncomingStream<'_, Counting>> for Wire {
    fn connect_info(stream: IncomingStream<'_, Counting>) -> Wire {
        stream.io().wire.clone()
    }
}

impl Connection {
    fn new(stream: TcpStream, open: &Arc<AtomicUsize>) -> Connection {
        // Heads and bodies are written separately; waiting for acknowledgements in between takes 40 ms.
        let _slower = stream.set_nodelay(true);
        open.fetch_add(1, SeqCst);
        Connection { stream, wire: Wire::default(), open: Arc::clone(open) }
    }

    fn is_whole(&self) -> io::Result<()> {
        if self.wire.0.load(SeqCst) {
            // Closing it then sends RST in the place of FIN.
            self.stream.set_zero_linger()?;
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.open.fetch_sub(1, SeqCst);
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.is_whole()?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
