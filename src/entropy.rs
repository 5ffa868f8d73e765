//! The only place where randomness comes in.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::SeedableRng;

use crate::jitter::Dice;

/// Gives every call dice of its own. A generator is never cloned into two calls: they would wait in lockstep.
#[derive(Clone, Debug)]
pub(crate) struct Entropy {
    source: Source,
    // Shared by clones, so that the clones of a middleware do not repeat each other either.
    calls: Arc<AtomicU64>,
}

#[derive(Clone, Debug)]
enum Source {
    /// Keys that the operating system gave to this process, hashed with the number of the call.
    Process(RandomState),
    /// A fixed seed, for delays that can be repeated.
    Seed(u64),
}

/// Odd, so that different calls of one seed never share a stream, and large, so that neighbouring seeds do not either.
const STRIDE: u64 = 0xd134_2543_de82_ef95;

impl Entropy {
    pub(crate) fn of_process() -> Self {
        Self::from(Source::Process(RandomState::new()))
    }

    pub(crate) fn seeded(seed: u64) -> Self {
        Self::from(Source::Seed(seed))
    }

    /// The dice of the next call.
    pub(crate) fn dice(&self) -> Dice {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        Dice::seed_from_u64(match &self.source {
            Source::Process(keys) => keys.hash_one(call),
            // The first call meets the seed itself, and with it the delays that `Backoff::delays` previews.
            Source::Seed(seed) => seed.wrapping_add(call.wrapping_mul(STRIDE)),
        })
    }

    fn from(source: Source) -> Self {
        Self {
            source,
            calls: Arc::default(),
        }
    }
}

/// A new `Idempotency-Key`: a version 4 UUID, quoted as the header's grammar wants it.
///
/// Never drawn from a seed: processes that share one would take each other's requests for repetitions.
#[cfg(feature = "idempotency-keys")]
pub(crate) fn idempotency_key() -> Option<http::HeaderValue> {
    use std::sync::LazyLock;

    static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    static COUNT: AtomicU64 = AtomicU64::new(0);

    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let random = uuid::Uuid::from_u64_pair(
        KEYS.hash_one((count, "high")),
        KEYS.hash_one((count, "low")),
    );
    let key = uuid::Builder::from_random_bytes(random.into_bytes()).into_uuid();
    format!("\"{key}\"").parse().ok()
}
