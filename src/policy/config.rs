//! A policy as a table of a configuration file.
//!
//! Reading is written by hand, not derived: so that every complaint names its key and the choices, and so that nobody
//! compiles a macro for ten keys.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde_core::de::{DeserializeSeed, Error, MapAccess, Unexpected, Visitor};
use serde_core::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Replay, RetryPolicy};
use crate::backoff::{Backoff, Curve};
use crate::jitter::Jitter;

const KEYS: &[&str] = &[
    "curve",
    "jitter",
    "base",
    "cap",
    "factor",
    "max_attempts",
    "max_elapsed",
    "max_retry_after",
    "replay",
    "hint_spread",
    #[cfg(feature = "idempotency-keys")]
    "idempotency_keys",
];

/// Writes every key but those that say nothing: a `max_elapsed` that is not set, the `cap` of a fixed delay, and
/// `idempotency_keys` where they are off, so that a build without that feature can read the table.
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
impl Serialize for RetryPolicy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let backoff = &self.backoff;
        let mut table = vec![
            ("curve", Entry::Word(backoff.curve.word())),
            ("jitter", Entry::Word(backoff.jitter.word())),
            ("base", Entry::Duration(backoff.base)),
        ];
        if backoff.curve != Curve::Fixed {
            table.push(("cap", Entry::Duration(backoff.cap)));
        }
        table.push(("factor", Entry::Count(backoff.factor)));
        table.push(("max_attempts", Entry::Count(self.max_attempts)));
        if let Some(max_elapsed) = self.max_elapsed {
            table.push(("max_elapsed", Entry::Duration(max_elapsed)));
        }
        table.push(("max_retry_after", Entry::Duration(self.max_retry_after)));
        table.push(("replay", Entry::Word(self.replay.word())));
        table.push(("hint_spread", Entry::Duration(self.hint_spread)));
        #[cfg(feature = "idempotency-keys")]
        if self.idempotency_keys {
            table.push(("idempotency_keys", Entry::Flag(true)));
        }
        serializer.collect_map(table)
    }
}

enum Entry {
    Word(&'static str),
    Duration(Duration),
    Count(u32),
    #[cfg(feature = "idempotency-keys")]
    Flag(bool),
}

impl Serialize for Entry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Word(word) => serializer.serialize_str(word),
            Self::Duration(duration) => {
                serializer.collect_str(&humantime::format_duration(*duration))
            }
            Self::Count(count) => serializer.serialize_u32(*count),
            #[cfg(feature = "idempotency-keys")]
            Self::Flag(flag) => serializer.serialize_bool(*flag),
        }
    }
}

/// Reads a table whose keys are all optional; what is left out, or null, has its default.
///
/// An unknown key and a value that can't be read are errors that name the key and the choices. A number out of range is
/// clamped, as the setters do it, as far as the format can hold it: 64 bits in most. For formats that describe
/// themselves: TOML, JSON, YAML and the like.
///
/// Give it a table of its own. Under `#[serde(flatten)]` it gets the keys that it knows, and nobody is told of a typo.
///
/// ```
/// # fn main() -> Result<(), toml::de::Error> {
/// use std::time::Duration;
/// use reqwest_jitter::{Backoff, Jitter, RetryPolicy};
///
/// let policy: RetryPolicy = toml::from_str(
///     r#"
///     jitter = "decorrelated"
///     base = "200ms"
///     cap = "10s"
///     max_attempts = 6
///     max_elapsed = "1m 30s"
///     "#,
/// )?;
///
/// const BUILT: RetryPolicy =
///     RetryPolicy::new(Backoff::exponential(Duration::from_millis(200), Duration::from_secs(10)))
///         .with_jitter(Jitter::Decorrelated)
///         .with_max_attempts(6)
///         .with_max_elapsed(Duration::from_secs(90));
/// assert_eq!(policy, BUILT);
///
/// let typo = toml::from_str::<RetryPolicy>("max_atempts = 3").unwrap_err();
/// assert!(typo.message().starts_with("unknown field `max_atempts`, expected one of `curve`, `jitter`, `base`"));
/// # Ok(())
/// # }
/// ```
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
impl<'de> Deserialize<'de> for RetryPolicy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_struct("RetryPolicy", KEYS, Table)
    }
}

struct Table;

