//! Owns the rule of which transport errors may be sent again, and for which requests.
//!
//! Each fault is produced on the wire and met by every kind of request at every level of `Replay`; what counts is how
//! often a server really saw the request.

#[path = "support/h2.rs"]
mod h2;
#[path = "support/wire.rs"]
mod wire;

use std::error::Error as StdError;
use std::time::Duration;

use h2::{H2, begun, go_away, reset};
use http::Extensions;
use reqwest::{Method, Request, Response};
use reqwest_jitter::{
    Backoff, Cause, JitteredRetryMiddleware, Replay, RetryPolicy, RetryReport, StopReason,
};
use reqwest_middleware::{ClientBuilder, Error, Middleware, Next};
use wire::{Reply, Wire, client, plain, response};

const ATTEMPTS: u32 = 3;

/// What may have become of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    NotSent,
    Maybe,
    Never,
}

#[derive(Clone, Copy, Debug)]
struct Kind {
    method: &'static str,
    key: bool,
}

const KINDS: [Kind; 4] = [
    Kind {
        method: "GET",
        key: false,
    },
    Kind {
        method: "PUT",
        key: false,
    },
    Kind {
        method: "POST",
        key: false,
    },
    Kind {
        method: "POST",
        key: true,
    },
];
const LEVELS: [Replay; 3] = [
    Replay::IdempotentOnly,
    Replay::WhenUnprocessed,
    Replay::Always,
];

fn sends(fate: Fate, kind: Kind, replay: Replay) -> u32 {
    let is_idempotent = kind.method != "POST" || kind.key;
    let is_retried = match (fate, replay) {
        (Fate::Never, _) => false,
        (_, Replay::Always) | (Fate::NotSent, Replay::WhenUnprocessed) => true,
        (_, Replay::IdempotentOnly | Replay::WhenUnprocessed) => is_idempotent,
    };
    if is_retried { ATTEMPTS } else { 1 }
}

fn retry(replay: Replay) -> JitteredRetryMiddleware {
    let policy = RetryPolicy::new(Backoff::fixed(Duration::from_millis(1)))
        .with_max_attempts(ATTEMPTS)
        .with_replay(replay);
    JitteredRetryMiddleware::new(policy).without_budget()
}

/// Sends one request and returns its error and how often the layer says that it was sent.
async fn fail(
    client: &reqwest_middleware::ClientWithMiddleware,
    url: &str,
    kind: Kind,
) -> (reqwest_middleware::Error, u32) {
    let (error, report) = fail_with_report(client, url, kind).await;
    (error, report.attempts())
}

async fn fail_with_report(
    client: &reqwest_middleware::ClientWithMiddleware,
    url: &str,
    kind: Kind,
) -> (reqwest_middleware::Error, RetryReport) {
    let method = Method::from_bytes(kind.method.as_bytes()).unwrap();
    let mut request = reqwest::Request::new(method, url.parse().unwrap());
    if kind.method != "GET" {
        *request.body_mut() = Some("the body".into());
    }
    if kind.key {
        request
            .headers_mut()
            .insert("idempotency-key", "\"k\"".parse().unwrap());
    }
    let mut extensions = http::Extensions::new();
    let error = client
        .execute_with_extensions(request, &mut extensions)
        .await
        .unwrap_err();
    let report = RetryReport::from_extensions(&extensions).unwrap();
    assert_ne!(report.stop(), StopReason::Accepted);
    (error, report.clone())
}

/// Why a request failed, as the report of a GET names it; `None` if the failure is final.
async fn cause(client: reqwest::Client, url: &str) -> Option<Cause> {
    let client = ClientBuilder::new(client)
        .with(retry(Replay::WhenUnprocessed))
        .build();
    fail_with_report(&client, url, KINDS[0])
        .await
        .1
        .last_cause()
}

/// Asserts the number of sends of a fault that reads the whole request first.
async fn check(name: &str, fate: Fate, reply: Reply) {
    for replay in LEVELS {
        for kind in KINDS {
            let reply = reply.clone();
            // Only a server that falls silent is given up on: a busy machine may take its time with all others.
            let patience = match reply {
                Reply::SendAndStall(_) => Duration::from_millis(40),
                _ => Duration::from_secs(60),
            };
            let server = Wire::serve(move |_| reply.clone()).await;
            let client = ClientBuilder::new(plain().read_timeout(patience).build().unwrap())
                .with(retry(replay))
                .build();
            let (error, attempts) = fail(&client, &server.url("/"), kind).await;
            let expected = sends(fate, kind, replay);
            assert_eq!(
                server.count(),
                expected as usize,
                "{name}, {kind:?}, {replay:?}: {error:?}"
            );
            assert_eq!(attempts, expected, "{name}, {kind:?}, {replay:?}");
        }
    }
}

