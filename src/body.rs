//! Requests that can be sent again: by cloning, or by making their body anew.

use std::fmt;
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
}

impl fmt::Debug for ReplayableBody {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ReplayableBody")
            .finish_non_exhaustive()
    }
}

/// A request that may have to be sent again, without its body where that is made anew.
#[derive(Debug)]
pub(crate) struct KeptRequest {
    request: Request,
    body: Option<ReplayableBody>,
}

impl KeptRequest {
    pub(crate) fn new(mut request: Request, extensions: &Extensions) -> Self {
        let body = extensions.get::<ReplayableBody>().cloned();
        if body.is_some() {
            *request.body_mut() = None;
        }
        Self { request, body }
    }

    pub(crate) fn request(&self) -> &Request {
        &self.request
    }

    /// Whether there is a second time for the body. A stream can be read only once.
    pub(crate) fn has_replayable_body(&self) -> bool {
        self.request
            .body()
            .is_none_or(|body| body.as_bytes().is_some())
    }

    /// The request of the next attempt and, if that one `may_be_followed`, what is kept for the one after it.
    ///
    /// What no other attempt can follow is sent itself, not a copy of it. Fails with the error of a body that can't be
    /// made.
    pub(crate) fn next(self, may_be_followed: bool) -> Result<(Request, Option<Self>), Error> {
        let copy = if may_be_followed {
            self.request.try_clone()
        } else {
            None
        };
        match copy {
            Some(copy) => Ok((complete(copy, self.body.as_ref())?, Some(self))),
            None => Ok((complete(self.request, self.body.as_ref())?, None)),
        }
    }
}

fn complete(mut request: Request, body: Option<&ReplayableBody>) -> Result<Request, Error> {
    if let Some(body) = body {
        *request.body_mut() = Some((body.make)()?);
    }
    Ok(request)
}
