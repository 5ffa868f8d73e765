//! Reports about bodies and connections: what arrives again, and what is held or left behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::stream;
use reqwest::{Body, Method};
use reqwest_jitter::{
    JitteredRetryMiddleware, ReplayableBody, RetryOverride, RetryReport, StopReason,
};
use reqwest_middleware::ClientBuilder;
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::case::{get, post, send};
use crate::support::{fixed, ms, secs, status};
use crate::wire::{Reply, Wire, answer, client, plain, response};

fn retry(wait: u64, max_attempts: u32) -> JitteredRetryMiddleware {
    JitteredRetryMiddleware::new(fixed(ms(wait)).with_max_attempts(max_attempts))
}

fn stream() -> Body {
    Body::wrap_stream(stream::iter(
        ["half and ", "half"].map(Ok::<_, std::io::Error>),
    ))
}

/// `TrueLayer/reqwest-middleware#44`: with a retry layer in place, no stream was sent at all.
#[tokio::test(start_paused = true)]
pub(crate) async fn bd_01_a_stream_is_sent_once_as_if_there_were_no_retries() {
    post([status(200)])
        .body(stream())
        .run()
        .await
        .answers(200, []);
    for (code, method) in [(503, Method::PUT), (429, Method::POST)] {
        send(method, [status(code), status(200)])
            .body(stream())
            .run()
            .await
            .stops(code, [], StopReason::NotReplayable);
    }
}

/// `XAMPPRocky/octocrab#842`: the retry carried no body.
#[tokio::test]
pub(crate) async fn bd_03_every_attempt_carries_the_same_bytes() {
    let body: Vec<u8> = (0..=250).cycle().take(64 * 1024).collect();
    let server = Wire::serve(|number| answer(if number < 2 { 502 } else { 200 }, "", b"")).await;
    let request = client(retry(1, 3)).put(server.url("/")).body(body.clone());
    assert_eq!(request.send().await.unwrap().status(), 200);
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    for request in requests {
        assert!(request.head.contains("content-length: 65536\r\n"));
        assert!(request.body == body);
    }
}

/// `seanmonstar/reqwest#2416`: large files were to be sent again without being held in memory.
#[tokio::test]
pub(crate) async fn bd_05_a_body_that_is_made_anew_arrives_whole_each_time() {
    let pieces = || (0..128).map(|number| vec![number; 64 * 1024]);
    let whole: Vec<u8> = pieces().flatten().collect();
    let made = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&made);
    let body = ReplayableBody::new(move || {
        count.fetch_add(1, Ordering::SeqCst);
        Body::wrap_stream(stream::iter(pieces().map(Ok::<_, std::io::Error>)))
    });
    // The server may have kept the first one. That a body can be made again does not make that harmless.
    for (is_harmless, sent) in [(false, 1), (true, 2)] {
        let server = Wire::serve(|number| match number {
            0 => Reply::SendAndReset(vec![]),
            _ => answer(200, "", b""),
        })
        .await;
        let request = client(retry(1, 3))
            .post(server.url("/"))
            .with_extension(body.clone())
            .with_extension(RetryOverride::new().assume_idempotent(is_harmless));
        assert_eq!(request.send().await.is_ok(), is_harmless);
        let requests = server.requests();
        assert_eq!(
            (requests.len(), made.swap(0, Ordering::SeqCst)),
            (sent, sent)
        );
        assert!(requests.iter().all(|request| request.body == whole));
    }
}

/// `hashicorp/go-retryablehttp#54`: whose duty it is to read a rejected answer to its end was nobody's.
#[tokio::test]
pub(crate) async fn bd_07_rejected_answers_leave_no_connections_behind() {
    let large = response(503, "", &vec![b'x'; 2_000_000]);
    let server = Wire::serve(move |number| match number {
        ..50 => Reply::Send(vec![large.clone()]),
        _ => answer(200, "", b"fine"),
    })
    .await;
    let inner = plain().pool_max_idle_per_host(1).build().unwrap();
    let client = ClientBuilder::new(inner).with(retry(1, 51)).build();
    let response = client.get(server.url("/")).send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "fine");
    assert_eq!(server.count(), 51);
    let most = server.most_open();
    assert!(most <= 2, "{most} connections at a time");
}

/// `hashicorp/go-retryablehttp#207`: the body was lost where a retry met a redirect.
#[tokio::test]
pub(crate) async fn bd_08_a_retry_that_is_redirected_brings_the_body_along() {
    let body: Vec<u8> = (b'a'..=b'z').cycle().take(10 * 1024).collect();
    let server = Wire::serve(|number| match number {
        0 => answer(503, "", b""),
        1 => answer(307, "location: /b\r\n", b""),
        _ => answer(200, "", b""),
    })
    .await;
    let request = client(retry(1, 3))
        .put(server.url("/a"))
        .header("content-type", "application/json")
        .body(body.clone());
    assert_eq!(request.send().await.unwrap().status(), 200);
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    assert!(requests[2].head.starts_with("PUT /b HTTP/1.1\r\n"));
    for request in requests {
        assert!(request.head.contains("content-length: 10240\r\n"));
        assert!(request.head.contains("content-type: application/json\r\n"));
        assert!(request.body == body);
    }
}

