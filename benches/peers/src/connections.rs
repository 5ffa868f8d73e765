//! What becomes of the connections of failed attempts, counted by the server that accepts them.

use std::time::Duration;

use http::Extensions;
use reqwest::{Method, Request};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::contender::{Contender, Plan};
use crate::server::Server;
use crate::wire::answer;

const KIB: usize = 1024;

/// New connections per retry, where each retry follows a 503 with a body of this size.
pub(crate) fn per_retry(contender: Contender, kib: usize) -> String {
    const CALLS: u32 = 40;
    let body = vec![b'x'; kib * KIB];
    let server = Server::new(move |number| match number {
        0 => answer(200, "", b"opens the first connection"),
        number if number % 2 == 1 => answer(503, "", &body),
        _ => answer(200, "", b""),
    });
    let client = contender.client(Plan::fixed(Duration::from_millis(20), 1));
    let opened = runtime().block_on(async {
        let send = async || {
            let request = Request::new(Method::GET, server.url());
            let response = client.send(request, &mut Extensions::new()).await;
            assert!(response.expect("an answer").text().await.is_ok());
            // The connection goes back to the pool a moment after the body was read.
            sleep(Duration::from_millis(2)).await;
        };
        send().await;
        let before = server.connections();
        for _ in 0..CALLS {
            send().await;
        }
        server.connections() - before
    });
    let retries = server.requests() - 1 - CALLS as usize;
    per(opened, retries)
}

/// New connections that 50 other requests need while 50 wait for their retry after a 503 with a body of this size: the
/// median of three, since one of the 50 may be late now and then.
pub(crate) fn of_others(contender: Contender, kib: usize) -> String {
    let mut opened = [0, 1, 2].map(|_| opened_for_others(contender, kib));
    opened.sort_unstable();
    opened[1].to_string()
}

fn opened_for_others(contender: Contender, kib: usize) -> usize {
    const CROWD: usize = 50;
    const WAIT: Duration = Duration::from_secs(1);
    let body = vec![b'x'; kib * KIB];
    let server = Server::new(move |number| {
        if number < CROWD {
            answer(503, "", &body)
        } else {
            answer(200, "", b"")
        }
    });
    let client = contender.client(Plan::fixed(WAIT, 1));
    runtime().block_on(async {
        let crowd = || {
            let mut calls = JoinSet::new();
            for _ in 0..CROWD {
                let (client, url) = (client.clone(), server.url());
                calls.spawn(async move {
                    let request = Request::new(Method::GET, url);
                    let response = client.send(request, &mut Extensions::new()).await;
                    response.expect("an answer").text().await.is_ok()
                });
            }
            calls
        };
        let waiting = crowd();
        sleep(WAIT / 2).await;
        assert_eq!(server.requests(), CROWD, "everybody waits");
        let before = server.connections();
        crowd().join_all().await;
        let opened = server.connections() - before;
        assert_eq!(server.requests(), 2 * CROWD, "everybody still waits");
        waiting.join_all().await;
        opened
    })
}

/// To a tenth: now and then a connection gets back to the pool too late, or in time by chance.
fn per(opened: usize, retries: usize) -> String {
    #[allow(clippy::cast_precision_loss)]
    let ratio = opened as f64 / retries as f64;
    let tenths = (ratio * 10.0).round() / 10.0;
    tenths.to_string()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime")
}
