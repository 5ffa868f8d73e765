//! The gate of one host as a pure state machine: events and the time go in, decisions come out.
//!
//! There is no clock, no lock, no waker and no dice in here. The time is an argument and may jump in any direction, the
//! caller draws how long the gate stays closed, and who has to be woken is named, not woken.
//!
//! For any sequence of events: at most one probe is out, nobody passes a closed gate before its time, waiters leave in
//! the order they came in, and every one of them passes, is refused or leaves.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

/// What is known about one host, and who waits for it.
#[derive(Debug)]
pub(crate) struct State {
    trip_after: u32,
    phase: Phase,
    /// Counts the changes of phase, so that an answer to a question of an earlier phase can be told.
    epoch: u64,
    /// Tickets of this epoch that are neither answered nor dropped.
    in_flight: u32,
    /// How often in a row failures closed the gate: which retry the next open time is drawn for.
    closings: u32,
    /// Smoothed time from pass to accepted answer, in seconds.
    round_trip: Option<f64>,
    /// What a recovery that was cut short would have slowed down to.
    bore: Option<f64>,
    /// Everyone who waits, in order of arrival, with the latest moment each is ready to wait for. A tree and not a
    /// queue, so that whoever leaves from the middle leaves nothing behind.
    waiters: BTreeMap<Waiter, Option<Instant>>,
    next_waiter: u64,
    /// What the front waiter was last told, so that it is woken for news only.
    told: Option<(Waiter, Due)>,
}

/// What becomes of someone who arrives.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// Send now.
    Pass(Ticket),
    /// Ask [`State::poll`] at once, and whenever it is time or [`State::wake`] says so.
    Wait(Waiter),
    /// The wait would be too long: this is when to come back.
    Refused { retry_at: Instant },
}

/// What becomes of someone who waits.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Send now.
    Pass(Ticket),
    /// Ask again at that time; `None`: there is no time to set, an event decides.
    Wait { until: Option<Instant> },
    /// The wait would be too long, or was: this is when to come back.
    Refused { retry_at: Instant },
}

/// What an attempt told about the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The host answered, whatever it said.
    Success,
    /// The host could not serve, and may have said when it can.
    Failure { hint: Option<Duration> },
    /// Nothing was learned.
    Neutral,
}

/// The right to send one attempt; to be given back with [`State::answered`] or [`State::dropped`].
#[derive(Debug)]
#[must_use]
pub(crate) struct Ticket {
    epoch: u64,
    step: u64,
    sent: Instant,
}

/// A place in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Waiter(u64);

impl State {
    /// An open gate that trips after `trip_after` failures in a row; 0 never trips on failures.
    pub(crate) fn new(trip_after: u32) -> Self {
        Self {
            trip_after,
            phase: Phase::Open { failures: 0 },
            epoch: 0,
            in_flight: 0,
            closings: 0,
            round_trip: None,
            bore: None,
            waiters: BTreeMap::new(),
            next_waiter: 0,
            told: None,
        }
    }

    /// Someone wants to send, and is ready to wait until `latest`. `None` waits for ever, `now` not at all.
    pub(crate) fn arrive(&mut self, now: Instant, latest: Option<Instant>) -> Arrival {
        if self.is_recovered(now) {
            self.bore = None;
            self.enter(Phase::Open { failures: 0 });
        }
        if self.waiters.is_empty() && self.due(now).is_some_and(|due| due <= now) {
            return Arrival::Pass(self.pass(now));
        }
        let expected = self.expected(now);
        if latest.is_some_and(|latest| latest < expected) {
            return Arrival::Refused { retry_at: expected };
        }
        let waiter = Waiter(self.next_waiter);
        self.next_waiter = self.next_waiter.wrapping_add(1);
        self.waiters.insert(waiter, latest);
        Arrival::Wait(waiter)
    }

