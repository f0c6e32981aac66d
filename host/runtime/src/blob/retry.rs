//! Patience with a store that fails now and then.
//!
//! Owns what is worth retrying, how long the waits are, and when to give up. Does not own what is tried.

use std::error::Error as _;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::time::Duration;

use object_store::Error as StoreError;
use tokio::time::{Instant, sleep, timeout_at};

use super::{Blob, Error};

/// How patient a store's handle is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// The longest first wait; each further one may be twice as long. The wait itself is drawn evenly from zero to that, so that
    /// many clients do not come back at once.
    pub first: Duration,
    /// The longest wait.
    pub most: Duration,
    /// When to give up, counted from the first try. Large files get a second more a mebibyte.
    pub deadline: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { first: Duration::from_millis(100), most: Duration::from_secs(10), deadline: Duration::from_secs(120) }
    }
}

impl Retry {
    /// The wait after the `tries`th failure.
    fn wait(&self, tries: u32, random: u64) -> Duration {
        let longest = self.first.saturating_mul(1 << tries.saturating_sub(1).min(20)).min(self.most);
        longest.mul_f64(random as f64 / u64::MAX as f64)
    }
}

/// What one try found.
pub(super) enum Failure {
    /// The store's error: retried where that is of use.
    Store(StoreError),
    /// Not the store's: never retried.
    Final(Error),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Final(error)
    }
}

impl Blob {
    /// Tries until it succeeds, fails for good, or the deadline has passed.
    pub(super) async fn retrying<T, E, F>(
        &self,
        doing: &'static str,
        object: &str,
        attempt: impl FnMut() -> F,
    ) -> Result<T, Error>
    where
        E: Into<Failure>,
        F: Future<Output = Result<T, E>>,
    {
        self.retrying_for(self.retry.deadline, doing, object, attempt).await
    }

    /// As [`Blob::retrying`], with a deadline of its own.
    pub(super) async fn retrying_for<T, E, F>(
        &self,
        patience: Duration,
        doing: &'static str,
        object: &str,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, Error>
    where
        E: Into<Failure>,
        F: Future<Output = Result<T, E>>,
    {
        let start = Instant::now();
        let deadline = start + patience;
        let mut tries = 0;
        loop {
            tries += 1;
            let cause = match timeout_at(deadline, attempt()).await {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(failure)) => match failure.into() {
                    Failure::Final(error) => return Err(error),
                    Failure::Store(error) if !may_pass(&error) => {
                        let (object, store) = (object.to_owned(), self.location.to_string());
                        return Err(Error::Refused { doing, object, store, cause: explain(&error) });
                    }
                    Failure::Store(error) => explain(&error),
                },
                Err(_) => "no answer".to_owned(),
            };
            let wait = self.retry.wait(tries, random());
            if Instant::now() + wait >= deadline {
                let (object, store) = (object.to_owned(), self.location.to_string());
                return Err(Error::Unavailable { doing, object, store, tries, waited: start.elapsed(), cause });
            }
            tracing::warn!(store = %self.location, object, doing, tries, cause, "the store failed; trying again");
            sleep(wait).await;
        }
    }
}

/// Whether trying again may help.
fn may_pass(error: &StoreError) -> bool {
    match error {
        StoreError::NotFound { .. }
        | StoreError::AlreadyExists { .. }
        | StoreError::Precondition { .. }
        | StoreError::NotModified { .. }
        | StoreError::NotSupported { .. }
        | StoreError::NotImplemented { .. }
        | StoreError::InvalidPath { .. }
        | StoreError::PermissionDenied { .. }
        | StoreError::Unauthenticated { .. }
        | StoreError::UnknownConfigurationKey { .. } => false,
        other => !causes(other).any(|cause| cause.downcast_ref::<std::io::Error>().is_some_and(is_final)),
    }
}

/// Whether a file system says so for good.
fn is_final(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::NotADirectory
            | ErrorKind::IsADirectory
            | ErrorKind::InvalidInput
            | ErrorKind::InvalidFilename
    )
}

fn causes(error: &StoreError) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    let mut next = error.source();
    std::iter::from_fn(move || {
        let cause = next?;
        next = cause.source();
        Some(cause)
    })
}

/// The error and its causes on one line, each said once.
fn explain(error: &StoreError) -> String {
    let mut text = error.to_string();
    for cause in causes(error) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// A random number, good enough to spread waits and to tell writers apart.
pub(super) fn random() -> u64 {
    RandomState::new().hash_one(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_limit_and_are_spread() {
        let retry = Retry::default();
        assert_eq!(retry.wait(1, u64::MAX), retry.first);
        assert_eq!(retry.wait(3, u64::MAX), retry.first * 4);
        assert_eq!(retry.wait(u32::MAX, u64::MAX), retry.most);
        assert_eq!(retry.wait(3, 0), Duration::ZERO);
        assert!(retry.wait(3, u64::MAX / 2) < retry.first * 4);
    }

    #[test]
    fn what_fails_for_good_is_not_retried() {
        let io = |kind| StoreError::Generic { store: "test", source: Box::new(std::io::Error::from(kind)) };
        assert!(!may_pass(&io(ErrorKind::PermissionDenied)));
        assert!(!may_pass(&io(ErrorKind::ReadOnlyFilesystem)));
        assert!(may_pass(&io(ErrorKind::StorageFull)), "room may be made");
        assert!(may_pass(&io(ErrorKind::ConnectionReset)));
        assert!(!may_pass(&StoreError::NotImplemented { operation: String::new(), implementer: String::new() }));
    }
}