impl<'de> Visitor<'de> for Table {
    type Value = RetryPolicy;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a table with the keys of a retry policy")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<RetryPolicy, A::Error> {
        let mut draft = Draft::default();
        while let Some(Key(key)) = table.next_key()? {
            match key {
                "curve" => read(&mut draft.curve, key, &mut table)?,
                "jitter" => read(&mut draft.jitter, key, &mut table)?,
                "base" => read(&mut draft.base, key, &mut table)?,
                "cap" => read(&mut draft.cap, key, &mut table)?,
                "factor" => read(&mut draft.factor, key, &mut table)?,
                "max_attempts" => read(&mut draft.max_attempts, key, &mut table)?,
                "max_elapsed" => read(&mut draft.max_elapsed, key, &mut table)?,
                "max_retry_after" => read(&mut draft.max_retry_after, key, &mut table)?,
                "replay" => read(&mut draft.replay, key, &mut table)?,
                "hint_spread" => read(&mut draft.hint_spread, key, &mut table)?,
                #[cfg(feature = "idempotency-keys")]
                "idempotency_keys" => read(&mut draft.idempotency_keys, key, &mut table)?,
                _ => return Err(A::Error::unknown_field(key, KEYS)),
            }
        }
        Ok(draft.into_policy())
    }
}

fn read<'de, T: Setting, A: MapAccess<'de>>(
    slot: &mut Option<T>,
    key: &'static str,
    table: &mut A,
) -> Result<(), A::Error> {
    if slot.is_some() {
        return Err(A::Error::duplicate_field(key));
    }
    let kind = PhantomData;
    *slot = table.next_value_seed(Value { key, kind })?;
    Ok(())
}

/// What a table says, as far as it says anything.
#[derive(Default)]
struct Draft {
    curve: Option<Curve>,
    jitter: Option<Jitter>,
    base: Option<Duration>,
    cap: Option<Duration>,
    factor: Option<u32>,
    max_attempts: Option<u32>,
    max_elapsed: Option<Duration>,
    max_retry_after: Option<Duration>,
    replay: Option<Replay>,
    hint_spread: Option<Duration>,
    #[cfg(feature = "idempotency-keys")]
    idempotency_keys: Option<bool>,
}

impl Draft {
    /// Through the setters, so that they clamp what they clamp in code.
    fn into_policy(self) -> RetryPolicy {
        let default = Backoff::default();
        let base = self.base.unwrap_or(default.base);
        let cap = self.cap.unwrap_or(default.cap);
        let mut backoff = match self.curve.unwrap_or(default.curve) {
            Curve::Exponential => Backoff::exponential(base, cap),
            Curve::Linear => Backoff::linear(base, cap),
            Curve::Fixed => Backoff::fixed(base),
        };
        if let Some(factor) = self.factor {
            backoff = backoff.with_factor(factor);
        }
        if let Some(jitter) = self.jitter {
            backoff = backoff.with_jitter(jitter);
        }
        let mut policy = RetryPolicy::new(backoff);
        if let Some(max_attempts) = self.max_attempts {
            policy = policy.with_max_attempts(max_attempts);
        }
        if let Some(max_elapsed) = self.max_elapsed {
            policy = policy.with_max_elapsed(max_elapsed);
        }
        if let Some(max_retry_after) = self.max_retry_after {
            policy = policy.with_max_retry_after(max_retry_after);
        }
        if let Some(replay) = self.replay {
            policy = policy.with_replay(replay);
        }
        if let Some(spread) = self.hint_spread {
            policy = policy.with_hint_spread(spread);
        }
        #[cfg(feature = "idempotency-keys")]
        if self.idempotency_keys == Some(true) {
            policy = policy.with_idempotency_keys();
        }
        policy
    }
}

struct Key(&'static str);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_identifier(KeyVisitor)
    }
}

struct KeyVisitor;

impl Visitor<'_> for KeyVisitor {
    type Value = Key;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a key of a retry policy")
    }

    // Refused here and not later, where a format no longer knows at which line it was.
    fn visit_str<E: Error>(self, name: &str) -> Result<Key, E> {
        let known = KEYS.iter().find(|key| **key == name);
        known
            .map(|key| Key(key))
            .ok_or_else(|| E::unknown_field(name, KEYS))
    }
}