    /// Is it this waiter's turn? One that passed or was refused is no waiter any more.
    pub(crate) fn poll(&mut self, waiter: Waiter, now: Instant) -> Turn {
        let Some(&latest) = self.waiters.get(&waiter) else {
            return Turn::Refused {
                retry_at: self.expected(now),
            };
        };
        let due = self.due(now);
        let is_front = self.front() == Some(waiter);
        // A turn that was due in time is taken even if the poll comes late: timers round up.
        let in_time = due.is_some_and(|due| latest.is_none_or(|latest| due <= latest));
        if is_front && in_time && due.is_some_and(|due| due <= now) {
            self.waiters.remove(&waiter);
            return Turn::Pass(self.pass(now));
        }
        // A closed gate only ever moves its time later: nothing is gained by waiting until it is too late.
        let in_vain = matches!(self.phase, Phase::Closed { .. }) && !in_time;
        if in_vain || latest.is_some_and(|latest| latest <= now) {
            self.waiters.remove(&waiter);
            return Turn::Refused {
                retry_at: self.expected(now),
            };
        }
        if !is_front {
            return Turn::Wait { until: latest };
        }
        self.told = Some((waiter, due));
        Turn::Wait {
            until: due.into_iter().chain(latest).min(),
        }
    }

    /// A waiter gave up. Harmless for one that passed or was refused.
    pub(crate) fn leave(&mut self, waiter: Waiter) {
        self.waiters.remove(&waiter);
    }

