//! What the fuzzer drives: pure parts of the crate, fed with whatever bytes say, and what must hold of them.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::arithmetic_side_effects,
    missing_docs
)] // It exists to fail.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use rand::SeedableRng;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::classify::transport::proves_no_effect;
use crate::classify::{Cause, Effect, Verdict};
use crate::gate::state::Outcome as GateOutcome;
use crate::gate::state::crowd::{Crowd, Event};
use crate::hint::{DelayHints, HintUnit};
use crate::jitter::{Dice, Jitter};
use crate::origin::Origin;
use crate::policy::{Replay, RetryPolicy, Terms};
use crate::report::DelaySource;
use crate::session::{Decision, Outcome, Replayability, Session};

/// Takes numbers off the front of the input; zeros when it is used up.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    fn number(&mut self, bytes: u32) -> u64 {
        (0..bytes).fold(0, |number, _| (number << 8) | u64::from(self.byte()))
    }

    /// Short ones and long ones alike: the exponent is drawn, too.
    fn duration(&mut self) -> Duration {
        match self.byte() % 8 {
            0 => Duration::ZERO,
            1 => Duration::MAX,
            2 => Duration::from_secs(self.number(8)),
            3 => Duration::from_nanos(self.number(8)),
            _ => Duration::from_millis(self.number(2)),
        }
    }

    fn slice(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte()).min(self.0.len());
        let (slice, rest) = self.0.split_at(length);
        self.0 = rest;
        slice
    }
}

const HEADERS: [&str; 16] = [
    "retry-after",
    "date",
    "age",
    "retry-after-ms",
    "x-ms-retry-after-ms",
    "x-own-seconds",
    "x-own-milliseconds",
    "expires",
    "ratelimit",
    "beta-ratelimit",
    "x-ratelimit-reset",
    "x-ratelimit-remaining",
    "x-ratelimit-reset-after",
    "x-amz-retry-after",
    "grpc-retry-pushback-ms",
    "x-should-retry",
];

