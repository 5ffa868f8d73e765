//! What a gate does with any sequence of events at any time, and with some of its own.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::crowd::{Crowd, Event, MINUTE};
use super::*;

fn event() -> impl Strategy<Value = Event> {
    let index = any::<u16>;
    let hint = option::of(prop_oneof![
        Just(Duration::ZERO),
        (1..5000_u64).prop_map(Duration::from_millis),
        Just(100 * 525_600 * MINUTE),
        Just(Duration::MAX),
    ]);
    let outcome = prop_oneof![
        4 => Just(Outcome::Success),
        4 => Just(Outcome::Failure { hint: None }),
        1 => hint.prop_map(|hint| Outcome::Failure { hint }),
        1 => Just(Outcome::Neutral),
    ];
    prop_oneof![
        6 => option::of(prop_oneof![Just(0), 0..10_000_u64]).prop_map(Event::Arrive),
        1 => index().prop_map(Event::Poll),
        4 => Just(Event::Ready),
        1 => index().prop_map(Event::Leave),
        6 => (index(), outcome, prop_oneof![0..1000_u64, Just(u64::MAX)]).prop_map(|(i, o, t)| Event::Answer(i, o, t)),
        1 => index().prop_map(Event::Abandon),
        3 => prop_oneof![0..20_i64, 0..2000_i64, -2000..0_i64, Just(3_600_000), Just(-3_600_000)].prop_map(Event::Clock),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn holds_for_any_sequence_of_events_and_any_clock(trip_after in 0..4_u32, events in vec(event(), 0..150)) {
        let mut crowd = Crowd::new(trip_after);
        for event in events {
            crowd.apply(event);
        }
        crowd.finish();
    }
}

/// One 429 with `Retry-After: 30`, and 49 others that start during the next 30 s.
#[test]
fn everybody_waits_for_the_named_time_and_for_the_probe() {
    for seed in 0..10_000 {
        let mut dice = Dice(seed);
        let mut crowd = Crowd::new(5);
        let zero = crowd.now;
        crowd.arrive(None);
        crowd.answer(
            0,
            Outcome::Failure {
                hint: Some(MINUTE / 2),
            },
            Duration::ZERO,
        );
        let until = zero + MINUTE / 2;
        let mut starts: Vec<_> = (0..49)
            .map(|_| zero + Duration::from_millis(dice.upto(29_999)))
            .collect();
        starts.sort();
        for start in starts {
            crowd.now = start;
            crowd.arrive(Some(start + MINUTE));
            while crowd.poll_ready() {}
        }
        assert_eq!(crowd.passes.len(), 1);
        crowd.now = until;
        while crowd.poll_ready() {}
        assert_eq!(crowd.passes.len(), 2, "the probe alone");
        let mut lost = 0;
        while dice.upto(1) == 0 {
            // The probe goes away, or fails: the next one is alone, too.
            let passes = crowd.passes.len();
            lost += 1;
            if dice.upto(1) == 0 {
                crowd.abandon(0);
                while crowd.poll_ready() {}
            } else {
                let open_time = Duration::from_millis(1 + dice.upto(100));
                crowd.answer(0, Outcome::Failure { hint: None }, open_time);
                while crowd.poll_ready() {}
                assert_eq!(
                    crowd.passes.len(),
                    passes,
                    "a failing probe lets nobody through"
                );
                crowd.now += open_time;
                while crowd.poll_ready() {}
            }
            assert_eq!(crowd.passes.len(), passes + 1);
        }
        assert!(lost < 49);
        crowd.finish();
        assert_eq!((crowd.passes.len(), crowd.refusals), (50, 0));
        assert!(crowd.passes.iter().skip(1).all(|&pass| pass >= until));
    }
}

struct Dice(u64);

impl Dice {
    fn upto(&mut self, max: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % (max + 1)
    }
}

fn opens(_: u32) -> Duration {
    Duration::from_millis(100)
}

#[test]
fn trips_after_so_many_failures_in_a_row() {
    for (trip_after, failures, closed) in
        [(5, 4, false), (5, 5, true), (0, 1000, false), (1, 1, true)]
    {
        let mut crowd = Crowd::new(trip_after);
        for _ in 0..failures {
            crowd.arrive(None);
        }
        for _ in 0..failures {
            crowd.answer(0, Outcome::Failure { hint: None }, opens(1));
        }
        assert_eq!(
            crowd.state.is_closed(crowd.now),
            closed,
            "{failures} of {trip_after}"
        );
    }
}

#[test]
fn an_answer_in_between_starts_the_row_again() {
    let mut crowd = Crowd::new(2);
    for outcome in [
        Outcome::Failure { hint: None },
        Outcome::Success,
        Outcome::Failure { hint: None },
    ] {
        crowd.arrive(None);
        crowd.answer(0, outcome, opens(1));
    }
    assert!(!crowd.state.is_closed(crowd.now));
}

#[test]
fn stays_closed_longer_each_time_the_probe_fails() {
    let mut state = State::new(1);
    let mut now = Instant::now();
    let mut retries = Vec::new();
    for _ in 0..4 {
        let Arrival::Pass(ticket) = state.arrive(now, Some(now)) else {
            panic!("{state:?}")
        };
        state.answered(ticket, Outcome::Failure { hint: None }, now, &mut |retry| {
            retries.push(retry);
            opens(retry)
        });
        let Arrival::Refused { retry_at } = state.arrive(now, Some(now)) else {
            panic!("{state:?}")
        };
        assert_eq!(retry_at, now + opens(1));
        now = retry_at;
    }
    assert_eq!(retries, [1, 2, 3, 4]);
}

#[test]
fn a_late_hint_moves_the_time_later_and_never_earlier() {
    let mut crowd = Crowd::new(5);
    for _ in 0..3 {
        crowd.arrive(None);
    }
    let hint = |seconds| Outcome::Failure {
        hint: Some(Duration::from_secs(seconds)),
    };
    for (seconds, until) in [(10, 10), (30, 30), (1, 30)] {
        crowd.answer(0, hint(seconds), opens(1));
        assert_eq!(crowd.closed(), Some(crowd.now + Duration::from_secs(until)));
    }
}

#[test]
fn who_would_wait_in_vain_is_refused_at_once() {
    let mut crowd = Crowd::new(5);
    crowd.arrive(None);
    crowd.arrive(None);
    crowd.answer(0, Outcome::Failure { hint: Some(MINUTE) }, opens(1));
    crowd.arrive(Some(crowd.now + MINUTE - Duration::from_millis(1)));
    assert_eq!(crowd.refusals, 1);
    crowd.arrive(Some(crowd.now + MINUTE));
    assert_eq!((crowd.refusals, crowd.waiting.len()), (1, 1));
    crowd.answer(
        0,
        Outcome::Failure {
            hint: Some(2 * MINUTE),
        },
        opens(1),
    );
    while crowd.poll_ready() {}
    assert_eq!((crowd.refusals, crowd.waiting.len()), (2, 0));
}

#[test]
fn forgets_what_nobody_needs() {
    let mut crowd = Crowd::new(1);
    assert!(crowd.state.is_idle(crowd.now));
    crowd.arrive(None);
    assert!(!crowd.state.is_idle(crowd.now));
    crowd.answer(0, Outcome::Failure { hint: None }, opens(1));
    assert!(!crowd.state.is_idle(crowd.now) && crowd.state.is_closed(crowd.now));
    crowd.now += opens(1);
    assert!(
        !crowd.state.is_closed(crowd.now),
        "whoever comes next is the probe, here as well as at a new gate"
    );
    crowd.arrive(None);
    assert!(crowd.state.is_closed(crowd.now));
    crowd.answer(0, Outcome::Success, opens(1));
    assert!(!crowd.state.is_idle(crowd.now));
    crowd.now += MINUTE;
    assert!(crowd.state.is_idle(crowd.now));
}

#[test]
fn a_hint_of_zero_is_an_ordinary_failure() {
    let mut crowd = Crowd::new(2);
    crowd.arrive(None);
    crowd.answer(
        0,
        Outcome::Failure {
            hint: Some(Duration::ZERO),
        },
        opens(1),
    );
    assert!(matches!(crowd.state.phase, Phase::Open { failures: 1 }));
}

#[test]
fn a_probe_that_succeeds_starts_the_open_times_again() {
    let mut crowd = Crowd::new(1);
    for closings in [1, 2, 0, 1] {
        crowd.arrive(None);
        let outcome = if closings == 0 {
            Outcome::Success
        } else {
            Outcome::Failure { hint: None }
        };
        crowd.answer(0, outcome, opens(1));
        assert_eq!(crowd.state.closings, closings);
        crowd.now += MINUTE;
    }
}

#[test]
fn a_host_that_stops_answering_gets_no_more() {
    let mut crowd = Crowd::new(1);
    crowd.arrive(None);
    crowd.arrive(None);
    crowd.answer(0, Outcome::Failure { hint: None }, opens(1));
    for _ in 0..100 {
        crowd.arrive(Some(crowd.now + MINUTE));
    }
    crowd.now += opens(1);
    while crowd.poll_ready() {}
    crowd.now += Duration::from_millis(10);
    crowd.answer(1, Outcome::Success, opens(1));
    for _ in 0..1000 {
        while crowd.poll_ready() {}
        crowd.now += Duration::from_millis(10);
    }
    // One of before the gate closed, and twice what the pace makes of a round trip.
    assert_eq!((crowd.tickets.len(), crowd.waiting.len()), (3, 97));
    crowd.now += MINUTE;
    while crowd.poll_ready() {}
    assert_eq!((crowd.tickets.len(), crowd.refusals), (3, 97));
    while !crowd.tickets.is_empty() {
        crowd.abandon(0);
    }
    crowd.finish();
}
