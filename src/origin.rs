//! What everything that is kept per host is kept under, and the one bounded map that it is kept in.

use std::borrow::Borrow;
use std::cmp::Ordering as Order;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use reqwest::Url;

/// Scheme, host and port, as RFC 6454 section 6.2 writes them: `https://example.com`, `http://127.0.0.1:8080`, and
/// `null` for a URL without a host. Never user info, a path or a query.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Origin(Arc<str>);

impl Origin {
    pub(crate) fn of(url: &Url) -> Self {
        let authority = url.authority();
        let origin = match url.scheme() {
            // What the general way comes to, in a fraction of its time.
            scheme @ ("http" | "https") => {
                let host_and_port = authority
                    .rsplit_once('@')
                    .map_or(authority, |(_, after)| after);
                [scheme, "://", host_and_port].concat()
            }
            _ => url.origin().ascii_serialization(),
        };
        Self(origin.into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// State per origin, for at most 10 000 of them.
pub(crate) struct OriginMap<V> {
    entries: RwLock<Entries<V>>,
    // Most clients never see a failure: their requests look no further than here.
    count: AtomicUsize,
}

struct Entries<V> {
    // A tree, since most programs speak to few origins: finding one of them is a comparison or two.
    kept: BTreeMap<Key, Arc<V>>,
    /// How many newcomers there were since room was made.
    since_made_room: usize,
}

/// What makes an origin, borrowed from a URL: looking one up allocates nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OriginKey<'a> {
    scheme: &'a str,
    host: &'a str,
    port: u16,
}

const MOST_ORIGINS: usize = 10_000;
/// How many are kept when room is made: many at a time, so that making room costs little per origin.
const KEPT_ORIGINS: usize = 8_750;
/// So many newcomers share the cost of looking for room where there is hardly any, since next to nothing may be
/// forgotten. Each of them would look at all that is kept otherwise, and hold up everybody else meanwhile.
const NEWCOMERS_PER_LOOK: usize = 64;

impl<'a> OriginKey<'a> {
    pub(crate) fn of(url: &'a Url) -> Self {
        Self {
            scheme: url.scheme(),
            host: url.host_str().unwrap_or_default(),
            port: url.port_or_known_default().unwrap_or_default(),
        }
    }

    /// A key of somebody's own making. No URL is without a scheme, so it meets no origin.
    pub(crate) fn named(name: &'a str) -> Self {
        Self {
            scheme: "",
            host: name,
            port: 0,
        }
    }
}

impl<V> OriginMap<V> {
    /// Whether nothing is kept: then not even a key needs to be made.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Lets `read` see what is kept for an origin, if anything is.
    pub(crate) fn with<R>(&self, key: OriginKey<'_>, read: impl FnOnce(&Arc<V>) -> R) -> Option<R> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.kept.get(&key as &dyn Parts).map(read)
    }

    /// Returns what is kept for an origin, and makes it where there is nothing.
    ///
    /// Where there is no room, those that are worth the least are forgotten; what `worth` says `None` of is never
    /// forgotten. If that leaves no room either, the new one is not kept: it is only returned, and so are some that come
    /// after it.
    pub(crate) fn get_or_insert(
        &self,
        key: OriginKey<'_>,
        make: impl FnOnce() -> V,
        worth: impl Fn(&V) -> Option<u64>,
    ) -> Arc<V> {
        if let Some(value) = self.with(key, Arc::clone) {
            return value;
        }
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = entries.kept.get(&key as &dyn Parts) {
            return Arc::clone(value);
        }
        entries.since_made_room = entries.since_made_room.saturating_add(1);
        if entries.kept.len() >= MOST_ORIGINS && entries.since_made_room >= NEWCOMERS_PER_LOOK {
            entries.since_made_room = 0;
            forget(&mut entries.kept, worth);
        }
        let value = Arc::new(make());
        if entries.kept.len() < MOST_ORIGINS {
            entries.kept.insert(Key::from(key), Arc::clone(&value));
        }
        self.count.store(entries.kept.len(), Ordering::Relaxed);
        value
    }

    pub(crate) fn fold<R>(&self, first: R, add: impl Fn(R, &V) -> R) -> R {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries
            .kept
            .values()
            .fold(first, |sum, value| add(sum, value))
    }

    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

fn forget<V>(entries: &mut BTreeMap<Key, Arc<V>>, worth: impl Fn(&V) -> Option<u64>) {
    let mut worths: Vec<u64> = entries.values().filter_map(|value| worth(value)).collect();
    let surplus = entries.len().saturating_sub(KEPT_ORIGINS);
    let last = surplus.min(worths.len()).saturating_sub(1);
    if worths.is_empty() {
        return;
    }
    let (_, &mut limit, _) = worths.select_nth_unstable(last);
    let mut left = surplus;
    entries.retain(|_, value| {
        let is_forgotten = left > 0 && worth(value).is_some_and(|worth| worth <= limit);
        left = left.saturating_sub(usize::from(is_forgotten));
        !is_forgotten
    });
}

impl<V> Default for OriginMap<V> {
    fn default() -> Self {
        Self {
            entries: RwLock::new(Entries {
                kept: BTreeMap::new(),
                since_made_room: 0,
            }),
            count: AtomicUsize::new(0),
        }
    }
}

/// What the map owns of an origin. It is compared field by field, as its [`Parts`] are.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    port: u16,
    host: Box<str>,
    scheme: Box<str>,
}

impl From<OriginKey<'_>> for Key {
    fn from(key: OriginKey<'_>) -> Self {
        Self {
            port: key.port,
            host: key.host.into(),
            scheme: key.scheme.into(),
        }
    }
}

/// Owned and borrowed keys side by side, which is what lets a map of the one be searched by the other.
trait Parts {
    /// In the order in which they are compared: what differs most cheaply comes first.
    fn parts(&self) -> (u16, &str, &str);
}

impl Parts for Key {
    fn parts(&self) -> (u16, &str, &str) {
        (self.port, &self.host, &self.scheme)
    }
}

impl Parts for OriginKey<'_> {
    fn parts(&self) -> (u16, &str, &str) {
        (self.port, self.host, self.scheme)
    }
}

impl<'a> Borrow<dyn Parts + 'a> for Key {
    fn borrow(&self) -> &(dyn Parts + 'a) {
        self
    }
}

impl Ord for dyn Parts + '_ {
    fn cmp(&self, other: &Self) -> Order {
        self.parts().cmp(&other.parts())
    }
}

impl PartialOrd for dyn Parts + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn Parts + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for dyn Parts + '_ {}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn looking_for_room_where_there_is_none_costs_little_per_newcomer() {
        let map = OriginMap::default();
        let looked_at = Cell::new(0_usize);
        let insert = |port: u16, is_kept: bool| {
            let key = OriginKey {
                scheme: "http",
                host: "origin.test",
                port,
            };
            let worth = |_: &bool| {
                looked_at.set(looked_at.get() + 1);
                (!is_kept).then_some(0)
            };
            map.get_or_insert(key, || true, worth)
        };
        for port in 0..20_000 {
            insert(port, true);
        }
        assert_eq!(map.len(), MOST_ORIGINS);
        assert!(looked_at.get() <= 20_000 / NEWCOMERS_PER_LOOK * MOST_ORIGINS);
        // Once there is something to forget, room is found soon.
        for port in 20_000..20_064 {
            insert(port, false);
        }
        assert!((KEPT_ORIGINS..=KEPT_ORIGINS + NEWCOMERS_PER_LOOK).contains(&map.len()));
    }
}
