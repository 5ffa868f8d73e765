//! Owns the rules about bytes and connections: what a server really receives, on which connection, and what is left
//! when a call is gone.

#[path = "support/wire.rs"]
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::stream;
use http::Extensions;
use reqwest::{Body, Method, Request};
use reqwest_jitter::{
    Backoff, JitteredRetryMiddleware, ReplayableBody, RetryBudget, RetryOverride, RetryPolicy,
    RetryReport, StopReason,
};
use reqwest_middleware::ClientBuilder;
use wire::{Reply, Wire, answer, client, plain, response};

fn retry_after(delay: Duration) -> JitteredRetryMiddleware {
    JitteredRetryMiddleware::new(RetryPolicy::new(Backoff::fixed(delay)).with_max_attempts(4))
}

/// So long that a body which comes a millisecond late is read before the delay is over, on a busy machine, too.
const ROOMY: Duration = Duration::from_millis(100);

/// First a 503 in these pieces, then 200.
async fn failing_once(pieces: Vec<Vec<u8>>) -> Wire {
    Wire::serve(move |number| match number {
        0 => Reply::Send(pieces.clone()),
        _ => answer(200, "", b"fine"),
    })
    .await
}

#[tokio::test]
async fn the_connection_of_a_failed_response_serves_the_retry() {
    // A short body is there as soon as its head is. A long one takes several turns of hyper's and the server's, and a
    // busy machine may take longer for them than a short delay.
    let short: &[_] = &[0, 1, 5].map(Duration::from_millis);
    let long: &[_] = &[ROOMY];
    for (size, delays) in [
        (0, short),
        (1024, short),
        (16 * 1024, long),
        (64 * 1024, long),
    ] {
        for &delay in delays {
            let server = failing_once(vec![response(503, "", &vec![b'x'; size])]).await;
            let response = client(retry_after(delay))
                .get(server.url("/"))
                .send()
                .await
                .unwrap();
            assert_eq!(response.status(), 200);
            assert_eq!(
                (server.count(), server.connections()),
                (2, 1),
                "{size} B, {delay:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_body_that_comes_after_its_head_does_not_cost_the_connection() {
    let whole = response(503, "", &[b'x'; 1024]);
    let head = whole.len() - 1024;
    let server = failing_once(vec![whole[..head].to_vec(), whole[head..].to_vec()]).await;
    client(retry_after(ROOMY))
        .get(server.url("/"))
        .send()
        .await
        .unwrap();
    assert_eq!((server.count(), server.connections()), (2, 1));
}

#[tokio::test]
async fn a_chunked_body_does_not_cost_the_connection() {
    let body = b"HTTP/1.1 503 Busy\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n";
    let server = failing_once(vec![body.to_vec(), b"0\r\n\r\n".to_vec()]).await;
    client(retry_after(ROOMY))
        .get(server.url("/"))
        .send()
        .await
        .unwrap();
    assert_eq!((server.count(), server.connections()), (2, 1));
}

/// The time is bounded loosely, from above and far below what reading on would take, which is for ever.
#[tokio::test]
async fn a_body_without_an_end_costs_its_connection_and_no_time() {
    let head = b"HTTP/1.1 503 Busy\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    let chunk = [b"1000\r\n".to_vec(), vec![b'x'; 4096], b"\r\n".to_vec()].concat();
    for reply in [
        Reply::SendForever(head.clone(), chunk),
        Reply::SendAndStall([head, b"5\r\nhello\r\n".to_vec()].concat()),
        Reply::SendAndStall(b"HTTP/1.1 503 Busy\r\ncontent-length: 9\r\n\r\nhalf".to_vec()),
    ] {
        for delay in [0, 4].map(Duration::from_millis) {
            let reply = reply.clone();
            let server = Wire::serve(move |number| match number {
                0 => reply.clone(),
                _ => answer(200, "", b""),
            })
            .await;
            let response = client(retry_after(delay))
                .get(server.url("/"))
                .send()
                .await
                .unwrap();
            assert_eq!(response.status(), 200);
            let report = RetryReport::of(&response).unwrap();
            assert_eq!((report.slept(), server.connections()), (delay, 2));
        }
    }
}

#[tokio::test]
async fn no_connection_is_held_while_waiting() {
    let head = b"HTTP/1.1 503 Busy\r\ncontent-length: 9\r\nretry-after: 60\r\n\r\nhalf".to_vec();
    let server = Wire::serve(move |_| Reply::SendAndStall(head.clone())).await;
    let client = client(retry_after(Duration::ZERO));
    let call = tokio::spawn(client.get(server.url("/")).send());
    until(|| server.count() == 1).await;
    // The body never ends; the layer lets go of the connection long before the minute is over.
    until(|| server.open() == 0).await;
    assert!(!call.is_finished());
    call.abort();
}

#[tokio::test]
async fn others_use_the_connections_of_those_who_wait() {
    const CALLS: usize = 20;
    for size in [16 * 1024, 64 * 1024] {
        let busy = response(503, "retry-after: 60\r\n", &vec![b'x'; size]);
        let server = Wire::serve(move |number| match number {
            ..CALLS => Reply::Send(vec![busy.clone()]),
            _ => answer(200, "", b""),
        })
        .await;
        let client = client(retry_after(Duration::ZERO));
        let (waiting, others) = (0..CALLS)
            .map(|_| (client.get(server.url("/")), client.get(server.url("/"))))
            .collect::<(Vec<_>, Vec<_>)>();
        let waiting: Vec<_> = waiting
            .into_iter()
            .map(|request| tokio::spawn(request.send()))
            .collect();
        until(|| server.count() == CALLS).await;
        // Nothing tells when the pool has a connection back. It takes a few turns of this one thread, which all
        // sockets share, and each sleep is at least one of them.
        for _ in 0..50 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let before = server.connections();
        for request in others {
            request.send().await.unwrap();
        }
        assert_eq!(server.connections(), before, "{size} B");
        waiting.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

#[tokio::test]
async fn a_post_is_sent_once_unless_the_server_certainly_did_nothing() {
    for (expected, reply) in [
        (1, answer(500, "", b"")),
        (1, answer(502, "", b"")),
        (1, answer(503, "", b"")),
        (1, answer(504, "", b"")),
        (1, Reply::SendAndClose(vec![])),
        (4, answer(429, "", b"")),
        (4, answer(503, "retry-after: 0\r\n", b"")),
    ] {
        let server = Wire::serve(move |_| reply.clone()).await;
        let request = client(retry_after(Duration::ZERO))
            .post(server.url("/"))
            .body("an order");
        let _ = request.send().await;
        assert_eq!(server.count(), expected);
        assert!(
            server
                .requests()
                .iter()
                .all(|request| request.body == b"an order")
        );
    }
}

#[tokio::test]
async fn a_post_that_was_redirected_is_not_repeated() {
    for status in [301, 302, 303, 307, 308] {
        let server = Wire::serve(move |number| match number {
            0 => answer(status, "location: /receipt\r\n", b""),
            _ => answer(429, "", b""),
        })
        .await;
        let response = client(retry_after(Duration::ZERO))
            .post(server.url("/orders"))
            .body("an order")
            .send()
            .await
            .unwrap();
        assert_eq!(response.status(), 429);
        assert_eq!(
            RetryReport::of(&response).unwrap().stop(),
            StopReason::NotReplayable
        );
        assert_eq!(
            server.count(),
            2,
            "the order and its receipt, after {status}"
        );
    }
}

const UPLOAD: usize = 8 * 1024 * 1024;

fn upload_bytes() -> Vec<u8> {
    (0..=250).cycle().take(UPLOAD).collect()
}

fn upload() -> Body {
    let pieces: Vec<_> = upload_bytes()
        .chunks(60_000)
        .map(|piece| Ok::<_, std::io::Error>(piece.to_vec()))
        .collect();
    Body::wrap_stream(stream::iter(pieces))
}

#[tokio::test]
async fn a_streamed_upload_that_is_made_anew_arrives_whole_each_time() {
    let server = Wire::serve(|number| answer(if number < 2 { 503 } else { 201 }, "", b"")).await;
    let response = client(retry_after(Duration::ZERO))
        .put(server.url("/"))
        .with_extension(ReplayableBody::new(upload))
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 201);
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    let expected = upload_bytes();
    assert!(requests.iter().all(|request| request.body == expected));
}

#[tokio::test]
async fn a_stream_is_sent_once_and_its_failure_comes_back() {
    let server = Wire::serve(|_| answer(503, "x-kept: yes\r\n", b"busy")).await;
    let client = client(retry_after(Duration::ZERO));
    let response = client
        .put(server.url("/"))
        .body(upload())
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 503);
    assert_eq!(response.headers()["x-kept"], "yes");
    let report = RetryReport::of(&response).unwrap();
    assert_eq!(
        (report.stop(), report.attempts()),
        (StopReason::NotReplayable, 1)
    );
    assert_eq!(response.text().await.unwrap(), "busy");
    assert_eq!(server.count(), 1);
    assert!(server.requests()[0].body == upload_bytes());
}

#[tokio::test]
async fn a_body_is_made_for_every_attempt_also_without_retries() {
    let server = Wire::serve(|_| answer(503, "", b"")).await;
    let made = Arc::new(AtomicUsize::new(0));
    for (sends, settings) in [
        (1, RetryOverride::disabled()),
        (1, RetryOverride::new().with_max_attempts(1)),
        (3, RetryOverride::new().with_max_attempts(3)),
    ] {
        let (before, count) = (server.count(), Arc::clone(&made));
        made.store(0, Ordering::SeqCst);
        let body = ReplayableBody::new(move || {
            let number = count.fetch_add(1, Ordering::SeqCst);
            Body::wrap_stream(stream::iter([Ok::<_, std::io::Error>(format!(
                "body {number}"
            ))]))
        });
        client(retry_after(Duration::ZERO))
            .put(server.url("/"))
            .with_extension(body)
            .with_extension(settings)
            .send()
            .await
            .unwrap();
        let bodies: Vec<_> = server.requests()[before..]
            .iter()
            .map(|request| request.body.clone())
            .collect();
        let expected: Vec<_> = (0..sends)
            .map(|number| format!("body {number}").into_bytes())
            .collect();
        assert_eq!(bodies, expected);
    }
}

#[tokio::test]
async fn a_body_that_can_not_be_made_sends_nothing_and_says_why() {
    let server = Wire::serve(|_| answer(503, "", b"")).await;
    // Good for this many attempts; the next body can't be made.
    for good in [0, 1] {
        for settings in [RetryOverride::new(), RetryOverride::disabled()] {
            let (before, left) = (server.count(), AtomicUsize::new(good));
            let body = ReplayableBody::try_new(move || {
                left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                    left.checked_sub(1)
                })
                .map(|_| Body::from("made"))
                .map_err(|_| std::io::Error::other("the file is gone"))
            });
            let mut extensions = Extensions::new();
            extensions.insert(body);
            extensions.insert(settings);
            let request = Request::new(Method::PUT, server.url("/").parse().unwrap());
            let result = client(retry_after(Duration::ZERO))
                .execute_with_extensions(request, &mut extensions)
                .await;
            assert_eq!(server.count() - before, good);
            match result {
                Err(reqwest_middleware::Error::Middleware(error)) => {
                    assert_eq!(
                        error.downcast::<std::io::Error>().unwrap().to_string(),
                        "the file is gone"
                    );
                }
                Ok(response) => {
                    assert_eq!((response.status().as_u16(), good), (503, 1), "disabled");
                }
                Err(other) => panic!("{other:?}"),
            }
        }
    }
}

/// Waits for what another task does, without a guess at how long that takes.
async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_dropped_while_they_wait_leave_nothing_behind() {
    const CALLS: usize = 1000;
    let server = Wire::serve(|_| answer(503, "retry-after: 60\r\n", b"come back later")).await;
    let waits = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&waits);
    // Exactly one retry for each call: had a dropped one kept its token, the last round would be refused.
    let budget = RetryBudget::new()
        .with_burst(u32::try_from(CALLS).unwrap())
        .with_reserve_per_sec(0)
        .with_extra_load_percent(0);
    let inner = plain().pool_max_idle_per_host(0).build().unwrap();
    let client = ClientBuilder::new(inner)
        .with(
            retry_after(Duration::ZERO)
                .with_budget(budget)
                .on_retry(move |_| {
                    count.fetch_add(1, Ordering::SeqCst);
                }),
        )
        .build();
    let tasks_before = tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks();
    for round in 1..=3 {
        let calls: Vec<_> = (0..CALLS)
            .map(|_| tokio::spawn(client.get(server.url("/")).send()))
            .collect();
        until(|| waits.load(Ordering::SeqCst) == round * CALLS).await;
        calls.iter().for_each(tokio::task::JoinHandle::abort);
        for call in calls {
            assert!(call.await.unwrap_err().is_cancelled());
        }
        until(|| server.open() == 0).await;
    }
    until(|| {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
            <= tasks_before
    })
    .await;
}

