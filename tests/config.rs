//! Owns the rule of what a policy looks like in a configuration file, and what is said of one that can't be read.

#![cfg(feature = "serde")]

use std::time::Duration;

use proptest::prelude::*;
use reqwest_jitter::{Backoff, Jitter, Replay, RetryPolicy};
use serde::Deserialize;
use serde::de::value::{Error as ValueError, MapDeserializer};

fn toml(text: &str) -> Result<RetryPolicy, String> {
    toml::from_str(text).map_err(|error| error.to_string())
}

fn json(text: &str) -> Result<RetryPolicy, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

#[test]
fn an_empty_table_is_the_default() {
    assert_eq!(toml(""), Ok(RetryPolicy::default()));
    assert_eq!(json("{}"), Ok(RetryPolicy::default()));
}

#[test]
fn every_key_says_what_its_setter_says() {
    let millis = Duration::from_millis;
    let built = RetryPolicy::new(Backoff::linear(millis(200), millis(10_000)).with_factor(3))
        .with_jitter(Jitter::Equal)
        .with_max_attempts(7)
        .with_max_elapsed(millis(90_000))
        .with_max_retry_after(millis(30_000))
        .with_replay(Replay::IdempotentOnly)
        .with_hint_spread(millis(1_500));
    let table = r#"
        curve = "linear"
        jitter = "equal"
        base = "200ms"
        cap = "10s"
        factor = 3
        max_attempts = 7
        max_elapsed = "1m 30s"
        max_retry_after = "30s"
        replay = "idempotent-only"
        hint_spread = "1s 500ms"
    "#;
    let object = r#"{
        "curve": "linear", "jitter": "equal", "base": "200ms", "cap": "10s", "factor": 3, "max_attempts": 7,
        "max_elapsed": "90s", "max_retry_after": "30s", "replay": "idempotent-only", "hint_spread": "1500ms"
    }"#;
    assert_eq!(toml(table), Ok(built));
    assert_eq!(json(object), Ok(built));
}

#[test]
fn every_word_means_its_variant() {
    let base = Duration::from_secs(1);
    let cap = Duration::from_secs(30);
    for (word, backoff) in [
        ("exponential", Backoff::exponential(base, cap)),
        ("linear", Backoff::linear(base, cap)),
        ("fixed", Backoff::fixed(base)),
    ] {
        assert_eq!(
            toml(&format!("curve = '{word}'")),
            Ok(RetryPolicy::new(backoff))
        );
    }
    for (word, jitter) in [
        ("none", Jitter::None),
        ("full", Jitter::Full),
        ("equal", Jitter::Equal),
        ("decorrelated", Jitter::Decorrelated),
    ] {
        let built = RetryPolicy::default().with_jitter(jitter);
        assert_eq!(toml(&format!("jitter = '{word}'")), Ok(built));
    }
    for (word, replay) in [
        ("idempotent-only", Replay::IdempotentOnly),
        ("when-unprocessed", Replay::WhenUnprocessed),
        ("always", Replay::Always),
    ] {
        let built = RetryPolicy::default().with_replay(replay);
        assert_eq!(toml(&format!("replay = '{word}'")), Ok(built));
    }
}

#[test]
fn a_fixed_curve_waits_its_base_whatever_the_cap_and_the_order() {
    let fixed = RetryPolicy::new(Backoff::fixed(Duration::from_secs(5)));
    for table in [
        "curve = 'fixed'\nbase = '5s'",
        "base = '5s'\ncap = '1s'\ncurve = 'fixed'",
        "cap = '1h'\ncurve = 'fixed'\nbase = '5s'",
    ] {
        assert_eq!(toml(table), Ok(fixed));
    }
    let jittered = toml("jitter = 'equal'\ncurve = 'fixed'\nbase = '5s'");
    assert_eq!(jittered, Ok(fixed.with_jitter(Jitter::Equal)));
}