    /// An attempt came to its end. `open_time` draws how long the gate stays closed for the nth time in a row; it is
    /// asked only if failures do close it.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a ticket is good for one answer"
    )]
    pub(crate) fn answered(
        &mut self,
        ticket: Ticket,
        outcome: Outcome,
        now: Instant,
        open_time: &mut dyn FnMut(u32) -> Duration,
    ) {
        let hint = match outcome {
            Outcome::Failure { hint } => hint.filter(|hint| !hint.is_zero()),
            Outcome::Success | Outcome::Neutral => None,
        };
        if ticket.epoch != self.epoch {
            // What was asked before the last change says nothing about the time after it. Only the server's own word
            // when to come back holds as long as nothing better is known.
            if let (Phase::Closed { until } | Phase::Probing { until }, Some(hint)) =
                (&mut self.phase, hint)
            {
                *until = later(now, hint).max(*until);
            }
            return;
        }
        self.in_flight = self.in_flight.saturating_sub(1);
        if outcome == Outcome::Success {
            self.measure(now.saturating_duration_since(ticket.sent));
        }
        let round_trip = self.round_trip();
        match (&mut self.phase, outcome, hint) {
            (&mut Phase::Probing { until }, Outcome::Neutral, _) => {
                self.enter(Phase::Closed { until });
            }
            (Phase::Probing { .. }, Outcome::Success, _) => {
                self.closings = 0;
                self.enter(Phase::Recovering(Pace::start(now, round_trip, self.bore)));
            }
            (&mut Phase::Probing { until }, Outcome::Failure { .. }, hint) => {
                let wait = self.longer(open_time).max(hint.unwrap_or_default());
                self.close(later(now, wait).max(until), now);
            }
            (_, _, Some(hint)) => self.close(later(now, hint), now),
            (Phase::Open { failures }, Outcome::Success, _) => *failures = 0,
            (Phase::Open { failures }, Outcome::Failure { .. }, _) => {
                *failures = failures.saturating_add(1);
                if *failures == self.trip_after {
                    let wait = self.longer(open_time);
                    self.close(later(now, wait), now);
                }
            }
            (Phase::Recovering(pace), Outcome::Success | Outcome::Failure { .. }, _) => {
                if !pace.answered(ticket.step, outcome == Outcome::Success, now, round_trip) {
                    let wait = self.longer(open_time);
                    self.close(later(now, wait), now);
                }
            }
            // Nothing was learned, or a ticket that a closed gate never gave.
            (Phase::Open { .. } | Phase::Recovering(_), Outcome::Neutral, _)
            | (Phase::Closed { .. }, _, _) => {}
        }
    }

    /// An attempt was abandoned. If it was the probe, the next in line is the probe now.
    pub(crate) fn dropped(&mut self, ticket: Ticket, now: Instant) {
        self.answered(ticket, Outcome::Neutral, now, &mut |_| Duration::ZERO);
    }

    /// Who has to be polled after an event, if anybody: the front waiter, where it does not know yet that it is, or when
    /// its turn comes. Nobody else has anything to learn.
    pub(crate) fn wake(&self, now: Instant) -> Option<Waiter> {
        let front = self.front()?;
        (self.told != Some((front, self.due(now)))).then_some(front)
    }

    /// The gate keeps people off the host: forgetting it would let them all through.
    pub(crate) fn is_closed(&self, now: Instant) -> bool {
        match self.phase {
            Phase::Closed { until } => now < until || !self.waiters.is_empty(),
            Phase::Probing { .. } => true,
            Phase::Open { .. } | Phase::Recovering(_) => false,
        }
    }

    /// Open, with nobody on the way and nobody waiting: forgetting it loses nothing.
    pub(crate) fn is_idle(&self, now: Instant) -> bool {
        let is_open = matches!(self.phase, Phase::Open { .. }) || self.is_recovered(now);
        is_open && self.in_flight == 0 && self.waiters.is_empty()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiters.len()
    }

    fn pass(&mut self, now: Instant) -> Ticket {
        let mut step = 0;
        match &mut self.phase {
            &mut Phase::Closed { until } => self.enter(Phase::Probing { until }),
            Phase::Recovering(pace) => step = pace.passed(now),
            Phase::Open { .. } | Phase::Probing { .. } => {}
        }
        self.in_flight = self.in_flight.saturating_add(1);
        Ticket {
            epoch: self.epoch,
            step,
            sent: now,
        }
    }

    fn longer(&mut self, open_time: &mut dyn FnMut(u32) -> Duration) -> Duration {
        self.closings = self.closings.saturating_add(1);
        open_time(self.closings)
    }

    fn close(&mut self, until: Instant, now: Instant) {
        // A probe that fails voids what was known: the host is not what it was.
        self.bore = match &self.phase {
            Phase::Recovering(pace) => Some(
                pace.slower(now, self.round_trip())
                    .min(pace.per_second / 2.0),
            ),
            _ => None,
        };
        self.bore = self.bore.filter(|&bore| bore >= Pace::SLOWEST);
        self.enter(Phase::Closed { until });
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.epoch = self.epoch.wrapping_add(1);
        self.in_flight = 0;
    }

    /// When the front of the queue may pass.
    fn due(&self, now: Instant) -> Due {
        match &self.phase {
            Phase::Open { .. } => Some(now),
            Phase::Closed { until } => Some(*until),
            Phase::Probing { .. } => None,
            Phase::Recovering(pace) => self.has_room(pace).then(|| pace.due(now)),
        }
    }

    /// When someone who joins the queue now would pass, as far as can be known; always later than `now` if it has to
    /// wait at all.
    fn expected(&self, now: Instant) -> Instant {
        let round_trip = seconds(self.round_trip());
        match &self.phase {
            Phase::Open { .. } => now,
            Phase::Closed { until } if now < *until => *until,
            // The probe is out, or about to leave.
            Phase::Closed { .. } | Phase::Probing { .. } => later(now, round_trip),
            Phase::Recovering(pace) => {
                let next = if self.has_room(pace) {
                    pace.due(now).max(now)
                } else {
                    later(now, round_trip)
                };
                later(next, pace.drains(self.waiters.len(), round_trip))
            }
        }
    }

    /// A slot went by that nobody waited for: the host bears all that is asked of it.
    fn is_recovered(&self, now: Instant) -> bool {
        match &self.phase {
            Phase::Recovering(pace) => {
                self.waiters.is_empty() && self.has_room(pace) && pace.idles(now)
            }
            _ => false,
        }
    }

    /// A host that answers late gets no more than it would if it answered in time: twice as many may be on their way as
    /// the pace makes of a round trip.
    fn has_room(&self, pace: &Pace) -> bool {
        f64::from(self.in_flight) < (2.0 * pace.per_second * self.round_trip()).max(1.0)
    }

    fn measure(&mut self, sample: Duration) {
        let sample = sample.as_secs_f64().clamp(0.001, 10.0);
        self.round_trip = Some(match self.round_trip {
            Some(known) if !matches!(self.phase, Phase::Probing { .. }) => {
                known + (sample - known) / 8.0
            }
            // After an outage nothing that was measured before it counts.
            _ => sample,
        });
    }

    fn round_trip(&self) -> f64 {
        const UNTIL_MEASURED: f64 = 0.1;
        self.round_trip.unwrap_or(UNTIL_MEASURED)
    }

    fn front(&self) -> Option<Waiter> {
        self.waiters.first_key_value().map(|(&waiter, _)| waiter)
    }
}

