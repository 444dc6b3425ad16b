//! What tonic generates from a .proto file, by hand and with plain text for messages, so that nothing has to be generated:
//!
//! ```proto
//! service Echo {
//!   rpc Say(Text) returns (Text);
//!   rpc Watch(Text) returns (stream Text);
//!   rpc Collect(stream Text) returns (Text);
//!   rpc Chat(stream Text) returns (stream Text);
//! }
//! ```

use std::convert::Infallible;
use std::error::Error as StdError;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use http::uri::PathAndQuery;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::StreamingService;
use tonic::{IntoRequest, IntoStreamingRequest, Request, Response, Status, Streaming};

pub(crate) const SAY: &str = "/echo.Echo/Say";
pub(crate) const WATCH: &str = "/echo.Echo/Watch";
pub(crate) const COLLECT: &str = "/echo.Echo/Collect";
pub(crate) const CHAT: &str = "/echo.Echo/Chat";

type BoxError = Box<dyn StdError + Send + Sync>;

#[derive(Clone, Debug)]
pub(crate) struct EchoClient<T> {
    inner: Grpc<T>,
}

impl<T> EchoClient<T>
where
    T: GrpcService<Body>,
    T::Error: Into<BoxError>,
    T::ResponseBody: http_body::Body<Data = Bytes, Error: Into<BoxError> + Send> + Send + 'static,
{
    pub(crate) fn new(inner: T) -> EchoClient<T> {
        EchoClient { inner: Grpc::new(inner) }
    }

    pub(crate) async fn say(&mut self, text: impl IntoRequest<String>) -> Result<Response<String>, Status> {
        self.ready().await?;
        self.inner.unary(text.into_request(), PathAndQuery::from_static(SAY), Text).await
    }

    pub(crate) async fn watch(
        &mut self,
        text: impl IntoRequest<String>,
    ) -> Result<Response<Streaming<String>>, Status> {
        self.ready().await?;
        self.inner.server_streaming(text.into_request(), PathAndQuery::from_static(WATCH), Text).await
    }

    pub(crate) async fn collect(
        &mut self,
        texts: impl IntoStreamingRequest<Message = String>,
    ) -> Result<Response<String>, Status> {
        self.ready().await?;
        let texts = texts.into_streaming_request();
        self.inner.client_streaming(texts, PathAndQuery::from_static(COLLECT), Text).await
    }

    pub(crate) async fn chat(
        &mut self,
        texts: impl IntoStreamingRequest<Message = String>,
    ) -> Result<Response<Streaming<String>>, Status> {
        self.ready().await?;
        self.inner.streaming(texts.into_streaming_request(), PathAndQuery::from_static(CHAT), Text).await
    }

    async fn ready(&mut self) -> Result<(), Status> {
        self.inner.ready().await.map_err(|error| Status::unknown(format!("Service was not ready: {}", error.into())))
    }
}

/// The messages of an answer: one, for a method that gives one.
pub(crate) type Messages = BoxStream<'static, Result<String, Status>>;

/// Serves all methods with one function, which gets the path of the method. A unary method is a stream of one, on the wire too.
pub(crate) struct EchoServer<H>(Arc<H>);

impl<H> EchoServer<H> {
    pub(crate) fn new<F>(handler: H) -> EchoServer<H>
    where
        H: Fn(String, Request<Streaming<String>>) -> F,
    {
        EchoServer(Arc::new(handler))
    }
}

impl<H> Clone for EchoServer<H> {
    fn clone(&self) -> Self {
        EchoServer(Arc::clone(&self.0))
    }
}

impl<H, F> tower::Service<http::Request<Body>> for EchoServer<H>
where
    H: Fn(String, Request<Streaming<String>>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Messages, Status>> + Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let method = Method { handler: Arc::clone(&self.0), path: request.uri().path().to_owned() };
        Box::pin(async move { Ok(tonic::server::Grpc::new(Text).streaming(method, request).await) })
    }
}

struct Method<H> {
    handler: Arc<H>,
    path: String,
}

impl<H, F> StreamingService<String> for Method<H>
where
    H: Fn(String, Request<Streaming<String>>) -> F,
    F: Future<Output = Result<Messages, Status>> + Send + 'static,
{
    type Response = String;
    type ResponseStream = Messages;
    type Future = BoxFuture<'static, Result<Response<Messages>, Status>>;

    fn call(&mut self, request: Request<Streaming<String>>) -> Self::Future {
        let answer = (self.handler)(self.path.clone(), request);
        Box::pin(async move { answer.await.map(Response::new) })
    }
}

/// Messages that are plain text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text;

impl Codec for Text {
    type Encode = String;
    type Decode = String;
    type Encoder = Text;
    type Decoder = Text;

    fn encoder(&mut self) -> Text {
        Text
    }

    fn decoder(&mut self) -> Text {
        Text
    }
}

impl Encoder for Text {
    type Item = String;
    type Error = Status;

    fn encode(&mut self, text: String, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(text.as_bytes());
        Ok(())
    }
}

impl Decoder for Text {
    type Item = String;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<String>, Status> {
        let bytes = buffer.copy_to_bytes(buffer.remaining());
        String::from_utf8(bytes.into()).map(Some).map_err(|error| Status::internal(error.to_string()))
    }
}