#[tokio::test]
async fn a_zero_delay_does_not_touch_the_timer_where_the_failed_body_is_complete() {
    let (send, receive) = tokio::sync::oneshot::channel();
    let server =
        Wire::serve(|number| answer(if number == 0 { 503 } else { 200 }, "", b"short")).await;
    let url = server.url("/");
    // A runtime without a timer panics as soon as one is touched.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .unwrap();
        let status = runtime.block_on(async {
            let inner = plain().pool_idle_timeout(None).build().unwrap();
            let client = ClientBuilder::new(inner)
                .with(retry_after(Duration::ZERO))
                .build();
            client.get(url).send().await.unwrap().status()
        });
        send.send(status).unwrap();
    });
    assert_eq!(receive.await.unwrap(), 200);
}

#[tokio::test]
async fn a_response_comes_back_as_it_was_after_the_last_attempt() {
    let server = Wire::serve(|_| answer(503, "x-twice: 1\r\nx-twice: 2\r\n", b"the reason")).await;
    let url = server.url("/path?query");
    let response = client(retry_after(Duration::ZERO))
        .get(&url)
        .send()
        .await
        .unwrap();
    assert_eq!(response.url().as_str(), url);
    assert_eq!(response.headers().get_all("x-twice").iter().count(), 2);
    assert!(response.remote_addr().is_some());
    assert_eq!(
        RetryReport::of(&response).unwrap().stop(),
        StopReason::AttemptsExhausted
    );
    assert_eq!(response.text().await.unwrap(), "the reason");
}
