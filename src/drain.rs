//! What happens between two attempts: the wait, and beside it the end of the failed response.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use reqwest::Response;
use tokio::time::{sleep, timeout};

/// A connection can serve the next attempt only once its response has been read to the end. Up to here that is cheaper
/// than a new connection; a longer body is dropped, and an HTTP/1.1 connection with it.
const MOST_BYTES: usize = 64 * 1024;
const LONGEST: Duration = Duration::from_millis(250);
const LONGEST_WITHOUT_DELAY: Duration = Duration::from_millis(5);

/// Waits for `delay`, and meanwhile reads what is left of the failed response, so that its connection is free before
/// the wait is over.
///
/// A zero delay does not sleep at all, and touches no timer if the body is complete already. Reading never makes the
/// wait longer, but by at most 5 ms where there is none. Dropping the future drops the response.
pub(crate) fn wait_and_drain(
    response: Option<Response>,
    delay: Duration,
) -> impl Future<Output = ()> {
    let longest = if delay.is_zero() {
        LONGEST_WITHOUT_DELAY
    } else {
        LONGEST.min(delay)
    };
    // In a box of its own, which is gone for the rest of the wait: many calls may be waiting.
    let released = Box::pin(release(response, longest));
    async move {
        // Begun before the draining, so that both run side by side.
        let wait = (!delay.is_zero()).then(|| sleep(delay));
        released.await;
        if let Some(wait) = wait {
            wait.await;
        }
    }
}

async fn release(response: Option<Response>, longest: Duration) {
    let Some(response) = response else { return };
    let mut draining = pin!(drain(response));
    if is_ready(draining.as_mut()).await {
        return;
    }
    // Whether it was read or not, the response is gone afterwards.
    let _ = timeout(longest, draining).await;
}

async fn drain(mut response: Response) {
    let mut left = MOST_BYTES;
    if response
        .content_length()
        .is_some_and(|length| usize::try_from(length).map_or(true, |length| length > left))
    {
        return;
    }
    while let Ok(Some(chunk)) = response.chunk().await {
        match left.checked_sub(chunk.len()) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}

async fn is_ready(mut future: Pin<&mut impl Future<Output = ()>>) -> bool {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_ready())).await
}

/// Gives everything else that is ready to run its turn.
pub(crate) async fn step_aside() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
