//! A store that fails on demand, for tests.
//!
//! Owns faults before and after the act, and damage on the way back. Does not own what a test makes of them.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, stream};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use parking_lot::Mutex;

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// It fails and has no effect.
    Before,
    /// It has its effect, and the reply is lost.
    After,
    /// A read ends after three quarters of its bytes.
    Cut,
    /// A read has one bit flipped.
    Flip,
}

/// Requests of one kind take their faults from a queue; an empty queue means none.
#[derive(Debug, Default)]
pub(crate) struct Faulty {
    inner: InMemory,
    puts: Mutex<VecDeque<Fault>>,
    gets: Mutex<VecDeque<Fault>>,
    parts: Arc<Parts>,
}

/// Uploads in parts: which part of each fails, whether taking back does, and how many are open.
#[derive(Debug, Default)]
struct Parts {
    fails: Mutex<Option<usize>>,
    open: AtomicUsize,
}

/// An upload in parts.
#[derive(Debug)]
struct Upload {
    inner: Box<dyn MultipartUpload>,
    sent: usize,
    parts: Arc<Parts>,
}

#[async_trait::async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.sent += 1;
        if *self.parts.fails.lock() == Some(self.sent) {
            let error = Error::PermissionDenied { path: "part".to_owned(), source: "faulty".into() };
            return std::future::ready(Err(error)).boxed();
        }
        self.inner.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let done = self.inner.complete().await?;
        self.parts.open.fetch_sub(1, Ordering::Relaxed);
        Ok(done)
    }

    async fn abort(&mut self) -> Result<()> {
        if self.parts.fails.lock().is_some() {
            return Err(failed());
        }
        self.parts.open.fetch_sub(1, Ordering::Relaxed);
        self.inner.abort().await
    }
}

impl Faulty {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    pub(crate) fn on_puts(&self, faults: impl IntoIterator<Item = Fault>) {
        self.puts.lock().extend(faults);
    }

    /// Part `number` of every upload in parts fails for good, counted from 1, and taking the upload back fails too; `None`: no more.
    pub(crate) fn on_part(&self, number: Option<usize>) {
        *self.parts.fails.lock() = number;
    }

    /// How many uploads in parts are neither completed nor taken back.
    pub(crate) fn open_uploads(&self) -> usize {
        self.parts.open.load(Ordering::Relaxed)
    }

    pub(crate) fn on_gets(&self, faults: impl IntoIterator<Item = Fault>) {
        self.gets.lock().extend(faults);
    }
}

fn failed() -> Error {
    Error::Generic { store: "faulty", source: "503 slow down".into() }
}

fn next(queue: &Mutex<VecDeque<Fault>>) -> Fault {
    queue.lock().pop_front().unwrap_or(Fault::None)
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("faulty")
    }
}

#[async_trait::async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        match next(&self.puts) {
            Fault::Before => Err(failed()),
            Fault::After => {
                self.inner.put_opts(location, payload, opts).await?;
                Err(failed())
            }
            Fault::None | Fault::Cut | Fault::Flip => self.inner.put_opts(location, payload, opts).await,
        }
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        if next(&self.puts) == Fault::Before {
            return Err(failed());
        }
        let inner = self.inner.put_multipart_opts(location, opts).await?;
        self.parts.open.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(Upload { inner, sent: 0, parts: Arc::clone(&self.parts) }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let fault = next(&self.gets);
        if fault == Fault::Before {
            return Err(failed());
        }
        let result = self.inner.get_opts(location, options).await?;
        let (meta, range, attributes, extensions) =
            (result.meta.clone(), result.range.clone(), result.attributes.clone(), result.extensions.clone());
        let mut bytes = result.bytes().await?.to_vec();
        match fault {
            Fault::Cut => bytes.truncate(bytes.len() * 3 / 4),
            Fault::Flip => {
                if let Some(byte) = bytes.last_mut() {
                    *byte ^= 1;
                }
            }
            Fault::None | Fault::Before | Fault::After => {}
        }
        let payload = GetResultPayload::Stream(stream::iter([Ok(Bytes::from(bytes))]).boxed());
        Ok(GetResult { payload, meta, range, attributes, extensions })
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
