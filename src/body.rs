//! Requests that can be sent again: by cloning, or by making their body anew.

use std::fmt;
use std::io;
use std::sync::Arc;

use http::Extensions;
use reqwest::{Body, Request};
use reqwest_middleware::Error;

/// Makes the body of a request anew for every attempt, the first one included.
///
/// For bodies that can't be cloned: streams, files, multipart forms. It goes into the extensions of the request, and
/// replaces a body that was set there. A length that the server should know beforehand has to be set as a
/// `Content-Length` header, since a stream doesn't tell it.
///
/// ```no_run
/// # async fn run(client: reqwest_middleware::ClientWithMiddleware) -> reqwest_middleware::Result<()> {
/// use reqwest_jitter::ReplayableBody;
///
/// client
///     .put("https://example.com/upload")
///     .with_extension(ReplayableBody::new(|| reqwest::Body::from("made for this attempt")))
///     .send()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ReplayableBody {
    make: Arc<dyn Fn() -> Result<Body, Error> + Send + Sync>,
}

impl ReplayableBody {
    /// Creates a body from a closure that always succeeds.
    #[must_use]
    pub fn new<F>(make: F) -> Self
    where
        F: Fn() -> Body + Send + Sync + 'static,
    {
        Self {
            make: Arc::new(move || Ok(make())),
        }
    }

    /// Creates a body from a closure that may fail, since it opens a file for example.
    ///
    /// Where it fails, nothing is sent, and its error is what the call returns: an
    /// [`Error::Middleware`] that can be downcast to `E`.
    #[must_use]
    pub fn try_new<F, E>(make: F) -> Self
    where
        F: Fn() -> Result<Body, E> + Send + Sync + 'static,
        E: std::error::Error + Send + Sync + 'static,
    {
        Self {
            make: Arc::new(move || make().map_err(Error::middleware)),
        }
    }

    /// Takes the one in the extensions for the body of the request, whatever was there.
    pub(crate) fn of(request: &mut Request, extensions: &Extensions) -> Option<Self> {
        let body = extensions.get::<Self>().cloned()?;
        *request.body_mut() = None;
        Some(body)
    }
}

impl fmt::Debug for ReplayableBody {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ReplayableBody")
            .finish_non_exhaustive()
    }
}

/// What is left of a request that may have to be sent again, without its body where that is made anew.
#[derive(Debug)]
pub(crate) struct KeptRequest {
    /// `None` once the request itself was sent, and not a copy of it.
    request: Option<Request>,
    body: Option<ReplayableBody>,
}

impl KeptRequest {
    /// `body` makes what the request lacks.
    pub(crate) fn new(request: Request, body: Option<ReplayableBody>) -> Self {
        Self {
            request: Some(request),
            body,
        }
    }

    /// The request, unless it was sent itself.
    pub(crate) fn request(&self) -> Option<&Request> {
        self.request.as_ref()
    }

    /// Hands the request of the next attempt to `send`: a copy if that attempt `may_be_followed` by another one, and if
    /// there can be a copy, and else the request itself. A request is large: it is handed on, and not returned, so that
    /// it is moved once.
    ///
    /// Fails with the error of a body that can't be made; then nothing is sent.
    pub(crate) fn next<T>(
        &mut self,
        may_be_followed: bool,
        send: impl FnOnce(Request) -> T,
    ) -> Result<T, Error> {
        let copy = match &self.request {
            Some(request) if may_be_followed => request.try_clone(),
            _ => None,
        };
        match (copy, &self.body) {
            (Some(copy), None) => Ok(send(copy)),
            (copy, body) => {
                let left = copy.or_else(|| self.request.take());
                let mut request = left.ok_or_else(nothing_left)?;
                if let Some(body) = body {
                    *request.body_mut() = Some((body.make)()?);
                }
                Ok(send(request))
            }
        }
    }
}

fn nothing_left() -> Error {
    Error::middleware(io::Error::other("the request was sent already"))
}