/// When the front waiter's turn comes; `None`: not before some answer.
type Due = Option<Instant>;

#[derive(Debug)]
enum Phase {
    Open {
        failures: u32,
    },
    Closed {
        until: Instant,
    },
    /// Half-open: the probe is out. Without a word from it the gate is closed again, as it was.
    Probing {
        until: Instant,
    },
    Recovering(Pace),
}

/// How fast waiters leave, found out from what the host accepts.
///
/// It triples each round trip until answers fail, as a connection does that starts slowly. Then it creeps up from window
/// to window of answers, and falls back where more of them fail than at a pace that the host bears for sure. That
/// comparison is what tells overload from a host that fails now and then at any pace.
///
/// It is a rate and not a number in flight, since a host may bear less than one at a time.
#[derive(Debug)]
struct Pace {
    /// Attempts per second.
    per_second: f64,
    /// Still starting, up to this pace if an earlier recovery found one.
    start: Option<Start>,
    /// The moment that the last waiter's turn came.
    slot: Instant,
    /// Counts the changes of pace: only answers to attempts sent at this pace judge it.
    step: u64,
    accepted: u32,
    failed: u32,
    /// Windows since the pace last fell.
    windows: u32,
    /// Failures in twenty at a pace that the host bears.
    tolerated: u32,
}

#[derive(Debug)]
struct Start {
    at: Instant,
    accepted: f64,
    up_to: f64,
}

impl Pace {
    /// Answers that judge a pace. Fewer can't tell one failure in ten from one in five; more learn too slowly.
    const WINDOW: u32 = 20;
    /// How long they take to be sent, at least. Timers fire once in a millisecond, so that a fast pace is a burst at each
    /// tick: its first twenty answers tell what a host bears at once, and not what it bears per second.
    const LEAST_SPAN: f64 = 0.005;
    /// So many in twenty may fail by chance.
    const CHANCE: u32 = 2;
    /// So many in twenty end the start if exceeded. More than chance makes of a few per cent: an end too early costs far more
    /// than the few requests of a step too many.
    const END_OF_START: u32 = 5;
    /// Where more fail after a fall, it fell too little to show what fails at any pace.
    const MOST_TOLERATED: u32 = 5;
    /// Windows after a fall in which the pace only creeps: that is where the limit was. Beyond them it was left behind.
    const CAREFUL: u32 = 8;
    /// A host that bears less is not recovering.
    const SLOWEST: f64 = 0.1;
    const FASTEST: f64 = 1e6;
    /// Timers fire late by up to a millisecond, and tasks run later than that. Slots missed by so much are made up for,
    /// or else no pace above the timer's could be kept; no more than that, or else a stall would end in a burst.
    const LATENESS: Duration = Duration::from_millis(2);

    /// The first turn is now.
    fn start(now: Instant, round_trip: f64, bore: Option<f64>) -> Self {
        // What an earlier recovery found out can be less than one per round trip, for a host that answers fast.
        let up_to = bore.unwrap_or(f64::INFINITY);
        let per_second = (1.0 / round_trip).min(up_to).max(Self::SLOWEST);
        Self {
            per_second,
            start: (per_second < up_to).then_some(Start {
                at: now,
                accepted: 0.0,
                up_to,
            }),
            slot: now.checked_sub(seconds(1.0 / per_second)).unwrap_or(now),
            step: 0,
            accepted: 0,
            failed: 0,
            windows: 0,
            tolerated: 0,
        }
    }

    fn interval(&self) -> Duration {
        seconds(1.0 / self.per_second)
    }

    fn due(&self, now: Instant) -> Instant {
        // Where the clock jumped back, nobody waits for it to catch up.
        if self.slot <= now {
            later(self.slot, self.interval())
        } else {
            now
        }
    }

    fn idles(&self, now: Instant) -> bool {
        later(self.due(now), self.interval()) <= now
    }

    /// How long so many waiters take.
    fn drains(&self, waiters: usize, round_trip: Duration) -> Duration {
        let waiters = u32::try_from(waiters).unwrap_or(u32::MAX);
        match &self.start {
            Some(_) => round_trip.saturating_mul(waiters.saturating_add(2).ilog(3)),
            None => seconds(f64::from(waiters) / self.per_second),
        }
    }

