//! What an error says about the fate of the request.
//!
//! The answer decides whether a write may be repeated, so it is read from types and never guessed from texts; what is
//! not recognised counts as "may have been acted on". Types can be recognised only while reqwest is built on the same
//! major versions of hyper, hyper-util and h2 as this crate: if it moves on, the downcasts miss, and every failure of a
//! connection falls to that same safe answer.

use std::error::Error as StdError;
use std::io;

use hyper_util::client::legacy;
use reqwest_middleware::Error;

use crate::classify::{Cause, Effect, Verdict};

/// What may have become of a request that ended in an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It never left.
    NotSent,
    /// It left, and the server guarantees that it did nothing about it (RFC 9113 section 8.7).
    Refused,
    /// Nobody knows.
    Maybe,
    /// It does not matter: the next attempt would end the same way.
    Never,
}

pub(super) fn verdict(error: &Error) -> Verdict {
    let Some(error) = transport_error(error) else {
        return Verdict::Reject;
    };
    let effect = match fate(error) {
        Fate::NotSent | Fate::Refused => Effect::None,
        Fate::Maybe => Effect::Unknown,
        Fate::Never => return Verdict::Reject,
    };
    Verdict::retry(cause(error, effect), effect)
}

/// A middleware below may have wrapped reqwest's error, with its own words around it.
fn transport_error(error: &Error) -> Option<&reqwest::Error> {
    match error {
        Error::Reqwest(error) => Some(error),
        Error::Middleware(error) => error.chain().find_map(|link| link.downcast_ref()),
    }
}

fn cause(error: &reqwest::Error, effect: Effect) -> Cause {
    if error.is_dns() {
        Cause::Dns
    } else if error.is_connect() {
        Cause::Connect
    } else if error.is_timeout() {
        Cause::Timeout
    } else if effect == Effect::None && Trace::of(error).is_refused {
        Cause::StreamRefused
    } else {
        Cause::Transport
    }
}

/// The order of the questions matters: the first answer is the right one.
fn fate(error: &reqwest::Error) -> Fate {
    if error.is_builder() || error.is_redirect() || error.is_status() || error.is_upgrade() {
        return Fate::Never;
    }
    let trace = Trace::of(error);
    if error.is_decode() || error.is_body() {
        return trace.fate_of_body(error.is_timeout());
    }
    if error.is_connect() {
        return trace.fate_of_connect();
    }
    trace.fate_of_request().unwrap_or({
        if error.is_timeout() || error.is_request() {
            Fate::Maybe
        } else {
            Fate::Never
        }
    })
}

/// What the chain below an error holds.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // Independent findings of one walk, not the states of a machine.
struct Trace {
    /// hyper-util's error, and whether the request had been given to a connection.
    pool: Option<Handed>,
    /// An error of hyper itself.
    is_hyper: bool,
    is_canceled: bool,
    /// The bytes that came back were not HTTP, or the request could not be written as HTTP.
    is_malformed: bool,
    /// Data that will be as wrong the next time: a TLS failure, a bad chunk, a bad gzip stream.
    is_invalid_data: bool,
    /// No connection will come about the next time either.
    is_hopeless: bool,
    /// HTTP/2: the server refused the stream, or went away without it.
    is_refused: bool,
    /// HTTP/2: the two sides do not speak the same protocol.
    is_incompatible: bool,
}