fn bytes(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

#[tokio::test]
async fn a_connection_that_breaks_after_the_request_was_read_may_have_had_an_effect() {
    check(
        "closed without an answer",
        Fate::Maybe,
        Reply::SendAndClose(vec![]),
    )
    .await;
    check(
        "reset without an answer",
        Fate::Maybe,
        Reply::SendAndReset(vec![]),
    )
    .await;
    check(
        "closed inside the head",
        Fate::Maybe,
        Reply::SendAndClose(bytes("HTTP/1.1 200 OK\r\nx: y")),
    )
    .await;
    check(
        "reset inside the head",
        Fate::Maybe,
        Reply::SendAndReset(bytes("HTTP/1.1 200 OK\r\nx: y")),
    )
    .await;
    check(
        "closed after an interim answer",
        Fate::Maybe,
        Reply::SendAndClose(bytes("HTTP/1.1 103 Early Hints\r\n\r\n")),
    )
    .await;
    check(
        "no answer in time",
        Fate::Maybe,
        Reply::SendAndStall(vec![]),
    )
    .await;
    check(
        "half a head, then nothing",
        Fate::Maybe,
        Reply::SendAndStall(bytes("HTTP/1.1 2")),
    )
    .await;
}

#[tokio::test]
async fn an_answer_that_is_not_http_is_final() {
    let many = (0..101).fold("HTTP/1.1 200 OK\r\n".to_owned(), |head, number| {
        head + &format!("x-{number}: y\r\n")
    });
    let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(2_000_000));
    for (name, text) in [
        ("garbage", "what is this\r\n\r\n"),
        ("another protocol", "SSH-2.0-OpenSSH_9.6\r\n"),
        ("HTTP/0.9", "<html>hello</html>"),
        ("a version that does not exist", "HTTP/3.0 200 OK\r\n\r\n"),
        ("a bad status", "HTTP/1.1 2x0 OK\r\n\r\n"),
        ("a bad header", "HTTP/1.1 200 OK\r\nbad header\r\n\r\n"),
        (
            "a bad length",
            "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
        ),
        (
            "two lengths",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        ),
        ("101 headers", &format!("{many}\r\n")),
        ("a head of two megabytes", &long),
    ] {
        check(name, Fate::Never, Reply::SendAndClose(bytes(text))).await;
    }
}

