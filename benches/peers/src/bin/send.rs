//! Sends requests that succeed, and nothing else: what callgrind counts the instructions of. The allocator that counts
//! is left out, since it would be counted, too.
//!
//! `send <contender> <count> [url]`

#[path = "../contender.rs"]
#[allow(dead_code)] // The table uses more of it.
mod contender;
#[path = "../origin.rs"]
mod origin;

use std::time::Duration;

use contender::{Contender, Plan};
use http::Extensions;
use origin::Origin;
use reqwest::{Method, Request, Url};

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let contender = Contender::named(&arguments[0]).expect("a contender");
    let count: u64 = arguments[1].parse().expect("a count");
    let plan = Plan::exponential(Duration::from_millis(1), Duration::from_secs(30), 4);
    let (client, url) = if let Some(url) = arguments.get(2) {
        (contender.client(plan), url.as_str())
    } else {
        let fails: fn(u64) -> bool = match contender {
            Contender::HereAfterFailure => |number| number == 0,
            _ => |_| false,
        };
        (
            contender.client_to(Origin::new(fails), plan, 1),
            origin::URL,
        )
    };
    let url: Url = url.parse().expect("a URL");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    for _ in 0..count {
        let request = Request::new(Method::GET, url.clone());
        runtime.block_on(async {
            let response = client.send(request, &mut Extensions::new()).await;
            assert!(response.expect("an answer").text().await.is_ok());
        });
    }
}