/// Any headers: no panic, and never less than the seconds that `Retry-After` names in so many digits.
pub fn hints(data: &[u8]) {
    let mut input = Input(data);
    let now = UNIX_EPOCH
        .checked_add(Duration::from_secs(input.number(5)))
        .unwrap_or(SystemTime::now());
    let status = match input.byte() % 2 {
        0 => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    let mut headers = HeaderMap::new();
    let mut least = Duration::ZERO;
    while !input.0.is_empty() {
        let name = HEADERS[usize::from(input.byte()) % HEADERS.len()];
        let value = input.slice();
        if let Ok(header) = HeaderValue::from_bytes(value) {
            headers.append(HeaderName::from_static(name), header);
            let text = std::str::from_utf8(value).unwrap_or_default();
            if name == "retry-after"
                && text.len() < 10
                && text.bytes().all(|byte| byte.is_ascii_digit())
            {
                least = least.max(Duration::from_secs(text.parse().unwrap_or_default()));
            }
        }
    }
    let own = DelayHints::standard()
        .with_header(HeaderName::from_static("x-own-seconds"), HintUnit::Seconds)
        .with_header(
            HeaderName::from_static("x-own-milliseconds"),
            HintUnit::Milliseconds,
        );
    for hints in [
        DelayHints::none(),
        DelayHints::standard(),
        DelayHints::vendors(),
        own,
    ] {
        let hint = hints.read(status, &headers, now).map(|hint| hint.wait);
        if hints != DelayHints::none() {
            assert!(hint.unwrap_or_default() >= least, "{hint:?} < {least:?}");
        }
        let signal = hints.should_retry(&headers);
        assert!(signal.is_none() || hints == DelayHints::vendors());
    }
}

/// Any events at any time at a gate.
pub fn gate(data: &[u8]) {
    let mut input = Input(data);
    let mut crowd = Crowd::new(u32::from(input.byte() % 6));
    while !input.0.is_empty() {
        let index = u16::from(input.byte() >> 3);
        let event = match input.byte() % 16 {
            0..=3 => Event::Arrive((index > 0).then(|| input.number(2))),
            4 => Event::Poll(index),
            5..=7 => Event::Ready,
            8 => Event::Leave(index),
            9 => Event::Abandon(index),
            10 => Event::Clock(input.number(2) as i64 - 0x8000),
            11 => Event::Clock(input.number(1) as i64),
            12 => Event::Answer(index, GateOutcome::Neutral, input.number(1)),
            13 => Event::Answer(
                index,
                GateOutcome::Failure {
                    hint: Some(input.duration()),
                },
                input.number(2),
            ),
            14 => Event::Answer(index, GateOutcome::Failure { hint: None }, input.number(2)),
            _ => Event::Answer(index, GateOutcome::Success, 0),
        };
        crowd.apply(event);
    }
    crowd.finish();
}

/// Any policy and any outcomes at any time: the caps hold, and a hint is kept to the letter.
pub fn session(data: &[u8]) {
    let mut input = Input(data);
    let (base, cap) = (input.duration(), input.duration());
    let backoff = match input.byte() % 3 {
        0 => Backoff::exponential(base, cap),
        1 => Backoff::linear(base, cap),
        _ => Backoff::fixed(cap),
    };
    let jitters = [
        Jitter::None,
        Jitter::Full,
        Jitter::Equal,
        Jitter::Decorrelated,
    ];
    let replays = [
        Replay::IdempotentOnly,
        Replay::WhenUnprocessed,
        Replay::Always,
    ];
    let mut policy = RetryPolicy::new(backoff.with_factor(input.number(4) as u32))
        .with_jitter(jitters[usize::from(input.byte()) % 4])
        .with_max_attempts(u32::from(input.byte()))
        .with_max_retry_after(input.duration())
        .with_replay(replays[usize::from(input.byte()) % 3])
        .with_hint_spread(input.duration());
    let is_limited = input.byte() % 2 == 0;
    if is_limited {
        policy = policy.with_max_elapsed(input.duration());
    }
    let replay = Replayability {
        is_idempotent: input.byte() % 2 == 0,
        has_replayable_body: input.byte() % 8 != 0,
    };
    let started = Instant::now();
    let mut terms = Terms::of(policy);
    if input.byte() % 2 == 0 {
        terms.deadline = started.checked_add(input.duration());
    }
    let origin = Origin::of(&"http://host.test/".parse().unwrap());
    let dice = Dice::seed_from_u64(input.number(8));
    let mut session = Session::new(terms, origin, replay, Some(started), dice);
    let mut now = started;
    let mut attempts = 1;
    loop {
        now = now.checked_add(input.duration()).unwrap_or(now);
        let hint = (input.byte() % 2 == 0).then(|| input.duration());
        let effect = if input.byte() % 2 == 0 {
            Effect::None
        } else {
            Effect::Unknown
        };
        let outcome = Outcome {
            verdict: Verdict::retry(Cause::ServerError, effect),
            hint,
            status: None,
        };
        let Decision::Retry(event) = session.decide(outcome, now) else {
            break;
        };
        assert!(replay.has_replayable_body);
        assert!(replay.is_idempotent || effect == Effect::None || policy.replay == Replay::Always);
        match event.source {
            DelaySource::Computed => {
                assert!(event.delay <= policy.backoff.ceiling(u32::MAX))
            }
            _ => {
                let hint = hint.unwrap();
                assert!(event.delay >= hint && hint <= policy.max_retry_after);
                assert!(
                    event.delay
                        <= hint
                            .saturating_add(policy.hint_spread)
                            .saturating_add(Duration::from_millis(1))
                );
            }
        }
        if let Some(max_elapsed) = policy.max_elapsed {
            assert!((now - started).saturating_add(event.delay) <= max_elapsed);
        }
        if let Some(deadline) = terms.deadline {
            assert!(
                now.checked_add(event.delay)
                    .is_some_and(|then| then <= deadline)
            );
        }
        now = now.checked_add(event.delay).unwrap_or(now);
        session.waited(event);
        attempts += 1;
        assert_eq!(session.begin_attempt(), attempts);
        assert!(attempts <= policy.max_attempts);
    }
}

/// Any chain of errors: the walk ends, and nothing but hyper's and h2's own types proves that there was no effect.
pub fn error_chain(data: &[u8]) {
    let mut input = Input(data);
    let mut chain = Link::default();
    while !input.0.is_empty() {
        chain = match input.byte() % 4 {
            0 => Link(Some(Box::new(chain)), "client error (SendRequest)"),
            1 => Link(Some(Box::new(chain)), "operation was canceled"),
            2 => Link(
                Some(Box::new(io::Error::other(chain))),
                "tunnel error: proxy authorization required",
            ),
            _ => Link(
                Some(Box::new(io::Error::new(io::ErrorKind::InvalidData, chain))),
                "stream error received: refused stream",
            ),
        };
    }
    assert!(!proves_no_effect(&chain));
}

#[derive(Debug, Default)]
struct Link(Option<Box<dyn Error + Send + Sync>>, &'static str);

impl fmt::Display for Link {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.1)
    }
}

impl Error for Link {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.as_deref().map(|below| below as _)
    }
}
