//! What a response carries in its extensions.

use http::{Extensions, Response};

use crate::cancel::Cancellation;

/// In the extensions of a response: it was worth another attempt, but the request could not be sent again.
///
/// ```
/// # #[cfg(feature = "reqwest")]
/// use steadfast::reqwest::{NotRepeated, ResponseExt};
/// # #[cfg(not(feature = "reqwest"))]
/// # use steadfast::tower::{NotRepeated, ResponseExt};
///
/// # let mut response = http::Response::new("");
/// assert_eq!(response.not_repeated(), None);
/// response.extensions_mut().insert(NotRepeated("the body is a stream"));
/// assert_eq!(response.not_repeated(), Some("the body is a stream"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotRepeated(
    /// Why not.
    pub &'static str,
);

/// What a response says about the run that it comes from.
pub trait ResponseExt {
    /// The merged token of the response: the caller's token, the executor's shutdown and the caller's deadline in one value.
    /// [`cancel`](Cancellation::cancel) ends this body alone. `None` for a response that did not go through a chain.
    ///
    /// For work that is done beside reading the body, or instead of it:
    ///
    /// ```no_run
    /// # #[cfg(feature = "reqwest")]
    /// # mod example {
    /// # use steadfast::reqwest::ResponseExt;
    /// # async fn convert(_: reqwest::Response) {}
    /// # async fn example(http: steadfast::reqwest::Client) -> Result<(), steadfast::reqwest::Error> {
    /// let response = http.get("https://media.example/7").send().await?;
    /// let token = response.cancellation().cloned();
    /// tokio::spawn(convert(response));
    /// // Later, from anywhere:
    /// token.inspect(steadfast::Cancellation::cancel);
    /// # Ok(())
    /// # }
    /// # }
    /// ```
    fn cancellation(&self) -> Option<&Cancellation>;

    /// Why the request was not sent again, if the response was worth another attempt; see [`NotRepeated`].
    fn not_repeated(&self) -> Option<&'static str>;
}

impl<B> ResponseExt for Response<B> {
    fn cancellation(&self) -> Option<&Cancellation> {
        self.extensions().cancellation()
    }

    fn not_repeated(&self) -> Option<&'static str> {
        self.extensions().not_repeated()
    }
}

impl ResponseExt for Extensions {
    fn cancellation(&self) -> Option<&Cancellation> {
        self.get()
    }

    fn not_repeated(&self) -> Option<&'static str> {
        self.get().map(|NotRepeated(why)| *why)
    }
}
