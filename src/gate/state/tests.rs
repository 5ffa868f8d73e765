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

fn millis(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn is_about(found: f64, expected: f64) -> bool {
    (found - expected).abs() <= 1e-9 * expected
}

/// A pace that is found already; its first turn is now.
fn steady(now: Instant, per_second: f64) -> Pace {
    Pace::start(now, 1e-7, Some(per_second))
}

/// So many accepted answers to attempts of the current pace, and then so many failures.
fn answers(pace: &mut Pace, now: Instant, accepted: u32, failed: u32) -> bool {
    let mut goes_on = true;
    for number in 0..accepted.saturating_add(failed) {
        goes_on &= pace.answered(pace.step, number < accepted, now, 0.1);
    }
    goes_on
}

#[test]
fn the_first_pace_is_one_per_round_trip_but_no_more_than_an_earlier_one_ended_with() {
    let now = Instant::now() + MINUTE;
    for (round_trip, bore, per_second, is_starting) in [
        (0.1, None, 10.0, true),
        (0.1, Some(20.0), 10.0, true),
        (0.1, Some(10.0), 10.0, false),
        (0.1, Some(4.0), 4.0, false),
        (5.0, None, 0.2, true),
        (20.0, None, 0.1, true),
    ] {
        let pace = Pace::start(now, round_trip, bore);
        assert!(is_about(pace.per_second, per_second), "{pace:?}");
        assert_eq!(pace.start.is_some(), is_starting, "{pace:?}");
        assert_eq!(pace.due(now), now);
    }
}

#[test]
fn turns_follow_each_other_and_a_late_one_is_made_up_for_by_two_milliseconds_at_most() {
    let now = Instant::now() + MINUTE;
    let mut pace = steady(now, 10.0);
    assert!(!pace.idles(now + millis(99)) && pace.idles(now + millis(100)));
    assert_eq!(pace.passed(now), 0);
    assert_eq!(pace.due(now), now + millis(100));
    assert_eq!(pace.due(now + millis(150)), now + millis(100));
    assert!(!pace.idles(now + millis(199)) && pace.idles(now + millis(200)));
    pace.passed(now + millis(101));
    assert_eq!(pace.due(now + millis(101)), now + millis(200));
    pace.passed(now + millis(250));
    assert_eq!(pace.due(now + millis(250)), now + millis(348));
    assert_eq!(
        pace.due(now + millis(1)),
        now + millis(1),
        "the clock jumped back"
    );
}

#[test]
fn a_queue_is_expected_to_triple_while_it_starts_and_to_keep_its_pace_afterwards() {
    let now = Instant::now() + MINUTE;
    let starting = Pace::start(now, 0.1, None);
    for (waiters, round_trips) in [(0, 0), (1, 1), (6, 1), (7, 2), (24, 2), (25, 3)] {
        assert_eq!(
            starting.drains(waiters, millis(100)),
            millis(100 * round_trips)
        );
    }
    assert_eq!(steady(now, 4.0).drains(10, millis(100)), millis(2_500));
}

#[test]
fn a_start_adds_two_per_round_trip_for_each_answer_up_to_what_was_borne_before() {
    let now = Instant::now() + MINUTE;
    let mut pace = Pace::start(now, 0.1, None);
    for per_second in [30.0, 50.0] {
        assert!(answers(&mut pace, now, 1, 0));
        assert!(is_about(pace.per_second, per_second), "{pace:?}");
    }
    let mut endless = Pace::start(now, 0.1, None);
    assert!(endless.answered(0, true, now, 1e-7));
    assert!(is_about(endless.per_second, 1e6), "{endless:?}");

    let mut limited = Pace::start(now, 0.1, Some(20.0));
    assert!(answers(&mut limited, now, 1, 0));
    assert!(is_about(limited.per_second, 20.0), "{limited:?}");
    assert!(limited.start.is_none() && limited.step == 1);
    assert!(answers(&mut limited, now, 1, 0));
    assert!(is_about(limited.per_second, 20.0), "the start is over");
}

#[test]
fn a_start_ends_with_the_sixth_failure_of_a_window() {
    let now = Instant::now() + MINUTE;
    let mut pace = Pace::start(now, 0.1, None);
    assert!(answers(&mut pace, now, 15, 5));
    assert!(answers(&mut pace, now, 14, 5), "a window of its own");
    assert!(pace.start.is_some());
    let (per_second, accepted) = (10.0 + 29.0 * 20.0, 29.0);
    // A little time says little, so that a round trip is the least that is taken for it.
    assert!(is_about(pace.slower(now, 0.1), accepted / 0.1));
    assert!(is_about(pace.slower(now, 0.01), per_second / 2.0));
    let later = now + millis(500);
    assert!(answers(&mut pace, later, 0, 1));
    assert!(pace.start.is_none() && pace.step == 1);
    assert!(is_about(pace.per_second, accepted / 0.5), "{pace:?}");

    // Nothing was accepted but the probe, which counts for one.
    for (after, per_second) in [(0, 5.0), (250, 4.0), (10_000, 0.1)] {
        let mut slow = Pace::start(now, 0.1, None);
        assert!(answers(&mut slow, now + millis(after), 0, 6));
        assert!(is_about(slow.per_second, per_second), "{slow:?}");
    }
    let mut hopeless = Pace::start(now, 0.1, None);
    assert!(!answers(&mut hopeless, now + 11 * (MINUTE / 60), 0, 6));
}

#[test]
fn a_window_of_a_fast_pace_takes_five_milliseconds_to_send() {
    let now = Instant::now() + MINUTE;
    for (per_second, window) in [(4000.0, 20), (10_000.0, 50), (1e6, 5000)] {
        // Two in twenty may fail, as at a slow pace, and not one more.
        let most = window / 10;
        for (failed, grows) in [(most, true), (most + 1, false)] {
            let mut pace = steady(now, per_second);
            assert!(answers(&mut pace, now, window - 1, 0));
            assert_eq!(pace.step, 0, "not before its end");
            assert!(answers(&mut pace, now, 1, 0));
            assert_eq!(pace.step, 1);
            pace.per_second = per_second;
            assert!(answers(&mut pace, now, window - failed, failed));
            assert_eq!(pace.step, 2);
            assert_eq!(pace.windows, if grows { 2 } else { 0 }, "{pace:?}");
        }
    }
}

#[test]
fn answers_to_attempts_of_another_pace_do_not_judge_this_one() {
    let now = Instant::now() + MINUTE;
    let mut pace = steady(now, 100.0);
    for _ in 0..100 {
        assert!(pace.answered(pace.step + 1, false, now, 0.1));
    }
    assert_eq!((pace.accepted, pace.failed), (0, 0));
}

#[test]
fn a_pace_creeps_up_for_eight_windows_and_then_grows_faster() {
    let now = Instant::now() + MINUTE;
    let mut pace = steady(now, 100.0);
    let mut expected = 100.0;
    for window in 1..=10 {
        assert!(answers(&mut pace, now, 19, 0));
        assert!(is_about(pace.per_second, expected), "not before its end");
        assert!(answers(&mut pace, now, 1, 0));
        expected *= if window <= 8 { 1.1 } else { 1.5 };
        assert!(is_about(pace.per_second, expected), "{window}: {pace:?}");
        assert_eq!(pace.step, window);
    }
    let mut fastest = steady(now, 1e6);
    assert!(answers(&mut fastest, now, 5000, 0));
    assert!(is_about(fastest.per_second, 1e6), "{fastest:?}");
}

#[test]
fn a_pace_falls_where_three_more_fail_than_the_host_fails_at_any_pace() {
    let now = Instant::now() + MINUTE;
    // The failures of one window after another, and what the last one makes of the pace.
    for (failures, factor) in [
        (&[0, 2][..], 1.1),
        // Tolerated are those of the first window only.
        (&[0, 2, 3], 0.9 * 0.85),
        (&[3], 1.1),
        (&[5], 1.1),
        (&[5, 7], 1.1),
        (&[5, 8], 0.9 * 0.6 / 0.75),
        // So many in the first one are the pace's own fault.
        (&[6], 0.9 * 0.7),
        (&[19], 0.4),
        // It is the first window again after a fall.
        (&[0, 3, 4], 1.1),
    ] {
        let mut pace = steady(now, 100.0);
        let mut before = 0.0;
        for &failed in failures {
            before = pace.per_second;
            assert!(answers(&mut pace, now, 20 - failed, failed));
        }
        assert!(
            is_about(pace.per_second, before * factor),
            "{failures:?}: {pace:?}"
        );
    }
    assert!(is_about(steady(now, 100.0).slower(now, 0.1), 40.0));
    assert!(!answers(&mut steady(now, 100.0), now, 0, 20));
}

#[test]
fn a_host_that_bears_less_than_one_in_ten_seconds_does_not_recover() {
    let now = Instant::now() + MINUTE;
    assert!(answers(&mut steady(now, 0.1), now, 1, 0));
    assert!(answers(&mut steady(now, 0.2), now, 14, 6));
    assert!(!answers(&mut steady(now, 0.1), now, 14, 6));
}

/// A crowd before a gate that lets so many pass per second, all of whom are answered at once.
fn recovering(per_second: f64) -> Crowd {
    let mut crowd = Crowd::new(1);
    let pace = steady(crowd.now, per_second);
    crowd.state.enter(Phase::Recovering(pace));
    crowd
}

fn pace(crowd: &Crowd) -> &Pace {
    match &crowd.state.phase {
        Phase::Recovering(pace) => pace,
        other => panic!("{other:?}"),
    }
}

#[test]
fn answers_of_a_recovery_judge_its_pace() {
    for (outcome, per_second) in [
        (Outcome::Success, Some(110.0)),
        (Outcome::Neutral, Some(100.0)),
        (Outcome::Failure { hint: None }, None),
    ] {
        let mut crowd = recovering(100.0);
        for _ in 0..20 {
            crowd.arrive(None);
            crowd.answer(0, outcome, opens(1));
            crowd.now += millis(10);
        }
        match per_second {
            Some(per_second) => assert!(is_about(pace(&crowd).per_second, per_second)),
            None => assert_eq!(crowd.closed(), Some(crowd.now - millis(10) + opens(1))),
        }
    }
}

#[test]
fn a_recovery_that_is_cut_short_leaves_what_the_host_bore() {
    let hint = Outcome::Failure { hint: Some(MINUTE) };
    for (per_second, accepted, bore) in [
        // Next to nothing is known: less than half.
        (100.0, 0, Some(40.0)),
        // All that was sent was accepted, but not half is sure.
        (100.0, 19, Some(50.0)),
        (0.25, 0, Some(0.1)),
        (0.2, 19, Some(0.1)),
        (0.24, 0, None),
    ] {
        let mut crowd = recovering(per_second);
        for number in 0..=accepted {
            crowd.arrive(None);
            let outcome = if number < accepted {
                Outcome::Success
            } else {
                hint
            };
            crowd.answer(0, outcome, opens(1));
            crowd.now += seconds(1.0 / per_second);
        }
        match (crowd.state.bore, bore) {
            (None, None) => {}
            (Some(found), Some(bore)) => assert!(is_about(found, bore), "{found}"),
            other => panic!("{per_second}: {other:?}"),
        }
    }
    let mut crowd = recovering(100.0);
    crowd.arrive(None);
    crowd.answer(0, hint, opens(1));
    crowd.now += MINUTE;
    crowd.arrive(None);
    crowd.answer(0, Outcome::Failure { hint: None }, opens(1));
    assert_eq!(
        crowd.state.bore, None,
        "a probe that fails voids what was known"
    );
}

#[test]
fn the_round_trip_is_smoothed_over_accepted_answers_until_an_outage() {
    let mut crowd = Crowd::new(9);
    let mut answer_after = |milliseconds, outcome| {
        crowd.arrive(None);
        crowd.now += millis(milliseconds);
        crowd.answer(0, outcome, opens(1));
        crowd.state.round_trip()
    };
    let failure = Outcome::Failure { hint: None };
    assert!(is_about(answer_after(500, failure), 0.1), "nothing known");
    assert!(is_about(answer_after(800, Outcome::Success), 0.8));
    assert!(is_about(answer_after(500, failure), 0.8), "not accepted");
    assert!(is_about(answer_after(500, Outcome::Neutral), 0.8));
    assert!(is_about(answer_after(400, Outcome::Success), 0.75));
    // No shorter than a millisecond, no longer than ten seconds.
    assert!(is_about(
        answer_after(0, Outcome::Success),
        0.75 - 0.749 / 8.0
    ));
    crowd.state.round_trip = Some(2.0);
    crowd.arrive(None);
    crowd.now += MINUTE;
    crowd.answer(0, Outcome::Success, opens(1));
    assert!(is_about(crowd.state.round_trip(), 3.0));
    crowd.arrive(None);
    crowd.answer(0, Outcome::Failure { hint: Some(MINUTE) }, opens(1));
    crowd.now += MINUTE;
    crowd.arrive(None);
    crowd.now += millis(300);
    crowd.answer(0, Outcome::Success, opens(1));
    assert!(is_about(crowd.state.round_trip(), 0.3), "the probe's own");
}

#[test]
fn who_comes_is_told_when_its_turn_would_be() {
    let mut state = State::new(1);
    let now = Instant::now() + MINUTE;
    assert_eq!(state.expected(now), now);
    state.enter(Phase::Closed { until: now });
    assert_eq!(state.expected(now - millis(1)), now);
    assert_eq!(state.expected(now), now + millis(100), "one round trip");
    state.enter(Phase::Probing { until: now });
    assert_eq!(state.expected(now - millis(1)), now + millis(99));

    state.enter(Phase::Recovering(steady(now, 10.0)));
    assert_eq!(state.expected(now), now);
    // The host may have two at a time, as ten per second make one of a round trip.
    for turn in [100, 200] {
        let Arrival::Pass(_) = state.arrive(now + millis(turn - 100), None) else {
            panic!("{state:?}")
        };
        assert_eq!(state.in_flight == 2, turn == 200);
        if turn == 100 {
            assert_eq!(state.expected(now), now + millis(100));
            assert_eq!(state.due(now), Some(now + millis(100)));
        }
    }
    assert_eq!(state.due(now + millis(500)), None);
    assert_eq!(state.expected(now + millis(500)), now + millis(600));
    for waiters in 1..4 {
        let Arrival::Wait(_) = state.arrive(now + millis(500), None) else {
            panic!("{state:?}")
        };
        assert_eq!(state.waiting(), waiters);
        assert_eq!(
            state.expected(now + millis(500)),
            now + millis(600 + 100 * waiters as u64)
        );
    }
}

#[test]
fn a_recovery_is_over_once_a_slot_goes_by_that_nobody_wants() {
    let mut crowd = recovering(10.0);
    assert!(!crowd.state.is_recovered(crowd.now + millis(99)));
    assert!(crowd.state.is_recovered(crowd.now + millis(100)));
    crowd.state.bore = Some(7.0);
    crowd.arrive(None);
    crowd.now += millis(100);
    crowd.arrive(None);
    crowd.now += millis(200);
    assert!(
        !crowd.state.is_recovered(crowd.now),
        "the host is late with both answers"
    );
    crowd.arrive(None);
    crowd.abandon(0);
    assert!(
        !crowd.state.is_recovered(crowd.now),
        "somebody waits for the slot"
    );
    while crowd.poll_ready() {}
    crowd.abandon(0);
    crowd.abandon(0);
    crowd.now += millis(200);
    assert!(crowd.state.is_recovered(crowd.now) && crowd.state.bore.is_some());
    crowd.arrive(None);
    assert!(matches!(crowd.state.phase, Phase::Open { failures: 0 }));
    assert_eq!(crowd.state.bore, None);
}

#[test]
fn a_moment_beyond_the_end_of_time_is_thirty_years_away() {
    let now = Instant::now();
    assert_eq!(
        later(now, Duration::MAX),
        now + Duration::from_secs(946_080_000)
    );
}