#[tokio::test]
async fn a_refused_connection_has_no_effect() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    for replay in LEVELS {
        for kind in KINDS {
            let (error, attempts) =
                fail(&client(retry(replay)), &format!("http://{address}/"), kind).await;
            assert!(error.is_connect());
            assert_eq!(
                attempts,
                sends(Fate::NotSent, kind, replay),
                "{kind:?}, {replay:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_name_that_does_not_resolve_has_no_effect() {
    for replay in LEVELS {
        for kind in KINDS {
            let (error, attempts) =
                fail(&client(retry(replay)), "http://name.invalid/", kind).await;
            assert!(error.is_connect());
            assert_eq!(
                attempts,
                sends(Fate::NotSent, kind, replay),
                "{kind:?}, {replay:?}"
            );
        }
    }
}

/// The kernel's race decides whether the client had written the request when the connection went, so that only the
/// upper bound is certain: what the server never read may be sent again, but not more often than allowed.
#[tokio::test]
async fn a_connection_closed_right_after_it_was_accepted_is_never_retried_beyond_the_cap() {
    for is_reset in [false, true] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if is_reset {
                    stream.set_zero_linger().unwrap();
                }
            }
        });
        for replay in LEVELS {
            for kind in KINDS {
                let (_, attempts) =
                    fail(&client(retry(replay)), &format!("http://{address}/"), kind).await;
                assert!(
                    attempts <= sends(Fate::NotSent, kind, replay),
                    "{kind:?}, {replay:?}: {attempts}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_timeout_of_the_connection_has_no_effect_but_a_timeout_of_the_attempt_may() {
    // A resolver that never answers is a connection that never comes about, on every system.
    struct Never;
    impl reqwest::dns::Resolve for Never {
        fn resolve(&self, _: reqwest::dns::Name) -> reqwest::dns::Resolving {
            Box::pin(std::future::pending())
        }
    }
    let connect = plain().connect_timeout(Duration::from_millis(20));
    let total = plain().timeout(Duration::from_millis(20));
    for (fate, builder) in [(Fate::NotSent, connect), (Fate::Maybe, total)] {
        let inner = builder.dns_resolver(Never).build().unwrap();
        for replay in LEVELS {
            let client = ClientBuilder::new(inner.clone())
                .with(retry(replay))
                .build();
            for kind in KINDS {
                let (error, attempts) = fail(&client, "http://never.test/", kind).await;
                assert!(error.is_timeout());
                assert_eq!(
                    attempts,
                    sends(fate, kind, replay),
                    "{fate:?}, {kind:?}, {replay:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_request_that_can_not_be_made_is_final() {
    for url in ["ftp://127.0.0.1/", "data:text/plain,hello"] {
        let (error, attempts) = fail(&client(retry(Replay::Always)), url, KINDS[0]).await;
        assert!(error.is_builder(), "{url}: {error:?}");
        assert_eq!(attempts, 1);
    }
}

/// The tests are built without TLS. Reqwest calls it a failure to connect, but another attempt would fail as well.
#[tokio::test]
async fn a_scheme_that_the_client_can_not_speak_is_final() {
    let server = Wire::serve(|_| Reply::SendAndClose(vec![])).await;
    let url = server.url("/").replace("http:", "https:");
    let (error, attempts) = fail(&client(retry(Replay::Always)), &url, KINDS[0]).await;
    assert!(error.is_connect(), "{error:?}");
    assert_eq!((attempts, server.connections()), (1, 0));
}

#[tokio::test]
async fn a_redirect_loop_is_final() {
    let server = Wire::serve(|_| Reply::Send(vec![response(302, "location: /\r\n", b"")])).await;
    let (error, attempts) = fail(&client(retry(Replay::Always)), &server.url("/"), KINDS[0]).await;
    assert!(error.is_redirect());
    assert_eq!(attempts, 1);
}

#[tokio::test]
async fn a_request_body_that_fails_is_final_and_nothing_half_sent_is_repeated() {
    let server = Wire::serve(|_| wire::answer(200, "", b"")).await;
    let body = reqwest_jitter::ReplayableBody::new(|| {
        let pieces = [
            Ok("half of it"),
            Err(std::io::Error::other("the disk is gone")),
        ];
        reqwest::Body::wrap_stream(futures_util::stream::iter(pieces))
    });
    let mut extensions = http::Extensions::new();
    extensions.insert(body);
    let request = reqwest::Request::new(Method::PUT, server.url("/").parse().unwrap());
    let error = client(retry(Replay::Always))
        .execute_with_extensions(request, &mut extensions)
        .await
        .unwrap_err();
    assert!(error.is_request(), "{error:?}");
    let report = RetryReport::from_extensions(&extensions).unwrap();
    assert_eq!(
        (report.stop(), report.attempts()),
        (StopReason::Rejected, 1)
    );
    assert_eq!(server.count(), 0);
}

/// Flags, URL and the texts of the whole chain.
fn portrait(error: &reqwest::Error) -> (Vec<bool>, Option<String>, Vec<String>) {
    let flags = vec![
        error.is_builder(),
        error.is_redirect(),
        error.is_status(),
        error.is_timeout(),
        error.is_request(),
        error.is_connect(),
        error.is_body(),
        error.is_decode(),
    ];
    let mut chain = vec![error.to_string()];
    let mut next = error.source();
    while let Some(link) = next {
        chain.push(link.to_string());
        next = link.source();
    }
    (flags, error.url().map(ToString::to_string), chain)
}

#[tokio::test]
async fn an_error_comes_back_as_reqwest_made_it_after_zero_and_after_four_retries() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refused = format!("http://{}/refused?q=1", free.local_addr().unwrap());
    drop(free);
    let silent = Wire::serve(|_| Reply::SendAndStall(vec![])).await;
    let cut = Wire::serve(|_| Reply::SendAndClose(vec![])).await;
    let garbage = Wire::serve(|_| Reply::SendAndClose(bytes("garbage\r\n\r\n"))).await;
    let (hasty, patient) = (Duration::from_millis(30), Duration::from_secs(60));
    for (url, patience) in [
        (refused, patient),
        (silent.url("/silent"), hasty),
        (cut.url("/cut"), patient),
        (garbage.url("/garbage"), patient),
        ("ftp://127.0.0.1/ftp".to_owned(), patient),
    ] {
        let plain = plain().timeout(patience).build().unwrap();
        let request = || reqwest::Request::new(Method::GET, url.parse().unwrap());
        let expected = portrait(&plain.execute(request()).await.unwrap_err());
        for max_attempts in [1, 5] {
            let policy =
                RetryPolicy::new(Backoff::fixed(Duration::ZERO)).with_max_attempts(max_attempts);
            let client = ClientBuilder::new(plain.clone())
                .with(JitteredRetryMiddleware::new(policy))
                .build();
            match client.execute(request()).await.unwrap_err() {
                reqwest_middleware::Error::Reqwest(error) => {
                    assert_eq!(portrait(&error), expected, "{url}");
                }
                other @ reqwest_middleware::Error::Middleware(_) => panic!("{url}: {other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn http2_says_what_it_refused() {
    // The server's guarantee can be read with the feature only; without it, the safe answer stands in.
    let refused = if cfg!(feature = "http2") {
        Fate::NotSent
    } else {
        Fate::Maybe
    };
    let incompatible = if cfg!(feature = "http2") {
        Fate::Never
    } else {
        Fate::Maybe
    };
    for (name, fate, frames, is_closing) in [
        ("REFUSED_STREAM", refused, vec![reset(7)], false),
        (
            "GOAWAY without our stream",
            refused,
            vec![go_away(0, 0)],
            false,
        ),
        ("GOAWAY, calm down", refused, vec![go_away(0, 11)], false),
        (
            "GOAWAY, internal error",
            refused,
            vec![go_away(0, 2)],
            false,
        ),
        (
            "GOAWAY with our stream, then closed",
            Fate::Maybe,
            vec![go_away(1, 0)],
            true,
        ),
        ("closed", Fate::Maybe, vec![], true),
        ("NO_ERROR", Fate::Maybe, vec![reset(0)], false),
        ("INTERNAL_ERROR", Fate::Maybe, vec![reset(2)], false),
        ("STREAM_CLOSED", Fate::Maybe, vec![reset(5)], false),
        ("CANCEL", Fate::Maybe, vec![reset(8)], false),
        ("ENHANCE_YOUR_CALM", Fate::Maybe, vec![reset(11)], false),
        ("PROTOCOL_ERROR", incompatible, vec![reset(1)], false),
        ("HTTP_1_1_REQUIRED", incompatible, vec![reset(13)], false),
    ] {
        for replay in LEVELS {
            for kind in KINDS {
                let frames = frames.clone();
                let server = H2::serve(move |_| h2::Reply {
                    frames: frames.clone(),
                    is_closing,
                })
                .await;
                let client = ClientBuilder::new(plain().http2_prior_knowledge().build().unwrap())
                    .with(retry(replay))
                    .build();
                let (error, attempts) = fail(&client, &server.url, kind).await;
                let expected = sends(fate, kind, replay);
                assert_eq!(
                    server.count(),
                    expected as usize,
                    "{name}, {kind:?}, {replay:?}: {error:?}"
                );
                assert_eq!(
                    attempts, expected,
                    "{name}, {kind:?}, {replay:?}: {error:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_server_of_another_http_version_is_final() {
    let server = H2::serve(|_| h2::Reply {
        frames: vec![],
        is_closing: false,
    })
    .await;
    let (_, attempts) = fail(&client(retry(Replay::Always)), &server.url, KINDS[0]).await;
    assert_eq!(attempts, 1, "HTTP/1.1 against an HTTP/2 server");
}

#[tokio::test]
async fn every_fault_has_a_cause_of_its_own() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refused = format!("http://{}/", free.local_addr().unwrap());
    drop(free);
    let cut = Wire::serve(|_| Reply::SendAndClose(vec![])).await;
    let silent = Wire::serve(|_| Reply::SendAndStall(vec![])).await;
    let garbage = Wire::serve(|_| Reply::SendAndClose(bytes("garbage\r\n\r\n"))).await;
    let patient = || plain().build().unwrap();
    let hasty = plain().timeout(Duration::from_millis(30)).build().unwrap();
    assert_eq!(cause(patient(), &refused).await, Some(Cause::Connect));
    assert_eq!(
        cause(patient(), "http://name.invalid/").await,
        Some(Cause::Dns)
    );
    assert_eq!(
        cause(patient(), &cut.url("/")).await,
        Some(Cause::Transport)
    );
    assert_eq!(cause(hasty, &silent.url("/")).await, Some(Cause::Timeout));
    assert_eq!(cause(patient(), &garbage.url("/")).await, None);

    let refusal = if cfg!(feature = "http2") {
        Cause::StreamRefused
    } else {
        Cause::Transport
    };
    for (frames, expected) in [
        (vec![reset(7)], refusal),
        (vec![go_away(0, 0)], refusal),
        (vec![reset(2)], Cause::Transport),
    ] {
        let server = H2::serve(move |_| h2::Reply {
            frames: frames.clone(),
            is_closing: false,
        })
        .await;
        let client = plain().http2_prior_knowledge().build().unwrap();
        assert_eq!(cause(client, &server.url).await, Some(expected));
    }
}

/// Reads every body before it hands it up, and hands up its errors.
struct ReadsBodies;

#[async_trait::async_trait]
impl Middleware for ReadsBodies {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response, Error> {
        let body = next.run(request, extensions).await?.bytes().await?;
        Ok(http::Response::new(body).into())
    }
}

/// A server that has begun to answer has read the request, whatever it says of the stream afterwards.
#[tokio::test]
async fn a_body_that_breaks_may_have_had_an_effect_and_one_that_is_wrong_is_final() {
    let head = |headers: &str| bytes(&format!("HTTP/1.1 200 OK\r\n{headers}\r\n\r\nbody"));
    let cut = Wire::serve({
        let begun = head("content-length: 5");
        move |_| Reply::SendAndClose(begun.clone())
    });
    let stalled = Wire::serve({
        let begun = head("content-length: 5");
        move |_| Reply::SendAndStall(begun.clone())
    });
    let wrong = Wire::serve({
        let begun = head("transfer-encoding: chunked");
        move |_| Reply::SendAndClose([&*begun, b"is no length\r\n"].concat())
    });
    let reset_as_refused = H2::serve(|_| h2::Reply {
        frames: vec![begun(), reset(7)],
        is_closing: false,
    });
    let (cut, stalled, wrong, reset_as_refused) = (
        cut.await,
        stalled.await,
        wrong.await,
        reset_as_refused.await,
    );
    let patient = || plain().build().unwrap();
    let hasty = || {
        plain()
            .read_timeout(Duration::from_millis(40))
            .build()
            .unwrap()
    };
    let http2 = || plain().http2_prior_knowledge().build().unwrap();
    for (url, inner, fate, cause) in [
        (cut.url("/"), patient(), Fate::Maybe, Some(Cause::Transport)),
        (stalled.url("/"), hasty(), Fate::Maybe, Some(Cause::Timeout)),
        (wrong.url("/"), patient(), Fate::Never, None),
        (
            reset_as_refused.url.clone(),
            http2(),
            Fate::Maybe,
            Some(Cause::Transport),
        ),
    ] {
        for replay in LEVELS {
            for kind in KINDS {
                let client = ClientBuilder::new(inner.clone())
                    .with(retry(replay))
                    .with(ReadsBodies)
                    .build();
                let (error, report) = fail_with_report(&client, &url, kind).await;
                assert_eq!(
                    (report.attempts(), report.last_cause()),
                    (sends(fate, kind, replay), cause),
                    "{kind:?}, {replay:?}: {error:?}"
                );
            }
        }
    }
}

/// A policy for redirects is the caller's own code, and its refusal is final even where it looks like a timeout.
#[tokio::test]
async fn a_redirect_that_is_refused_is_final_whatever_the_reason() {
    let server = Wire::serve(|_| Reply::Send(vec![response(302, "location: /\r\n", b"")])).await;
    let refuse = |attempt: reqwest::redirect::Attempt<'_>| {
        attempt.error(std::io::Error::from(std::io::ErrorKind::TimedOut))
    };
    let inner = plain().redirect(reqwest::redirect::Policy::custom(refuse));
    let client = ClientBuilder::new(inner.build().unwrap())
        .with(retry(Replay::Always))
        .build();
    let (error, attempts) = fail(&client, &server.url("/"), KINDS[0]).await;
    assert!(error.is_redirect() && error.is_timeout(), "{error:?}");
    assert_eq!((attempts, server.count()), (1, 1));
}

/// No connection is to blame, and the next one would not speak it either.
#[tokio::test]
async fn a_request_of_a_version_that_the_client_can_not_speak_is_final() {
    let server = Wire::serve(|_| wire::answer(200, "", b"")).await;
    let mut request = Request::new(Method::GET, server.url("/").parse().unwrap());
    *request.version_mut() = http::Version::HTTP_09;
    let mut extensions = Extensions::new();
    let error = client(retry(Replay::Always))
        .execute_with_extensions(request, &mut extensions)
        .await
        .unwrap_err();
    let report = RetryReport::from_extensions(&extensions).unwrap();
    assert_eq!(
        (report.stop(), report.attempts()),
        (StopReason::Rejected, 1),
        "{error:?}"
    );
    assert_eq!(server.count(), 0);
}
