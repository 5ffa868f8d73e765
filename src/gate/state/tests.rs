//! Any sequence of events, any clock: never two probes, never a pass before its time, nobody lost, nobody overtaken.

use std::collections::BTreeMap;

use proptest::{collection::vec, option, prelude::*};

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// Drives a state as the middleware does: waiters are polled when they were woken or their time came, and never else.
struct Crowd {
    state: State,
    now: Instant,
    waiting: BTreeMap<Waiter, Waiting>,
    tickets: Vec<Ticket>,
    passes: Vec<Instant>,
    refusals: u32,
}

#[derive(Default)]
struct Waiting {
    until: Option<Instant>,
    woken: bool,
}

impl Crowd {
    fn new(trip_after: u32) -> Self {
        let now = Instant::now() + 1000 * MINUTE;
        let state = State::new(trip_after);
        Self {
            state,
            now,
            waiting: BTreeMap::new(),
            tickets: Vec::new(),
            passes: Vec::new(),
            refusals: 0,
        }
    }

    fn arrive(&mut self, latest: Option<Instant>) {
        let before = self.closed();
        match self.state.arrive(self.now, latest) {
            Arrival::Pass(ticket) => {
                assert!(self.waiting.is_empty(), "overtook {}", self.waiting.len());
                self.passed(ticket, before);
            }
            Arrival::Wait(waiter) => {
                assert!(
                    latest.is_none_or(|latest| latest > self.now),
                    "waits although it must not"
                );
                self.waiting.insert(waiter, Waiting::default());
                self.settle();
                self.poll(waiter);
            }
            Arrival::Refused { retry_at } => {
                assert!(
                    latest.is_some_and(|latest| latest < retry_at),
                    "refused for nothing"
                );
                self.refusals += 1;
            }
        }
        self.settle();
    }

    fn poll(&mut self, waiter: Waiter) {
        let before = self.closed();
        match self.state.poll(waiter, self.now) {
            Turn::Pass(ticket) => {
                assert_eq!(self.waiting.keys().next(), Some(&waiter), "overtook");
                self.waiting.remove(&waiter);
                self.passed(ticket, before);
            }
            Turn::Wait { until } => {
                assert!(
                    until.is_none_or(|until| until > self.now),
                    "a timer that never sleeps"
                );
                self.waiting.insert(
                    waiter,
                    Waiting {
                        until,
                        woken: false,
                    },
                );
            }
            Turn::Refused { .. } => {
                self.waiting.remove(&waiter);
                self.refusals += 1;
            }
        }
        self.settle();
    }

    fn leave(&mut self, waiter: Waiter) {
        self.waiting.remove(&waiter);
        self.state.leave(waiter);
        self.settle();
    }

    fn answer(&mut self, index: usize, outcome: Outcome, open_time: Duration) {
        let ticket = self.tickets.swap_remove(index);
        let mut draws = 0;
        let epoch = self.state.epoch;
        self.state
            .answered(ticket, outcome, self.now, &mut |retry| {
                draws += 1;
                assert!(retry > 0);
                open_time
            });
        let closed = self.state.epoch != epoch && matches!(self.state.phase, Phase::Closed { .. });
        assert!(draws == 0 || (draws == 1 && closed), "drew without closing");
        self.settle();
    }

    fn abandon(&mut self, index: usize) {
        let ticket = self.tickets.swap_remove(index);
        self.state.dropped(ticket, self.now);
        self.settle();
    }

    fn settle(&mut self) {
        assert_eq!(self.state.waiters.len(), self.waiting.len());
        if let Some(waiter) = self.state.wake(self.now) {
            assert_eq!(self.waiting.keys().next(), Some(&waiter), "not the front");
            self.waiting.get_mut(&waiter).expect("it waits").woken = true;
        }
    }

    /// The time of a closed gate; the far future while a probe is out.
    fn closed(&self) -> Option<Instant> {
        match self.state.phase {
            Phase::Closed { until } => Some(until),
            Phase::Probing { .. } => Some(self.now + MINUTE),
            Phase::Open { .. } | Phase::Recovering(_) => None,
        }
    }

    fn passed(&mut self, ticket: Ticket, before: Option<Instant>) {
        if let Some(until) = before {
            assert!(
                until <= self.now,
                "passed before its time, or beside a probe"
            );
            assert!(
                matches!(self.state.phase, Phase::Probing { .. }),
                "the first one is a probe"
            );
            assert_eq!(self.state.in_flight, 1, "the probe is alone");
        }
        self.tickets.push(ticket);
        self.passes.push(self.now);
    }

    fn poll_ready(&mut self) -> bool {
        let is_ready = |waiting: &Waiting| {
            waiting.woken || waiting.until.is_some_and(|until| until <= self.now)
        };
        let ready = self
            .waiting
            .iter()
            .find(|(_, waiting)| is_ready(waiting))
            .map(|(&waiter, _)| waiter);
        ready.map(|waiter| self.poll(waiter)).is_some()
    }

    /// From here on the host answers and the time goes by.
    fn finish(&mut self) {
        for _ in 0..10_000 {
            if self.poll_ready() {
                continue;
            }
            if !self.tickets.is_empty() {
                self.now += Duration::from_millis(1);
                self.answer(0, Outcome::Success, Duration::ZERO);
                continue;
            }
            let Some(next) = self
                .waiting
                .values()
                .filter_map(|waiting| waiting.until)
                .min()
            else {
                break;
            };
            self.now = next.max(self.now);
        }
        assert!(self.waiting.is_empty(), "lost: {:?}", self.state);
        assert!(self.state.waiters.is_empty());
        assert_eq!(self.state.in_flight, 0);
    }
}

#[derive(Debug, Clone)]
enum Event {
    Arrive(Option<u64>),
    Poll(prop::sample::Index),
    Ready,
    Leave(prop::sample::Index),
    Answer(prop::sample::Index, Outcome, u64),
    Abandon(prop::sample::Index),
    Clock(i64),
}

fn event() -> impl Strategy<Value = Event> {
    let index = any::<prop::sample::Index>;
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
    fn holds_for_any_sequence_of_events_and_any_clock(
        trip_after in 0..4_u32,
        events in vec(event(), 0..150),
    ) {
        let mut crowd = Crowd::new(trip_after);
        for event in events {
            let waiter = |index: prop::sample::Index| {
                let waiters: Vec<_> = crowd.waiting.keys().copied().collect();
                (!waiters.is_empty()).then(|| *index.get(&waiters))
            };
            match event {
                Event::Arrive(patience) => {
                    let latest = patience.map(|patience| crowd.now + Duration::from_millis(patience));
                    crowd.arrive(latest);
                }
                Event::Poll(index) => if let Some(waiter) = waiter(index) { crowd.poll(waiter) },
                Event::Leave(index) => if let Some(waiter) = waiter(index) { crowd.leave(waiter) },
                Event::Ready => { crowd.poll_ready(); }
                Event::Answer(index, outcome, open_time) => if !crowd.tickets.is_empty() {
                    let index = index.index(crowd.tickets.len());
                    crowd.answer(index, outcome, Duration::from_millis(open_time));
                },
                Event::Abandon(index) => if !crowd.tickets.is_empty() {
                    let index = index.index(crowd.tickets.len());
                    crowd.abandon(index);
                },
                Event::Clock(by) => {
                    let step = Duration::from_millis(by.unsigned_abs());
                    let now = if by < 0 { crowd.now.checked_sub(step) } else { crowd.now.checked_add(step) };
                    crowd.now = now.unwrap_or(crowd.now);
                }
            }
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