/// The proxy wants credentials that nobody has, and a client that was built without TLS was asked for `https`. Their
/// types are private. Where a text changes, this becomes a retry of a request that was never sent.
const HOPELESS: [&str; 2] = [
    "tunnel error: proxy authorization required",
    "invalid URL, scheme is not http",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handed {
    ToAConnection,
    ToNone,
}

impl Trace {
    fn of(error: &reqwest::Error) -> Self {
        Self::below(error.source())
    }

    fn below(first: Option<&(dyn StdError + 'static)>) -> Self {
        let mut trace = Self::default();
        let mut next = first;
        while let Some(link) = next {
            trace.note(link);
            next = next_link(link);
        }
        trace
    }

    fn note(&mut self, link: &(dyn StdError + 'static)) {
        if let Some(error) = link.downcast_ref::<legacy::Error>() {
            self.pool = Some(match error.connect_info() {
                Some(_) => Handed::ToAConnection,
                None => Handed::ToNone,
            });
        } else if let Some(error) = link.downcast_ref::<hyper::Error>() {
            self.is_hyper = true;
            self.is_canceled |= error.is_canceled();
            self.is_malformed |= error.is_parse() || error.is_user();
        } else if let Some(error) = link.downcast_ref::<io::Error>() {
            self.is_invalid_data |= matches!(
                error.kind(),
                io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput
            );
        } else if !self.note_h2(link) {
            self.is_hopeless |= HOPELESS.contains(&link.to_string().as_str());
        }
    }

    #[cfg(feature = "http2")]
    fn note_h2(&mut self, link: &(dyn StdError + 'static)) -> bool {
        use h2::Reason;

        let Some(error) = link.downcast_ref::<h2::Error>() else {
            return false;
        };
        let reason = error.reason();
        self.is_refused |= error.is_remote()
            && (error.is_go_away() || (error.is_reset() && reason == Some(Reason::REFUSED_STREAM)));
        self.is_incompatible |= matches!(
            reason,
            Some(
                Reason::HTTP_1_1_REQUIRED
                    | Reason::INADEQUATE_SECURITY
                    | Reason::PROTOCOL_ERROR
                    | Reason::COMPRESSION_ERROR
                    | Reason::FRAME_SIZE_ERROR
                    | Reason::FLOW_CONTROL_ERROR
            )
        );
        true
    }

    #[cfg(not(feature = "http2"))]
    #[allow(clippy::unused_self)] // The twin with the feature notes what it finds.
    fn note_h2(&mut self, _link: &(dyn StdError + 'static)) -> bool {
        false
    }

    /// The response had begun when it failed, so that a request was certainly read. Only a middleware that reads
    /// bodies hands such an error up.
    fn fate_of_body(self, is_timeout: bool) -> Fate {
        // Without hyper or a timeout beneath, it was the content that could not be decoded: JSON for example.
        let is_interrupted = is_timeout || self.is_hyper;
        if is_interrupted && !self.is_invalid_data {
            Fate::Maybe
        } else {
            Fate::Never
        }
    }

    fn fate_of_connect(self) -> Fate {
        if self.is_invalid_data || self.is_hopeless {
            Fate::Never
        } else {
            Fate::NotSent
        }
    }

    fn fate_of_request(self) -> Option<Fate> {
        if self.is_malformed {
            return Some(Fate::Never);
        }
        match self.pool {
            // hyper-util refused the request itself: a version that the connection does not speak, for example.
            Some(_) if !self.is_hyper => return Some(Fate::Never),
            Some(Handed::ToNone) => return Some(self.unless_incompatible(Fate::NotSent)),
            Some(Handed::ToAConnection) if self.is_canceled => return Some(Fate::NotSent),
            Some(Handed::ToAConnection) | None => {}
        }
        if self.is_refused {
            return Some(Fate::Refused);
        }
        if self.is_incompatible {
            return Some(Fate::Never);
        }
        None
    }

    fn unless_incompatible(self, fate: Fate) -> Fate {
        if self.is_incompatible {
            Fate::Never
        } else {
            fate
        }
    }
}

/// The next link of the chain. `io::Error::source` skips the error that it carries and goes on with that one's source.
fn next_link<'a>(link: &'a (dyn StdError + 'static)) -> Option<&'a (dyn StdError + 'static)> {
    let carried = link
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref)
        .map(|carried| carried as &(dyn StdError + 'static));
    carried.or_else(|| link.source())
}

/// For the fuzzer: whether any link of a chain of errors says that the request can't have had an effect.
#[cfg(fuzzing)]
pub(crate) fn proves_no_effect(error: &(dyn StdError + 'static)) -> bool {
    matches!(
        Trace::below(Some(error)).fate_of_request(),
        Some(Fate::NotSent | Fate::Refused)
    )
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    /// An error of a type that nobody knows, with the words of one that everybody does.
    #[derive(Debug)]
    struct Foreign(&'static str, Option<Box<Foreign>>);

    impl fmt::Display for Foreign {
        fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str(self.0)
        }
    }

    impl StdError for Foreign {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            self.1.as_deref().map(|below| below as _)
        }
    }

    /// As if reqwest stood on other major versions of hyper and h2 than this crate.
    #[test]
    fn what_a_downcast_misses_may_have_had_an_effect() {
        for texts in [
            ["client error (SendRequest)", "operation was canceled"],
            [
                "client error (SendRequest)",
                "connection closed before message completed",
            ],
            [
                "http2 error",
                "stream error received: refused stream before processing any application logic",
            ],
        ] {
            let chain = Foreign(texts[0], Some(Box::new(Foreign(texts[1], None))));
            assert_eq!(
                Trace::below(Some(&chain)).fate_of_request(),
                None,
                "{texts:?}"
            );
        }
    }

    #[test]
    fn an_io_error_is_followed_into_what_it_carries() {
        let inner = io::Error::new(io::ErrorKind::InvalidData, Foreign("bad certificate", None));
        let outer = io::Error::other(inner);
        assert!(Trace::below(Some(&outer)).is_invalid_data);
        let harmless = io::Error::other(io::Error::from(io::ErrorKind::UnexpectedEof));
        assert!(!Trace::below(Some(&harmless)).is_invalid_data);
    }
}