#[test]
fn what_is_out_of_range_is_clamped_as_in_code() {
    assert_eq!(toml("max_attempts = 0"), toml("max_attempts = 1"));
    assert_eq!(toml("factor = 0"), toml("factor = 1"));
    assert_ne!(toml("factor = 0"), toml("factor = 2"));
    let most = Ok(RetryPolicy::default().with_max_attempts(u32::MAX));
    assert_eq!(toml("max_attempts = 4294967296"), most);
    assert_eq!(json(r#"{"max_attempts": 18446744073709551615}"#), most);
    assert_eq!(
        toml("base = '0s'").unwrap(),
        RetryPolicy::new(Backoff::exponential(
            Duration::ZERO,
            Duration::from_secs(30)
        ))
    );
}

#[test]
fn null_is_what_is_left_out() {
    let nulls = r#"{"curve": null, "base": null, "max_attempts": null, "max_elapsed": null}"#;
    assert_eq!(json(nulls), Ok(RetryPolicy::default()));
}

#[derive(Debug, Deserialize, PartialEq)]
struct Nested {
    #[serde(default)]
    retry: RetryPolicy,
}

#[derive(Debug, Deserialize, PartialEq)]
struct Flat {
    url: String,
    #[serde(flatten)]
    retry: RetryPolicy,
}

#[test]
fn it_can_be_a_part_of_something_larger() {
    let retry = RetryPolicy::default().with_max_attempts(2);
    let nested = toml::from_str("[retry]\nmax_attempts = 2");
    assert_eq!(nested, Ok(Nested { retry }));
    let absent = toml::from_str("");
    let default = RetryPolicy::default();
    assert_eq!(absent, Ok(Nested { retry: default }));
    // A flattened value passes through a buffer, where null is something else.
    let flat: Flat =
        serde_json::from_str(r#"{"max_attempts": 2, "url": "/", "jitter": null}"#).unwrap();
    let url = "/".to_owned();
    assert_eq!(flat, Flat { url, retry });
}

#[track_caller]
fn assert_refused(table: &str, object: &str, expected: &str) {
    let (toml, json) = (toml(table).unwrap_err(), json(object).unwrap_err());
    assert!(toml.contains(&format!("\n{expected}\n")), "{toml}");
    // Where it stands in the file.
    assert!(
        toml.starts_with("TOML parse error at line 1, column "),
        "{toml}"
    );
    assert!(toml.contains(&format!("1 | {table}\n")), "{toml}");
    assert!(
        json.starts_with(&format!("{expected} at line 1 column ")),
        "{json}"
    );
}

#[test]
fn an_unknown_key_is_named_with_those_that_are_known() {
    let known = "`curve`, `jitter`, `base`, `cap`, `factor`, `max_attempts`, `max_elapsed`, \
        `max_retry_after`, `replay`, `hint_spread`";
    let keys = if cfg!(feature = "idempotency-keys") {
        format!("{known}, `idempotency_keys`")
    } else {
        known.to_owned()
    };
    for key in ["max_atempts", "maxAttempts", "BASE", "deadline"] {
        assert_refused(
            &format!("{key} = 3"),
            &format!(r#"{{"{key}": 3}}"#),
            &format!("unknown field `{key}`, expected one of {keys}"),
        );
    }
}

#[test]
fn a_key_that_is_no_word_is_refused() {
    let table = [(7_u32, "200ms")].into_iter();
    let refused = RetryPolicy::deserialize(MapDeserializer::<_, ValueError>::new(table));
    assert_eq!(
        refused.unwrap_err().to_string(),
        "invalid type: integer `7`, expected a key of a retry policy"
    );
}

#[test]
fn an_unknown_word_is_named_with_its_key_and_the_choices() {
    for (key, word, choices) in [
        ("jitter", "ful", "`none`, `full`, `equal`, `decorrelated`"),
        ("jitter", "Full", "`none`, `full`, `equal`, `decorrelated`"),
        ("curve", "expo", "`exponential`, `linear`, `fixed`"),
        (
            "replay",
            "never",
            "`idempotent-only`, `when-unprocessed`, `always`",
        ),
    ] {
        assert_refused(
            &format!(r#"{key} = "{word}""#),
            &format!(r#"{{"{key}":"{word}"}}"#),
            &format!(r#"invalid value: string "{word}", expected `{key}` to be one of {choices}"#),
        );
    }
}

#[test]
fn an_unreadable_duration_is_named_with_its_key() {
    for key in [
        "base",
        "cap",
        "max_elapsed",
        "max_retry_after",
        "hint_spread",
    ] {
        for value in [
            "200",
            "",
            "-1s",
            "soon",
            "5 parsecs",
            "1e3s",
            "999999999999999999999s",
            "99999999999999999y",
        ] {
            assert_refused(
                &format!(r#"{key} = "{value}""#),
                &format!(r#"{{"{key}":"{value}"}}"#),
                &format!(
                    r#"invalid value: string "{value}", expected `{key}` to be a duration such as "200ms" or "1m 30s""#
                ),
            );
        }
    }
}

#[test]
fn a_value_of_the_wrong_kind_is_named_with_its_key() {
    for (key, value, found, expected) in [
        (
            "base",
            "200",
            "value: integer `200`",
            "a duration such as \"200ms\" or \"1m 30s\"",
        ),
        (
            "base",
            "true",
            "value: boolean `true`",
            "a duration such as \"200ms\" or \"1m 30s\"",
        ),
        (
            "base",
            "1.5",
            "type: floating point `1.5`",
            "a duration such as \"200ms\" or \"1m 30s\"",
        ),
        (
            "jitter",
            "1",
            "value: integer `1`",
            "one of `none`, `full`, `equal`, `decorrelated`",
        ),
        (
            "max_attempts",
            "-1",
            "value: integer `-1`",
            "a whole number, not negative",
        ),
        (
            "max_attempts",
            "2.5",
            "type: floating point `2.5`",
            "a whole number, not negative",
        ),
        (
            "max_attempts",
            "\"many\"",
            "value: string \"many\"",
            "a whole number, not negative",
        ),
        (
            "factor",
            "[]",
            "type: sequence",
            "a whole number, not negative",
        ),
    ] {
        let expected = format!("invalid {found}, expected `{key}` to be {expected}");
        let toml = toml(&format!("{key} = {value}")).unwrap_err();
        assert!(toml.contains(&expected), "{toml}");
        let json = json(&format!(r#"{{"{key}":{value}}}"#)).unwrap_err();
        // It has its own words for what a value is, not for what it should be.
        let (_, wanted) = expected.split_once(", ").unwrap();
        assert!(json.contains(wanted), "{json}");
    }
    let list = json("[]").unwrap_err();
    assert!(
        list.contains("expected a table with the keys of a retry policy"),
        "{list}"
    );
}

#[test]
fn a_key_that_comes_twice_is_an_error() {
    let twice = json(r#"{"base": "1s", "base": "2s"}"#).unwrap_err();
    assert!(twice.starts_with("duplicate field `base`"), "{twice}");
}

#[test]
fn it_is_written_as_people_write_it() {
    let policy = RetryPolicy::new(
        Backoff::exponential(Duration::from_micros(1_500), Duration::from_secs(90))
            .with_jitter(Jitter::Decorrelated),
    );
    let expected = r#"curve = "exponential"
jitter = "decorrelated"
base = "1ms 500us"
cap = "1m 30s"
factor = 2
max_attempts = 5
max_retry_after = "2m"
replay = "when-unprocessed"
hint_spread = "0s"
"#;
    assert_eq!(toml::to_string(&policy).unwrap(), expected);
    let fixed = toml::to_string(&RetryPolicy::new(Backoff::fixed(Duration::from_secs(1)))).unwrap();
    assert!(!fixed.contains("cap"), "{fixed}");
}

#[cfg(feature = "idempotency-keys")]
#[test]
fn idempotency_keys_are_a_flag() {
    let on = RetryPolicy::default().with_idempotency_keys();
    assert_eq!(toml("idempotency_keys = true"), Ok(on));
    assert_eq!(toml("idempotency_keys = false"), Ok(RetryPolicy::default()));
    assert!(
        toml::to_string(&on)
            .unwrap()
            .ends_with("\nidempotency_keys = true\n")
    );
    assert!(
        !toml::to_string(&RetryPolicy::default())
            .unwrap()
            .contains("idempotency")
    );
    for refused in [
        toml("idempotency_keys = 1"),
        json(r#"{"idempotency_keys":"true"}"#),
    ] {
        let error = refused.unwrap_err();
        let wanted = "expected `idempotency_keys` to be true or false";
        assert!(error.contains(wanted), "{error}");
    }
}

fn any_duration() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(Duration::ZERO),
        Just(Duration::MAX),
        (0..2_000_000_u64).prop_map(Duration::from_nanos),
        (0..100_000_u64).prop_map(Duration::from_millis),
        (any::<u64>(), 0..1_000_000_000_u32).prop_map(|(secs, nanos)| Duration::new(secs, nanos)),
    ]
}

prop_compose! {
    fn any_policy()(
        base in any_duration(),
        cap in any_duration(),
        curve in 0..3,
        factor in any::<u32>(),
        jitter in prop::sample::select(vec![Jitter::None, Jitter::Full, Jitter::Equal, Jitter::Decorrelated]),
        max_attempts in any::<u32>(),
        max_elapsed in prop::option::of(any_duration()),
        max_retry_after in any_duration(),
        replay in prop::sample::select(vec![Replay::IdempotentOnly, Replay::WhenUnprocessed, Replay::Always]),
        hint_spread in any_duration(),
        idempotency_keys in any::<bool>(),
    ) -> RetryPolicy {
        let backoff = match curve {
            0 => Backoff::exponential(base, cap),
            1 => Backoff::linear(base, cap),
            _ => Backoff::fixed(base),
        };
        let mut policy = RetryPolicy::new(backoff.with_factor(factor).with_jitter(jitter))
            .with_max_attempts(max_attempts)
            .with_max_retry_after(max_retry_after)
            .with_replay(replay)
            .with_hint_spread(hint_spread);
        if let Some(max_elapsed) = max_elapsed {
            policy = policy.with_max_elapsed(max_elapsed);
        }
        #[cfg(feature = "idempotency-keys")]
        if idempotency_keys {
            policy = policy.with_idempotency_keys();
        }
        let _ = idempotency_keys;
        policy
    }
}

proptest! {
    #[test]
    fn what_is_written_reads_back_equal(policy in any_policy()) {
        let table = toml::to_string(&policy).unwrap();
        prop_assert_eq!(toml(&table), Ok(policy), "{}", table);
        let object = serde_json::to_string(&policy).unwrap();
        prop_assert_eq!(json(&object), Ok(policy), "{}", object);
    }

    #[test]
    fn nothing_that_a_file_can_hold_panics(
        key in prop::sample::select(vec!["curve", "base", "cap", "factor"]),
        text in ".*",
    ) {
        let object = serde_json::json!({ key: text });
        let _ = serde_json::from_value::<RetryPolicy>(object);
    }
}
