//! What becomes of a request when TLS fails, and that all is as usual when it does not. Real handshakes on loopback; the time is
//! tokio's, and nothing waits for it.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rcgen::{CertificateParams, DnType, KeyPair};
use reqwest::{Certificate, ClientBuilder};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{WantsServerCert, WebPkiClientVerifier};
use rustls::{ConfigBuilder, RootCertStore, ServerConfig, SupportedProtocolVersion};
use steadfast::breaker::Breaker;
use steadfast::error::{Kind, Limit};
use steadfast::reqwest::{Client, Error, ResponseExt};
use steadfast::{Bulkhead, CancellationToken, Classified, Context, Executor, Retry, Timeout, Verdict};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// What the certificates of the servers are for.
const HERE: &str = "127.0.0.1";

const MIB: usize = 1 << 20;

#[tokio::test]
async fn a_certificate_that_is_not_trusted_is_permanent_and_asked_for_once() {
    let (stranger, trusted) = (Identity::new(HERE), Identity::new("elsewhere.example"));
    let server = Server::with_tls(&stranger).await;
    let error = fails_for_good(trusted.alone_is_trusted(), &server).await;
    assert_ends_with(&error, "client error (Connect): invalid peer certificate: UnknownIssuer");
}

#[tokio::test]
async fn a_certificate_for_another_name_is_permanent_too() {
    let other = Identity::new("elsewhere.example");
    let server = Server::with_tls(&other).await;
    let error = fails_for_good(other.alone_is_trusted(), &server).await;
    let names = r#"not valid for name "127.0.0.1"; certificate is only valid for DnsName("elsewhere.example")"#;
    assert_ends_with(&error, names);
}

#[tokio::test]
async fn plain_bytes_in_the_place_of_tls_are_permanent() {
    let server = Server::start(|mut stream: TcpStream| async move {
        drop(stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await);
        // A closed socket with data left unread is a reset one, which may overtake the bytes.
        drop(tokio::io::copy(&mut stream, &mut tokio::io::sink()).await);
    })
    .await;
    let error = fails_for_good(Identity::new(HERE).alone_is_trusted(), &server).await;
    assert_ends_with(&error, "client error (Connect): received corrupt message of type InvalidContentType");
}

/// With TLS 1.3 the client is done before the server has looked at its certificate, so the refusal comes in the place of the
/// answer.
#[tokio::test]
async fn a_client_without_the_certificate_that_the_server_wants_is_permanent() {
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        for http1_only in [true, false] {
            let identity = Identity::new(HERE);
            let server = Server::of(identity.demanding(version)).await;
            let settings = identity.alone_is_trusted();
            let settings = if http1_only { settings.http1_only() } else { settings };
            let error = fails_for_good(settings, &server).await;
            assert_ends_with(&error, "received fatal alert: CertificateRequired");
        }
    }
}

#[tokio::test]
async fn a_connection_that_breaks_in_the_handshake_is_transient() {
    let server = Server::start(|stream: TcpStream| async move { drop(stream) }).await;
    let breaker = Breaker::default();
    let http = client(Identity::new(HERE).alone_is_trusted(), breaker.clone());
    let error = http.post(server.url()).send().await.unwrap_err();
    assert_eq!((error.kind(), error.attempts(), server.accepted()), (Kind::Exhausted { by: Limit::Attempts }, 3, 3));
    assert_eq!(error.last().unwrap().verdict(), Verdict::Transient);
    assert_eq!(breaker.counts().failures, 3, "nothing was sent, so a POST is sent again");
}

#[tokio::test]
async fn a_trusted_server_is_answered_over_either_protocol_and_the_body_is_guarded() {
    for http1_only in [true, false] {
        let identity = Identity::new(HERE);
        let server = Server::with_tls(&identity).await;
        let settings = identity.alone_is_trusted();
        let settings = if http1_only { settings.http1_only() } else { settings };
        let places = Bulkhead::new(1);
        let http = client(settings, places.clone());

        let response = http.get(server.url()).send().await.unwrap();
        let version = if http1_only { reqwest::Version::HTTP_11 } else { reqwest::Version::HTTP_2 };
        assert_eq!((response.status().as_u16(), response.version()), (200, version));
        assert!(response.cancellation().is_some());
        assert_eq!(places.in_flight(), 1, "while the body is to be read");
        assert_eq!(response.bytes().await.unwrap().len(), MIB);
        assert_eq!(places.in_flight(), 0);

        let token = CancellationToken::new();
        let cx = Context::new().with_token(token.clone());
        let mut response = http.get(server.url()).context(&cx).send().await.unwrap();
        response.chunk().await.unwrap().unwrap();
        token.cancel();
        assert!(Error::from(response.chunk().await.unwrap_err()).is_cancelled());
        assert_eq!(places.in_flight(), 0);
    }
}

