//! Owns the rule of the keys that the layer gives to requests: one per call, the same on every attempt.

#![cfg(feature = "idempotency-keys")]

mod support;

use std::collections::HashSet;

use reqwest::Method;
use reqwest_jitter::{JitteredRetryMiddleware, RetryOverride, RetryPolicy};
use support::{ScriptedOrigin, URL, fixed, ms, status};

/// The keys of all arrivals at an origin that is asked three times for this request.
async fn keys(
    retry: RetryPolicy,
    method: Method,
    own: Option<&str>,
    settings: RetryOverride,
) -> Vec<Option<String>> {
    let origin = ScriptedOrigin::new([status(500), status(500), status(200)]);
    let client = origin.client(JitteredRetryMiddleware::new(retry));
    let mut request = client
        .request(method, URL)
        .body("order")
        .with_extension(settings);
    if let Some(own) = own {
        request = request.header("Idempotency-Key", own);
    }
    request.send().await.unwrap();
    let key = |arrival: &support::Arrival| {
        let mut keys = arrival.headers.get_all("idempotency-key").iter();
        let key = keys.next().map(|key| key.to_str().unwrap().to_owned());
        assert_eq!(keys.next(), None, "one key");
        key
    };
    origin.arrivals().iter().map(key).collect()
}

fn policy() -> RetryPolicy {
    fixed(ms(1))
}

#[tokio::test(start_paused = true)]
async fn a_post_or_a_patch_gets_one_key_for_all_its_attempts() {
    let mut met = HashSet::new();
    for method in [Method::POST, Method::PATCH] {
        for _ in 0..100 {
            let keys = keys(
                policy().with_idempotency_keys(),
                method.clone(),
                None,
                RetryOverride::new(),
            )
            .await;
            assert_eq!(keys.len(), 3, "a key makes it idempotent");
            let key = keys[0].clone().unwrap();
            assert!(keys.iter().all(|other| other.as_ref() == Some(&key)));
            assert!(is_quoted_uuid_v4(&key), "{key}");
            assert!(met.insert(key), "a key of another call");
        }
    }
}

fn is_quoted_uuid_v4(key: &str) -> bool {
    let Some(uuid) = key.strip_prefix('"').and_then(|key| key.strip_suffix('"')) else {
        return false;
    };
    uuid.len() == 36
        && uuid.bytes().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => byte == b'-',
            14 => byte == b'4',
            19 => b"89ab".contains(&byte),
            _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
        })
}

#[tokio::test(start_paused = true)]
async fn what_needs_no_key_gets_none() {
    let keyed = policy().with_idempotency_keys();
    let none = RetryOverride::new();
    assert_eq!(
        keys(keyed, Method::GET, None, none).await,
        [None, None, None]
    );
    assert_eq!(
        keys(keyed, Method::PUT, None, none).await,
        [None, None, None]
    );
    assert_eq!(
        keys(policy(), Method::POST, None, none).await,
        [None],
        "off by default"
    );
    assert_eq!(
        keys(keyed, Method::POST, None, RetryOverride::disabled()).await,
        [None]
    );
}

#[tokio::test(start_paused = true)]
async fn the_callers_own_key_stays() {
    let own = vec![Some("\"mine\"".to_owned()); 3];
    let keyed = policy().with_idempotency_keys();
    assert_eq!(
        keys(keyed, Method::POST, Some("\"mine\""), RetryOverride::new()).await,
        own
    );
}

#[tokio::test(start_paused = true)]
async fn one_request_can_ask_for_a_key() {
    let asked = RetryOverride::new().with_idempotency_keys();
    let keys = keys(policy(), Method::POST, None, asked).await;
    assert!(keys.len() == 3 && keys[0].is_some());
}

#[tokio::test(start_paused = true)]
async fn a_seed_does_not_repeat_keys() {
    let mut met = HashSet::new();
    for _ in 0..2 {
        let origin = ScriptedOrigin::new([status(200)]);
        let retry = JitteredRetryMiddleware::new(policy().with_idempotency_keys()).with_seed(7);
        origin.client(retry).post(URL).send().await.unwrap();
        met.insert(origin.arrivals()[0].headers["idempotency-key"].clone());
    }
    assert_eq!(met.len(), 2);
}
