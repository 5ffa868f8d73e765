//! Owns the rule of how long a computed delay may be: every bound, against exact arithmetic that can't overflow.

mod support;

use std::collections::HashSet;
use std::time::Duration;

use proptest::prelude::*;
use reqwest_jitter::{Backoff, Jitter};
use support::{ms, secs};

const JITTERS: [Jitter; 4] = [
    Jitter::None,
    Jitter::Full,
    Jitter::Equal,
    Jitter::Decorrelated,
];

#[derive(Clone, Copy, Debug)]
enum Curve {
    Exponential,
    Linear,
    Fixed,
}

/// A backoff as the documentation describes it, in numbers that nothing here can overflow.
#[derive(Clone, Copy, Debug)]
struct Oracle {
    curve: Curve,
    base: Duration,
    cap: Duration,
    factor: u32,
    jitter: Jitter,
}

/// More than any delay can be, in milliseconds: 2^64 of them, which the implementation may saturate to.
const ENDLESS: u128 = u64::MAX as u128;

impl Oracle {
    fn backoff(self) -> Backoff {
        let backoff = match self.curve {
            Curve::Exponential => Backoff::exponential(self.base, self.cap),
            Curve::Linear => Backoff::linear(self.base, self.cap),
            Curve::Fixed => Backoff::fixed(self.base),
        };
        backoff.with_factor(self.factor).with_jitter(self.jitter)
    }

    fn base(self) -> u128 {
        rounded_up(self.base)
    }

    fn cap(self) -> u128 {
        match self.curve {
            Curve::Fixed => self.base(),
            Curve::Exponential | Curve::Linear => rounded_up(self.cap),
        }
    }

    /// `min(cap, curve)`, by repeated multiplication.
    fn curve(self, retry: u32) -> u128 {
        let retry = retry.max(1);
        let grown = match self.curve {
            Curve::Exponential => grow(self.base(), self.factor.max(1), retry - 1),
            Curve::Linear => self.base() * u128::from(retry),
            Curve::Fixed => self.base(),
        };
        grown.min(self.cap())
    }

    fn ceiling(self, retry: u32) -> u128 {
        match self.jitter {
            Jitter::Decorrelated => grow(self.base(), 3, retry.max(1)).min(self.cap()),
            _ => self.curve(retry),
        }
    }

    /// Both ends of what a retry may wait after a delay of `previous`.
    fn range(self, retry: u32, previous: u128) -> (u128, u128) {
        let curve = self.curve(retry);
        match self.jitter {
            Jitter::None => (curve, curve),
            Jitter::Full => (0, curve),
            Jitter::Equal => (curve.div_ceil(2), curve),
            Jitter::Decorrelated => {
                let longest = (previous * 3).max(self.base());
                (self.base().min(self.cap()), longest.min(self.cap()))
            }
            other => panic!("no rule for {other:?}"),
        }
    }
}

fn rounded_up(duration: Duration) -> u128 {
    duration.as_nanos().div_ceil(1_000_000).min(ENDLESS)
}

fn grow(base: u128, factor: u32, times: u32) -> u128 {
    let mut grown = base;
    for _ in 0..times {
        if grown == 0 || factor == 1 || grown >= ENDLESS {
            break;
        }
        grown *= u128::from(factor);
    }
    grown.min(ENDLESS)
}

/// Ordinary ones, and those that nobody means.
fn durations() -> impl Strategy<Value = Duration> {
    prop_oneof![
        (0..20_000_u64).prop_map(ms),
        (0..5_000_000_000_u64).prop_map(Duration::from_nanos),
        any::<Duration>(),
        prop::sample::select(vec![
            Duration::ZERO,
            Duration::from_nanos(1),
            ms(1),
            ms(u64::MAX),
            ms(u64::MAX / 3),
            secs(u64::MAX),
            Duration::MAX,
        ]),
    ]
}

