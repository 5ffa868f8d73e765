//! How much retrying a host can bear.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use reqwest::Url;
use tokio::time::Instant;

use crate::bucket::{Bucket, Rates};
use crate::origin::{OriginKey, OriginMap};

/// Limits the retries that go to one origin, whoever makes them.
///
/// An attempt cap limits one call; in an outage every call goes to its cap, and three retries quadruple the load on a
/// host that can't bear the load it has. A budget limits them all together: every call to an origin deposits a share of
/// a retry, every retry withdraws one, and a small reserve that refills with time lets the rare retries of a quiet client
/// through. When it is spent, the failure goes back to the caller at once, with
/// [`StopReason::BudgetExhausted`](crate::StopReason::BudgetExhausted).
///
/// That has a price: where half of all calls fail for long, a budget turns down retries that would have succeeded. It
/// trades them for the server's health; [`without_budget`](crate::JitteredRetryMiddleware::without_budget) declines.
///
/// Clones share their state, so that several clients can share one budget. An origin is scheme, host and port; one
/// origin never spends another's tokens. At most 10 000 origins are kept, and those that miss the least are forgotten
/// first.
///
/// # Default
///
/// A burst of 100, a reserve of 10 per second, 20 % extra load: with 10 000 calls into an outage, at most 12 000
/// requests plus burst and reserve.
///
/// Source: the retry budgets of Finagle and of the SRE book, chapter 22, "Addressing Cascading Failures".
#[derive(Clone)]
#[must_use]
pub struct RetryBudget {
    rates: Rates,
    accounts: Arc<OriginMap<Account>>,
}

impl RetryBudget {
    /// Creates a budget with the defaults above, and a state of its own.
    pub fn new() -> Self {
        Self::of(Rates {
            burst: 100,
            reserve_per_sec: 10,
            extra_load_percent: 20,
        })
    }

    /// Sets how many retries can be saved up; a budget starts with them. Default: 100.
    ///
    /// Zero starts with nothing, and saves up only what makes the next whole retry. The budget gets a new state, which
    /// it does not share with its clones from before.
    pub fn with_burst(self, burst: u32) -> Self {
        Self::of(Rates {
            burst,
            ..self.rates
        })
    }

    /// Sets how many retries per second are granted whatever the load. Default: 10. Zero grants none.
    pub fn with_reserve_per_sec(self, reserve_per_sec: u32) -> Self {
        Self::of(Rates {
            reserve_per_sec,
            ..self.rates
        })
    }

    /// Sets how many retries are granted per hundred calls. Default: 20. Zero grants none, more than 1000 reads as 1000.
    pub fn with_extra_load_percent(self, percent: u32) -> Self {
        Self::of(Rates {
            extra_load_percent: percent.min(1000),
            ..self.rates
        })
    }

    fn of(rates: Rates) -> Self {
        Self {
            rates,
            accounts: Arc::default(),
        }
    }

    /// Notes that a call to this origin has arrived.
    pub(crate) fn deposit(&self, url: &Url) {
        // An origin without an account has a full one, which a deposit can't add to.
        if self.accounts.is_empty() {
            return;
        }
        self.accounts.with(OriginKey::of(url), |account| {
            account.deposit(u64::from(self.rates.extra_load_percent));
        });
    }

    /// Asks for one retry. It goes back if the permit is dropped before it was used.
    pub(crate) fn withdraw(&self, url: &Url, now: Instant) -> Option<Permit> {
        let account = self.accounts.get_or_insert(
            OriginKey::of(url),
            || Account::new(self.rates, now),
            |account| Some(account.missing(self.rates, now)),
        );
        account.withdraw(self.rates, now).then(|| Permit {
            account: Some(account),
        })
    }
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for RetryBudget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RetryBudget")
            .field("burst", &self.rates.burst)
            .field("reserve_per_sec", &self.rates.reserve_per_sec)
            .field("extra_load_percent", &self.rates.extra_load_percent)
            .field("origins", &self.accounts.len())
            .finish()
    }
}

/// One retry that was granted.
#[derive(Debug)]
pub(crate) struct Permit {
    account: Option<Arc<Account>>,
}

impl Permit {
    /// Spends the retry: it is about to be sent.
    pub(crate) fn spend(mut self) -> Spent {
        Spent {
            account: self.account.take(),
            is_back: Arc::default(),
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(account) = &self.account {
            account.give_back();
        }
    }
}

/// One retry that is on its way. It lies in the extensions of its attempt, for whoever below keeps it from being sent.
#[derive(Clone, Debug)]
pub(crate) struct Spent {
    account: Option<Arc<Account>>,
    /// Extensions are cloned freely, and a retry comes back once.
    is_back: Arc<AtomicBool>,
}

impl Spent {
    /// Gives the retry back, since it never left the client.
    pub(crate) fn give_back(&self) {
        if let Some(account) = &self.account {
            if !self.is_back.swap(true, Ordering::Relaxed) {
                account.give_back();
            }
        }
    }
}

/// What one origin has left.
#[derive(Debug)]
struct Account {
    /// What came in since a retry last asked, in hundredths of a token: arriving costs one addition and no lock.
    hundredths: AtomicU64,
    balance: Mutex<Balance>,
}

#[derive(Debug)]
struct Balance {
    bucket: Bucket,
    filled_at: Instant,
}

impl Account {
    fn new(rates: Rates, now: Instant) -> Self {
        Self {
            hundredths: AtomicU64::new(0),
            balance: Mutex::new(Balance {
                bucket: rates.full_bucket(),
                filled_at: now,
            }),
        }
    }

    fn deposit(&self, hundredths: u64) {
        self.hundredths.fetch_add(hundredths, Ordering::Relaxed);
    }

    fn give_back(&self) {
        self.deposit(100);
    }

    fn withdraw(&self, rates: Rates, now: Instant) -> bool {
        self.up_to_date(rates, now, Bucket::withdraw)
    }

    fn missing(&self, rates: Rates, now: Instant) -> u64 {
        self.up_to_date(rates, now, |bucket| u64::from(bucket.missing(rates)))
    }

    fn up_to_date<R>(&self, rates: Rates, now: Instant, ask: impl FnOnce(&mut Bucket) -> R) -> R {
        let mut balance = self.balance.lock().unwrap_or_else(PoisonError::into_inner);
        let hundredths = self.hundredths.swap(0, Ordering::Relaxed);
        // A clock that jumps back yields nothing, and nothing twice.
        let elapsed = now.saturating_duration_since(balance.filled_at);
        balance.filled_at = balance.filled_at.max(now);
        balance.bucket.fill(rates, hundredths, elapsed);
        ask(&mut balance.bucket)
    }
}
