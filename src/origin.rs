//! What everything that is kept per host is kept under.

use std::sync::Arc;

use reqwest::Url;

/// Scheme, host and port, as RFC 6454 section 6.2 writes them: `https://example.com`, `http://127.0.0.1:8080`, and
/// `null` for a URL without a host. Never user info, a path or a query.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Origin(Arc<str>);

impl Origin {
    pub(crate) fn of(url: &Url) -> Self {
        Self(url.origin().ascii_serialization().into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}
