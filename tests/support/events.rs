//! What `tracing` was told of the layer, kept for each test by itself.

#![allow(dead_code)] // Every test binary uses its own part of this.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Once;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Number(u64),
    Text(String),
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

pub(crate) type Fields = BTreeMap<&'static str, Value>;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) level: Level,
    pub(crate) fields: Fields,
}

thread_local! {
    static SEEN: RefCell<Vec<Seen>> = const { RefCell::new(Vec::new()) };
}

/// Keeps our events, each with the thread it came from: a test and its runtime have one to themselves.
pub(crate) struct Keeper;

impl Keeper {
    /// Returns what this thread has seen since it was last asked.
    pub(crate) fn take() -> Vec<Seen> {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(|| tracing::subscriber::set_global_default(Self).unwrap());
        SEEN.take()
    }
}

impl Subscriber for Keeper {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("reqwest_jitter")
    }

    fn event(&self, event: &Event<'_>) {
        assert_eq!(event.metadata().target(), "reqwest_jitter");
        let mut fields = Reader(Fields::new());
        event.record(&mut fields);
        SEEN.with_borrow_mut(|seen| {
            seen.push(Seen {
                level: *event.metadata().level(),
                fields: fields.0,
            });
        });
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Reader(Fields);

impl Visit for Reader {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name(), value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        self.0.insert(field.name(), text.as_str().into());
    }
}

pub(crate) fn seen<const N: usize>(level: Level, fields: [(&'static str, Value); N]) -> Seen {
    Seen {
        level,
        fields: fields.into(),
    }
}
