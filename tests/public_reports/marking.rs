//! A middleware that reads what a classifier can't see.

use http::{Extensions, HeaderName, HeaderValue};
use reqwest::{Request, Response, ResponseBuilderExt};
use reqwest_middleware::{Error, Middleware, Next};

/// Reads the body of each response, sets a header where it holds a word, and hands the response on whole.
pub(crate) struct Marking {
    word: &'static str,
    header: HeaderName,
}

impl Marking {
    pub(crate) fn new(word: &'static str, header: &'static str) -> Self {
        Self {
            word,
            header: HeaderName::from_static(header),
        }
    }
}

#[async_trait::async_trait]
impl Middleware for Marking {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response, Error> {
        let response = next.run(request, extensions).await?;
        let mut whole = http::Response::builder()
            .status(response.status())
            .url(response.url().clone());
        *whole.headers_mut().unwrap() = response.headers().clone();
        let body = response.text().await?;
        if body.contains(self.word) {
            whole = whole.header(&self.header, HeaderValue::from_static("yes"));
        }
        Ok(whole.body(body).unwrap().into())
    }
}