    fn passed(&mut self, now: Instant) -> u64 {
        self.slot = self
            .due(now)
            .max(now.checked_sub(Self::LATENESS).unwrap_or(now))
            .min(now);
        self.step
    }

    /// How many answers judge this pace.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // The pace is no more than a million.
    fn window(&self) -> u32 {
        Self::WINDOW.max((self.per_second * Self::LEAST_SPAN).ceil() as u32)
    }

    fn failed_in_twenty(&self) -> u32 {
        self.failed
            .saturating_mul(Self::WINDOW)
            .div_ceil(self.window())
    }

    /// Learns from an answer; false if what fails here is not for the pace to mend.
    fn answered(&mut self, step: u64, accepted: bool, now: Instant, round_trip: f64) -> bool {
        if accepted {
            self.speed_up(round_trip);
        }
        if step != self.step {
            return true;
        }
        if accepted {
            self.accepted = self.accepted.saturating_add(1);
        } else {
            self.failed = self.failed.saturating_add(1);
        }
        let is_full = self.accepted.saturating_add(self.failed) >= self.window();
        if self.start.is_some() {
            if self.failed_in_twenty() > Self::END_OF_START {
                self.fall(now, round_trip);
            } else if is_full {
                self.accepted = 0;
                self.failed = 0;
            }
        } else if is_full && self.accepted == 0 {
            return false;
        } else if is_full {
            self.judge(now, round_trip);
        }
        self.per_second >= Self::SLOWEST
    }

    /// Two more per round trip for each accepted answer is three times the pace after a round trip, and no more of it
    /// once answers stay away. Doubling keeps a crowd waiting longer, and spares the host no more.
    fn speed_up(&mut self, round_trip: f64) {
        let Some(start) = &mut self.start else { return };
        start.accepted += 1.0;
        // What an earlier recovery found out is not overshot by a step, or else the next one finds out the same again.
        self.per_second = (self.per_second + 2.0 / round_trip)
            .min(start.up_to)
            .min(Self::FASTEST);
        if self.per_second >= start.up_to {
            self.start = None;
            self.change(self.per_second);
        }
    }

    fn judge(&mut self, now: Instant, round_trip: f64) {
        let failed = self.failed_in_twenty();
        if self.windows == 0 && failed <= Self::MOST_TOLERATED {
            self.tolerated = failed;
        }
        if failed > self.tolerated.saturating_add(Self::CHANCE) {
            return self.fall(now, round_trip);
        }
        self.windows = self.windows.saturating_add(1);
        let growth = if self.windows > Self::CAREFUL {
            1.5
        } else {
            1.1
        };
        self.change(self.per_second * growth);
    }

    fn fall(&mut self, now: Instant, round_trip: f64) {
        let slower = self.slower(now, round_trip);
        self.start = None;
        self.windows = 0;
        self.change(slower);
    }

    /// A little less than what the host accepted lately.
    fn slower(&self, now: Instant, round_trip: f64) -> f64 {
        if let Some(start) = &self.start {
            let elapsed = now
                .saturating_duration_since(start.at)
                .as_secs_f64()
                .max(round_trip);
            // Who accepts nothing in this time has accepted the probe before it: that is at most one.
            return (start.accepted.max(1.0) / elapsed).min(self.per_second / 2.0);
        }
        let answers = self.accepted.saturating_add(self.failed).max(1);
        let accepted = f64::from(self.accepted) / f64::from(answers);
        let possible = 1.0 - f64::from(self.tolerated) / f64::from(Self::WINDOW);
        self.per_second * (0.9 * accepted / possible).clamp(0.4, 0.9)
    }

    fn change(&mut self, per_second: f64) {
        self.per_second = per_second.min(Self::FASTEST);
        self.step = self.step.wrapping_add(1);
        self.accepted = 0;
        self.failed = 0;
    }
}

/// Never earlier than asked for, but at the end of time, where there is no such moment.
fn later(at: Instant, by: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(60 * 60 * 24 * 365 * 30);
    at.checked_add(by)
        .or_else(|| at.checked_add(FAR))
        .unwrap_or(at)
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

#[cfg(any(test, fuzzing))]
pub(crate) mod crowd;
#[cfg(test)]
mod tests;
