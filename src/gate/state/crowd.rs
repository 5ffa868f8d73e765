//! A crowd that passes a gate, and everything that must hold while it does: never two probes, never a pass before its
//! time, nobody lost, nobody overtaken. For the property test and for the fuzzer.

#![allow(clippy::panic, clippy::expect_used, clippy::arithmetic_side_effects)] // It exists to fail.

use std::collections::BTreeMap;

use super::*;

pub(super) const MINUTE: Duration = Duration::from_secs(60);

/// What may happen, with indices that are taken modulo what there is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// Ready to wait for so many milliseconds, or for ever.
    Arrive(Option<u64>),
    Poll(u16),
    /// Whoever was woken, or whose time has come, is polled.
    Ready,
    Leave(u16),
    /// With how many milliseconds the gate would stay closed.
    Answer(u16, Outcome, u64),
    Abandon(u16),
    /// The clock jumps by so many milliseconds.
    Clock(i64),
}

/// Drives a state as the middleware does: waiters are polled when they were woken or their time came, and never else.
#[derive(Debug)]
pub(crate) struct Crowd {
    pub(super) state: State,
    pub(super) now: Instant,
    pub(super) waiting: BTreeMap<Waiter, Waiting>,
    pub(super) tickets: Vec<Ticket>,
    pub(super) passes: Vec<Instant>,
    pub(super) refusals: u32,
}

#[derive(Debug, Default)]
pub(super) struct Waiting {
    until: Option<Instant>,
    woken: bool,
}

impl Crowd {
    pub(crate) fn new(trip_after: u32) -> Self {
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

    pub(crate) fn apply(&mut self, event: Event) {
        match event {
            Event::Arrive(patience) => {
                let latest = patience
                    .and_then(|patience| self.now.checked_add(Duration::from_millis(patience)));
                self.arrive(latest);
            }
            Event::Poll(index) => {
                if let Some(waiter) = self.waiter(index) {
                    self.poll(waiter);
                }
            }
            Event::Leave(index) => {
                if let Some(waiter) = self.waiter(index) {
                    self.leave(waiter);
                }
            }
            Event::Ready => drop(self.poll_ready()),
            Event::Answer(index, outcome, open_time) => {
                if let Some(index) = usize::from(index).checked_rem(self.tickets.len()) {
                    self.answer(index, outcome, Duration::from_millis(open_time));
                }
            }
            Event::Abandon(index) => {
                if let Some(index) = usize::from(index).checked_rem(self.tickets.len()) {
                    self.abandon(index);
                }
            }
            Event::Clock(by) => {
                let step = Duration::from_millis(by.unsigned_abs());
                let now = if by < 0 {
                    self.now.checked_sub(step)
                } else {
                    self.now.checked_add(step)
                };
                self.now = now.unwrap_or(self.now);
            }
        }
    }

    fn waiter(&self, index: u16) -> Option<Waiter> {
        let index = usize::from(index).checked_rem(self.waiting.len())?;
        self.waiting.keys().copied().nth(index)
    }

    pub(crate) fn arrive(&mut self, latest: Option<Instant>) {
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

    pub(crate) fn poll(&mut self, waiter: Waiter) {
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

    pub(crate) fn leave(&mut self, waiter: Waiter) {
        self.waiting.remove(&waiter);
        self.state.leave(waiter);
        self.settle();
    }

    pub(crate) fn answer(&mut self, index: usize, outcome: Outcome, open_time: Duration) {
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

    pub(crate) fn abandon(&mut self, index: usize) {
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
    pub(crate) fn closed(&self) -> Option<Instant> {
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

    pub(crate) fn poll_ready(&mut self) -> bool {
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
    pub(crate) fn finish(&mut self) {
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