/// The type of a value: what it may look like, and how it is read.
trait Setting: Sized {
    /// Says what the value has to be.
    fn describe(formatter: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// Asks the format for this kind of value. Most formats know what they hold, but an environment variable doesn't.
    fn ask<'de, D: Deserializer<'de>>(
        deserializer: D,
        value: Value<Self>,
    ) -> Result<Option<Self>, D::Error> {
        deserializer.deserialize_str(value)
    }

    fn read(found: Unexpected<'_>) -> Option<Self>;
}

/// Reads the value of a key, and knows the key's name for the complaint.
struct Value<T> {
    key: &'static str,
    kind: PhantomData<T>,
}

impl<T: Setting> Value<T> {
    fn read<E: Error>(self, found: Unexpected<'_>) -> Result<Option<T>, E> {
        match T::read(found) {
            Some(value) => Ok(Some(value)),
            None => Err(E::invalid_value(found, &self)),
        }
    }
}

impl<'de, T: Setting> DeserializeSeed<'de> for Value<T> {
    type Value = Option<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<T>, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de, T: Setting> Visitor<'de> for Value<T> {
    type Value = Option<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "`{}` to be ", self.key)?;
        T::describe(formatter)
    }

    fn visit_none<E: Error>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<T>, D::Error> {
        T::ask(deserializer, self)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Option<T>, E> {
        self.read(Unexpected::Str(text))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Option<T>, E> {
        self.read(Unexpected::Unsigned(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Option<T>, E> {
        self.read(u64::try_from(number).map_or(Unexpected::Signed(number), Unexpected::Unsigned))
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Option<T>, E> {
        self.read(Unexpected::Bool(flag))
    }
}

impl Setting for Duration {
    fn describe(formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a duration such as \"200ms\" or \"1m 30s\"")
    }

    fn read(found: Unexpected<'_>) -> Option<Self> {
        match found {
            Unexpected::Str(text) => humantime::parse_duration(text).ok(),
            _ => None,
        }
    }
}

impl Setting for u32 {
    fn describe(formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a whole number, not negative")
    }

    fn ask<'de, D: Deserializer<'de>>(
        deserializer: D,
        value: Value<Self>,
    ) -> Result<Option<Self>, D::Error> {
        deserializer.deserialize_u64(value)
    }

    fn read(found: Unexpected<'_>) -> Option<Self> {
        match found {
            Unexpected::Unsigned(number) => Some(Self::try_from(number).unwrap_or(Self::MAX)),
            _ => None,
        }
    }
}

#[cfg(feature = "idempotency-keys")]
impl Setting for bool {
    fn describe(formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("true or false")
    }

    fn ask<'de, D: Deserializer<'de>>(
        deserializer: D,
        value: Value<Self>,
    ) -> Result<Option<Self>, D::Error> {
        deserializer.deserialize_bool(value)
    }

    fn read(found: Unexpected<'_>) -> Option<Self> {
        match found {
            Unexpected::Bool(flag) => Some(flag),
            _ => None,
        }
    }
}

/// A value that is one of a few words.
trait Word: Copy + 'static {
    const CHOICES: &'static [Self];

    fn word(self) -> &'static str;
}

impl<T: Word> Setting for T {
    fn describe(formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("one of ")?;
        for (number, choice) in T::CHOICES.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(formatter, "{comma}`{}`", choice.word())?;
        }
        Ok(())
    }

    fn read(found: Unexpected<'_>) -> Option<Self> {
        let choice = |choice: &T| found == Unexpected::Str(choice.word());
        T::CHOICES.iter().copied().find(choice)
    }
}

impl Word for Curve {
    const CHOICES: &'static [Self] = &[Self::Exponential, Self::Linear, Self::Fixed];

    fn word(self) -> &'static str {
        match self {
            Self::Exponential => "exponential",
            Self::Linear => "linear",
            Self::Fixed => "fixed",
        }
    }
}

impl Word for Jitter {
    const CHOICES: &'static [Self] = &[Self::None, Self::Full, Self::Equal, Self::Decorrelated];

    fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Full => "full",
            Self::Equal => "equal",
            Self::Decorrelated => "decorrelated",
        }
    }
}

impl Word for Replay {
    const CHOICES: &'static [Self] = &[Self::IdempotentOnly, Self::WhenUnprocessed, Self::Always];

    fn word(self) -> &'static str {
        match self {
            Self::IdempotentOnly => "idempotent-only",
            Self::WhenUnprocessed => "when-unprocessed",
            Self::Always => "always",
        }
    }
}