/// Sends a PUT, which may be sent again, so that only the judgement keeps it from that.
async fn fails_for_good(settings: ClientBuilder, server: &Server) -> Error {
    let breaker = Breaker::default();
    let error = client(settings, breaker.clone()).put(server.url()).send().await.unwrap_err();
    assert_eq!((error.kind(), error.attempts(), server.accepted()), (Kind::Failed, 1, 1), "it would fail again");
    assert_eq!(error.last().unwrap().verdict(), Verdict::Permanent);
    assert_eq!(breaker.counts().failures, 0, "the server is there");
    error
}

fn client<P>(settings: ClientBuilder, policy: P) -> Client
where
    P: steadfast::Policy<reqwest::Response, reqwest::Error> + 'static,
{
    let policies = (Retry::immediate().max_attempts(3), policy, Timeout::new(Duration::from_secs(60)));
    let billing = Executor::builder("billing").policies(policies).unbudgeted().build().unwrap();
    Client::build(settings.no_proxy(), billing).unwrap()
}

/// What a user sees of a program that prints an error and its causes.
fn assert_ends_with(error: &Error, words: &str) {
    let causes = std::iter::successors(Some(error as &dyn StdError), |&error| error.source());
    let shown = causes.map(ToString::to_string).collect::<Vec<_>>().join(": ");
    assert!(shown.starts_with("billing: error sending request for url (https://127.0.0.1:"), "{shown}");
    assert_eq!(shown.matches("error sending request").count(), 1, "{shown}");
    assert!(shown.ends_with(words), "{shown}");
}

/// A key, and a certificate for `name` that is signed with it.
struct Identity {
    certificate: CertificateDer<'static>,
    key: KeyPair,
}

impl Identity {
    fn new(name: &str) -> Identity {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        // Otherwise all would have the same subject, and pass for one another's issuer.
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        Identity { certificate: params.self_signed(&key).unwrap().der().clone(), key }
    }

    /// A client that trusts this certificate and no other.
    fn alone_is_trusted(&self) -> ClientBuilder {
        // Whichever test comes first; all install the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        reqwest::Client::builder().tls_certs_only([Certificate::from_der(&self.certificate).unwrap()])
    }

    fn acceptor(&self) -> TlsAcceptor {
        let _ = rustls::crypto::ring::default_provider().install_default();
        self.serving(ServerConfig::builder().with_no_client_auth())
    }

    /// Serves clients that have a certificate which this one has signed: none.
    fn demanding(&self, version: &'static SupportedProtocolVersion) -> TlsAcceptor {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
        self.serving(ServerConfig::builder_with_protocol_versions(&[version]).with_client_cert_verifier(verifier))
    }

    fn serving(&self, builder: ConfigBuilder<ServerConfig, WantsServerCert>) -> TlsAcceptor {
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).unwrap();
        let mut config = builder.with_single_cert(vec![self.certificate.clone()], key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }
}

struct Server {
    address: SocketAddr,
    accepted: Arc<AtomicUsize>,
}

impl Server {
    /// Answers every request with a mebibyte.
    async fn with_tls(identity: &Identity) -> Server {
        Server::of(identity.acceptor()).await
    }

    async fn of(acceptor: TlsAcceptor) -> Server {
        Server::start(move |stream| {
            let acceptor = acceptor.clone();
            async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let answer = || hyper::Response::new(Full::new(Bytes::from_static(&[7; MIB])));
                let service = service_fn(|_| std::future::ready(Ok::<_, Infallible>(answer())));
                let builder = auto::Builder::new(TokioExecutor::new());
                drop(builder.serve_connection(TokioIo::new(stream), service).await);
            }
        })
        .await
    }

    /// Does with each connection what `serve` says.
    async fn start<F, Fut>(serve: F) -> Server
    where
        F: Fn(TcpStream) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        tokio::spawn({
            let accepted = Arc::clone(&accepted);
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    accepted.fetch_add(1, SeqCst);
                    tokio::spawn(serve(stream));
                }
            }
        });
        Server { address, accepted }
    }

    fn url(&self) -> String {
        format!("https://{}/", self.address)
    }

    fn accepted(&self) -> usize {
        self.accepted.load(SeqCst)
    }
}