/// `alexfalkowski/go-service#2521`: with one connection to have, the unread answer kept the next attempt waiting.
#[tokio::test]
pub(crate) async fn cn_02_one_connection_is_enough() {
    // What is read to its end serves again; what is too long for that makes room for another.
    for (size, connections) in [(0, 1), (64 * 1024, 1), (1024 * 1024, 2)] {
        let server = Wire::serve(move |number| match number {
            0 => answer(503, "", &vec![b'x'; size]),
            _ => answer(200, "", b""),
        })
        .await;
        let url = one_at_a_time(server.clone()).await;
        let call = client(retry(100, 2)).get(url).send();
        let response = timeout(secs(60), call).await.expect("no deadlock");
        assert_eq!(response.unwrap().status(), 200, "{size} B");
        assert_eq!((server.count(), server.most_open()), (2, 1), "{size} B");
        assert_eq!(server.connections(), connections, "{size} B");
    }
}

/// Passes connections on to a server, each when the one before it has ended.
async fn one_at_a_time(server: Wire) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let mut far = tokio::net::TcpStream::connect(server.address)
                .await
                .unwrap();
            let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            drop(far);
            while server.open() > 0 {
                tokio::time::sleep(ms(1)).await;
            }
        }
    });
    url
}

/// `nodejs/undici#5610`: the length of an answer to HEAD was waited for.
#[tokio::test]
pub(crate) async fn cn_03_the_answer_to_a_head_has_no_body_to_wait_for() {
    let server = Wire::serve(|number| {
        let code = if number == 0 { 503 } else { 200 };
        let head = format!("HTTP/1.1 {code} Status\r\ncontent-length: 1234\r\n\r\n");
        Reply::Send(vec![head.into_bytes()])
    })
    .await;
    let response = client(retry(1, 2))
        .head(server.url("/"))
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-length"], "1234");
    assert_eq!((server.count(), server.connections()), (2, 1));
}

/// `Azure/go-autorest#432`: rejected answers came to be read to their end, however long that takes.
#[tokio::test]
pub(crate) async fn cn_04_an_answer_without_an_end_does_not_hold_the_retry_up() {
    let head = b"HTTP/1.1 503 Busy\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for reply in [
        Reply::SendForever(head.clone(), b"1\r\nx\r\n".to_vec()),
        Reply::SendAndStall([head, b"1\r\nx\r\n".to_vec()].concat()),
    ] {
        let server = Wire::serve(move |number| match number {
            0 => reply.clone(),
            _ => answer(200, "", b""),
        })
        .await;
        let call = client(retry(50, 2)).get(server.url("/")).send();
        let response = timeout(secs(60), call).await.expect("an end").unwrap();
        let report = RetryReport::of(&response).unwrap();
        assert_eq!((response.status().as_u16(), report.slept()), (200, ms(50)));
        assert_eq!((server.count(), server.connections()), (2, 2));
    }
}

/// `SolaceProducts/solace-broker-mcp#90`: the last answer was used up, or held, by what handled the exhaustion.
#[tokio::test]
pub(crate) async fn ex_01_the_last_answer_comes_back_with_its_headers_and_its_body_unread() {
    let server = Wire::serve(|number| {
        let body = format!(r#"{{"error":"overloaded","n":{}}}"#, number + 1);
        answer(
            503,
            &format!("x-number: {}\r\n", number + 1),
            body.as_bytes(),
        )
    })
    .await;
    let response = client(retry(1, 2))
        .get(server.url("/"))
        .send()
        .await
        .unwrap();
    assert_eq!(server.count(), 2);
    assert_eq!(response.headers()["x-number"], "2");
    assert_eq!(
        RetryReport::of(&response).unwrap().stop(),
        StopReason::AttemptsExhausted
    );
    assert_eq!(
        response.text().await.unwrap(),
        r#"{"error":"overloaded","n":2}"#
    );
}

/// `connor4312/cockatiel#38`: exhaustion was an error of its own, and what callers matched on was gone.
#[tokio::test(start_paused = true)]
pub(crate) async fn ex_05_a_status_is_no_error_and_exhaustion_makes_none_of_it() {
    let done = get([status(503), status(503), status(503).body("the third")])
        .policy(fixed(ms(1)).with_max_attempts(3))
        .run()
        .await;
    done.stops(503, [1, 1], StopReason::AttemptsExhausted);
    assert_eq!(done.response().text().await.unwrap(), "the third");
}