fn oracles() -> impl Strategy<Value = Oracle> {
    let curves = prop::sample::select(vec![Curve::Exponential, Curve::Linear, Curve::Fixed]);
    let factors = prop_oneof![0..5_u32, any::<u32>(), Just(u32::MAX)];
    let jitters = prop::sample::select(JITTERS.to_vec());
    (curves, durations(), durations(), factors, jitters).prop_map(
        |(curve, base, cap, factor, jitter)| Oracle {
            curve,
            base,
            cap,
            factor,
            jitter,
        },
    )
}

fn retries() -> impl Strategy<Value = u32> {
    prop_oneof![0..40_u32, any::<u32>(), Just(u32::MAX)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_ceiling_is_exact(oracle in oracles(), retry in retries()) {
        prop_assert_eq!(oracle.backoff().ceiling(retry).as_nanos(), oracle.ceiling(retry) * 1_000_000);
    }

    #[test]
    fn every_delay_lies_in_its_range(oracle in oracles(), seed in any::<u64>()) {
        let mut previous = oracle.base();
        for (retry, delay) in (1..).zip(oracle.backoff().delays(seed).take(70)) {
            let delay_ms = delay.as_millis();
            let (shortest, longest) = oracle.range(retry, previous);
            prop_assert_eq!(delay.subsec_nanos() % 1_000_000, 0, "whole milliseconds");
            prop_assert!((shortest..=longest).contains(&delay_ms), "{delay_ms} in {shortest}..={longest}");
            prop_assert!(delay <= oracle.backoff().ceiling(retry));
            prop_assert!(delay_ms <= oracle.cap());
            previous = delay_ms;
        }
    }

    #[test]
    fn a_seed_means_the_same_sequence(oracle in oracles(), seed in any::<u64>()) {
        let delays = || oracle.backoff().delays(seed).take(50).collect::<Vec<_>>();
        prop_assert_eq!(delays(), delays());
    }
}

#[test]
fn every_delay_of_a_short_range_is_reached() {
    for (base, jitter) in (1..6).flat_map(|base| JITTERS.map(|jitter| (base, jitter))) {
        let oracle = Oracle {
            curve: Curve::Exponential,
            base: ms(base),
            cap: ms(11),
            factor: 2,
            jitter,
        };
        let mut seen = [HashSet::new(), HashSet::new()];
        for seed in 0..2000 {
            let mut delays = oracle.backoff().delays(seed).map(|delay| delay.as_millis());
            let (first, second) = (delays.next().unwrap(), delays.next().unwrap());
            seen[0].insert(first);
            // What decorrelated jitter grows from has to be known.
            if jitter != Jitter::Decorrelated || first == u128::from(base) {
                seen[1].insert(second);
            }
        }
        for (retry, seen) in (1..).zip(seen) {
            let (shortest, longest) = oracle.range(retry, u128::from(base));
            let all: HashSet<_> = (shortest..=longest).collect();
            assert_eq!(seen, all, "retry {retry} of {oracle:?}");
        }
    }
}

#[test]
fn the_ends_of_every_range_are_reached_where_they_are_named() {
    let backoff = Backoff::exponential(ms(3), ms(7));
    for (jitter, retry, shortest, longest) in [
        (Jitter::None, 1, 3, 3),
        (Jitter::None, 2, 6, 6),
        (Jitter::None, 3, 7, 7),
        (Jitter::Full, 1, 0, 3),
        (Jitter::Full, 2, 0, 6),
        (Jitter::Full, 3, 0, 7),
        (Jitter::Equal, 1, 2, 3),
        (Jitter::Equal, 2, 3, 6),
        (Jitter::Equal, 3, 4, 7),
        (Jitter::Decorrelated, 1, 3, 7),
        (Jitter::Decorrelated, 3, 3, 7),
    ] {
        let backoff = backoff.with_jitter(jitter);
        let drawn = || (0..5000).map(|seed| backoff.delays(seed).nth(retry - 1).unwrap());
        let found = (drawn().min().unwrap(), drawn().max().unwrap());
        assert_eq!(found, (ms(shortest), ms(longest)), "{jitter:?}, {retry}");
    }
}

#[test]
fn decorrelated_jitter_grows_from_the_delay_before() {
    let backoff = Backoff::exponential(ms(2), ms(1000)).with_jitter(Jitter::Decorrelated);
    let longest = |retry: usize| {
        let drawn = (0..5000).map(|seed| backoff.delays(seed).nth(retry - 1));
        drawn.max().unwrap().unwrap()
    };
    assert_eq!((longest(1), longest(2)), (ms(6), ms(18)));
    assert!(longest(5) > ms(54));
}

#[test]
fn impossible_backoffs_clamp() {
    let (second, minute) = (secs(1), secs(60));
    for jitter in JITTERS {
        let longest = |backoff: Backoff| {
            let delays = backoff.with_jitter(jitter).delays(1);
            delays.take(100).max().unwrap()
        };
        let zero = Duration::ZERO;
        assert_eq!(longest(Backoff::exponential(zero, minute)), zero);
        assert_eq!(longest(Backoff::exponential(second, zero)), zero);
        assert!(longest(Backoff::exponential(minute, second)) <= second);
        assert!(longest(Backoff::exponential(second, minute).with_factor(u32::MAX)) <= minute);
        if jitter != Jitter::Decorrelated {
            assert!(longest(Backoff::exponential(second, minute).with_factor(0)) <= second);
        }
    }
    for retry in [0, 1, 2, u32::MAX] {
        let backoff = Backoff::exponential(second, minute);
        assert_eq!(backoff.with_factor(0).ceiling(retry), second);
        let saturated = Backoff::exponential(Duration::MAX, Duration::MAX).with_factor(u32::MAX);
        assert_eq!(saturated.ceiling(retry), ms(u64::MAX));
        assert_eq!(Backoff::fixed(second).ceiling(retry), second);
    }
}

#[test]
fn the_documented_curves() {
    let ceilings =
        |backoff: Backoff| [1, 2, 3, 4, 5].map(|retry| backoff.ceiling(retry).as_millis());
    let (base, cap) = (ms(100), ms(1000));
    let exponential = Backoff::exponential(base, cap);
    assert_eq!(ceilings(exponential), [100, 200, 400, 800, 1000]);
    assert_eq!(
        ceilings(exponential.with_factor(3)),
        [100, 300, 900, 1000, 1000]
    );
    assert_eq!(ceilings(exponential.with_factor(1)), [100; 5]);
    assert_eq!(
        ceilings(Backoff::linear(base, ms(450))),
        [100, 200, 300, 400, 450]
    );
    assert_eq!(ceilings(Backoff::fixed(base)), [100; 5]);
    let decorrelated = exponential.with_jitter(Jitter::Decorrelated);
    assert_eq!(ceilings(decorrelated), [300, 900, 1000, 1000, 1000]);
    assert_eq!(
        ceilings(Backoff::default()),
        [1000, 2000, 4000, 8000, 16_000]
    );
    assert_eq!(Backoff::default().ceiling(6), secs(30));
    // Fixed delays start without jitter, all others with the full one.
    assert_eq!(
        Backoff::fixed(base),
        Backoff::fixed(base).with_jitter(Jitter::None)
    );
    assert_eq!(exponential, exponential.with_jitter(Jitter::Full));
    assert_eq!(
        Backoff::linear(base, cap),
        Backoff::linear(base, cap).with_jitter(Jitter::Full)
    );
    assert_eq!(Jitter::default(), Jitter::Full);
}

#[test]
fn delays_have_no_end() {
    for jitter in JITTERS {
        let backoff = Backoff::exponential(ms(1), secs(1)).with_jitter(jitter);
        assert_eq!(backoff.delays(3).skip(100_000).take(10).count(), 10);
        if jitter != Jitter::None {
            let delays = |seed| backoff.delays(seed).skip(10).take(20).collect::<Vec<_>>();
            assert_ne!(delays(1), delays(2));
        }
    }
}
