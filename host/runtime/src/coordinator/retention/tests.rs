//! I8 over a real store: what a restart needs is there, whatever else goes.

use std::collections::BTreeSet;

use bytes::Bytes;
use wasmill_core::checkpoint::log::Seq;
use wasmill_core::digest::Digest;
use wasmill_core::id::Attempt;

use super::super::journal::tests::{manifest, newest, open};
use super::*;
use crate::blob::Blob;
use crate::blob::faulty::Faulty;

const KEEP_TWO: NonZeroU32 = NonZeroU32::new(2).unwrap();

struct Job {
    blob: Blob,
    journal: Journal,
    retention: Retention,
}

impl Job {
    async fn start(blob: &Blob) -> Self {
        let mut journal = open(blob).await;
        newest(&mut journal).await;
        let retention = Retention::new(&journal, (KEEP_TWO, None), BTreeSet::new()).await;
        Self { blob: blob.clone(), journal, retention }
    }

    async fn put(&self, object: &str) {
        self.blob.put(&self.journal.names().full(object), Bytes::from_static(b"x")).await.unwrap();
    }

    /// A checkpoint that uploads one file and refers to `refers`.
    async fn prepare(&mut self, refers: &[&str]) -> (CheckpointId, String) {
        let id = self.journal.next_checkpoint().await.unwrap();
        let attempt = self.journal.attempt().unwrap();
        let own = names::file(Digest::of(b"x"), id, attempt);
        self.put(&own).await;
        let mut manifest = manifest(id, attempt);
        let state = manifest.parts[1].state.as_mut().unwrap();
        let template = state.files[0].clone();
        let objects = refers.iter().copied().chain([own.as_str()]);
        state.files = objects
            .enumerate()
            .map(|(n, object)| wasmill_core::checkpoint::manifest::FileRef {
                name: format!("{n}.sst"),
                object: object.to_owned(),
                ..template.clone()
            })
            .collect();
        assert_eq!(self.retention.dangling(id, &manifest.parts), None);
        self.journal.prepare(&manifest).await.unwrap();
        self.retention.prepared(&manifest);
        (id, own)
    }

    async fn complete(&mut self, refers: &[&str]) -> (CheckpointId, String) {
        let (id, own) = self.prepare(refers).await;
        self.journal.decide(id).await.unwrap();
        self.retention.collect(&mut self.journal, None).await.unwrap();
        (id, own)
    }

    async fn has(&self, object: &str) -> bool {
        self.blob.exists(&self.journal.names().full(object)).await.unwrap()
    }
}

fn memory() -> Blob {
    Blob::of(Faulty::new())
}

#[tokio::test]
async fn the_newest_are_kept_with_all_they_name_and_the_rest_goes() {
    let mut job = Job::start(&memory()).await;
    let (one, a) = job.complete(&[]).await;
    let (_, b) = job.complete(&[&a]).await;
    let (_, c) = job.complete(&[&a, &b]).await;
    assert!(job.has(&a).await && job.has(&b).await, "3 still names both");
    assert!(!job.has(&names::manifest(one)).await, "1 is retired");
    assert!(job.journal.read_manifest(one).await.is_err());
    let (_, d) = job.complete(&[&c]).await;
    assert!(job.has(&a).await && job.has(&b).await, "3 is retained");
    job.complete(&[&d]).await;
    assert!(!job.has(&a).await && !job.has(&b).await);
    assert!(job.has(&c).await && job.has(&d).await);
    for stored in job.journal.decided() {
        for object in job.journal.read_manifest(stored.checkpoint).await.unwrap().objects() {
            assert!(!object.starts_with("files/") || job.has(object).await, "{object}");
        }
    }
}

#[tokio::test]
async fn c5_what_given_up_checkpoints_uploaded_goes_after_the_next_decision() {
    let mut job = Job::start(&memory()).await;
    let (_, a) = job.complete(&[]).await;
    let attempt = job.journal.attempt().unwrap();
    let mut orphans = Vec::new();
    for _ in 0..20 {
        let id = job.journal.next_checkpoint().await.unwrap();
        let orphan = names::file(Digest::of(b"y"), id, attempt);
        job.put(&orphan).await;
        job.retention.given_up(id);
        orphans.push(orphan);
    }
    let later = job.journal.next_checkpoint().await.unwrap();
    let foreign = names::file(Digest::of(b"y"), later, Attempt(attempt.0 + 1));
    job.put(&foreign).await;
    job.retention.collect(&mut job.journal, None).await.unwrap();
    assert!(job.has(&orphans[0]).await, "its upload may still be under way");
    let (_, b) = job.complete(&[&a]).await;
    for orphan in &orphans {
        assert!(!job.has(orphan).await, "{orphan}");
    }
    assert!(job.has(&a).await && job.has(&b).await && job.has(&foreign).await);
}

#[tokio::test]
async fn c10_half_written_manifests_break_no_restore_and_are_cleaned_up() {
    let store = Faulty::new();
    let (mut newest_decided, mut used) = (None, BTreeSet::new());
    for restart in 0..50u32 {
        let blob = Blob::of(store.clone());
        let mut job = Job::start(&blob).await;
        job.retention.collect_orphans(&job.journal).await;
        assert_eq!(job.journal.newest_decided().map(|stored| stored.checkpoint), newest_decided, "restart {restart}");
        for stored in job.journal.decided() {
            job.journal.read_manifest(stored.checkpoint).await.unwrap();
        }
        // What the attempt before left behind is gone, whatever was in it.
        let listed = blob.list(&job.journal.names().full(names::MANIFESTS)).await.unwrap();
        for object in listed {
            let id = names::manifest_checkpoint(job.journal.names().relative(&object.name).unwrap());
            assert!(id.is_some_and(|id| job.journal.state().checkpoint(id).is_some()), "{}", object.name);
        }
        let (done, _) = job.complete(&[]).await;
        assert!(used.insert(done), "{done} was used before");
        newest_decided = Some(done);
        // The process dies in the middle of the next one: within its manifest, behind it, and behind each of its entries.
        let id = job.journal.next_checkpoint().await.unwrap();
        assert!(used.insert(id), "{id} was used before");
        let manifest = manifest(id, job.journal.attempt().unwrap());
        let object = job.journal.names().full(&names::manifest(id));
        let journal = &mut job.journal;
        match restart % 5 {
            0 => blob.put(&object, Bytes::new()).await.unwrap(),
            1 => {
                let whole = manifest.encode().unwrap().bytes;
                blob.put(&object, Bytes::copy_from_slice(&whole[..whole.len() / 2])).await.unwrap();
            }
            2 => blob.put(&object, Bytes::from(manifest.encode().unwrap().bytes)).await.unwrap(),
            3 => journal.prepare(&manifest).await.unwrap(),
            _ => {
                journal.prepare(&manifest).await.unwrap();
                journal.decide(id).await.unwrap();
                newest_decided = Some(id);
            }
        }
    }
}

#[tokio::test]
async fn a_checkpoint_in_progress_keeps_what_it_may_refer_to() {
    let mut job = Job::start(&memory()).await;
    let (_, a) = job.complete(&[]).await;
    job.complete(&[]).await;
    let in_progress = job.journal.next_checkpoint().await.unwrap();
    let (third, _) = job.prepare(&[]).await;
    job.journal.decide(third).await.unwrap();
    job.retention.collect(&mut job.journal, Some(in_progress)).await.unwrap();
    assert!(job.has(&a).await, "1 is retired, and what it named may still be referred to");
    let error = job.retention.dangling(in_progress, &manifest_naming(&a).parts).unwrap();
    assert_eq!(error.1, a, "but no longer by a manifest");
    job.retention.collect(&mut job.journal, None).await.unwrap();
    assert!(!job.has(&a).await);
}

fn manifest_naming(object: &str) -> Manifest {
    let mut manifest = manifest(CheckpointId(99), Attempt(1));
    manifest.parts[1].state.as_mut().unwrap().files[0].object = object.to_owned();
    manifest
}

#[tokio::test]
async fn what_dead_attempts_left_behind_goes_and_what_is_retained_stays() {
    let blob = memory();
    let mut job = Job::start(&blob).await;
    let (_, kept) = job.complete(&[]).await;
    let (prepared, of_prepared) = job.prepare(&[&kept]).await;
    let orphan = names::file(Digest::of(b"y"), CheckpointId(3), Attempt(1));
    let component = names::component(Digest::of(b"y"), Attempt(1));
    let half = names::manifest(CheckpointId(3));
    for object in [&orphan, &component, &half] {
        job.put(object).await;
    }
    let next = Job::start(&blob).await;
    let own = names::file(Digest::of(b"y"), CheckpointId(50), Attempt(2));
    next.put(&own).await;
    next.put("files/not-ours").await;
    next.retention.collect_orphans(&next.journal).await;
    for object in [&orphan, &component, &half] {
        assert!(!next.has(object).await, "{object}");
    }
    for object in [&kept, &of_prepared, &own, &names::manifest(prepared), &"files/not-ours".to_owned()] {
        assert!(next.has(object).await, "{object}");
    }
}

#[tokio::test]
async fn nothing_is_deleted_while_nobody_knows_what_a_retained_checkpoint_names() {
    let blob = memory();
    let mut job = Job::start(&blob).await;
    let (one, a) = job.complete(&[]).await;
    let (two, _) = job.complete(&[&a]).await;
    job.blob.put(&job.journal.names().full(&names::manifest(two)), Bytes::new()).await.unwrap();
    let mut next = Job::start(&blob).await;
    next.complete(&[]).await;
    assert!(next.journal.state().checkpoint(one).is_none(), "1 is retired");
    assert!(next.has(&a).await, "but 2 may name it");
    next.complete(&[]).await;
    assert!(next.journal.state().checkpoint(two).is_none(), "2 is retired too, and unknown no more matters");
    assert!(!next.has(&a).await);
}

#[tokio::test]
async fn an_attempt_that_is_over_deletes_nothing() {
    let blob = memory();
    let mut old = Job::start(&blob).await;
    let (one, a) = old.complete(&[]).await;
    old.complete(&[]).await;
    let (third, _) = old.prepare(&[]).await;
    old.journal.decide(third).await.unwrap();
    let new = Job::start(&blob).await;
    assert!(old.retention.collect(&mut old.journal, None).await.unwrap_err().is_fenced());
    assert!(new.has(&a).await);
    assert!(new.journal.read_manifest(one).await.is_ok());
}

#[tokio::test]
async fn closed_blocks_of_the_log_are_cleaned_all_but_their_last_entry() {
    let blob = memory();
    let mut job = Job::start(&blob).await;
    while job.journal.state().next() < Seq(2 * log::BLOCK + 10) {
        job.complete(&[]).await;
    }
    let exists = async |seq| blob.exists(&job.journal.names().log_entry(Seq(seq))).await.unwrap();
    for seq in [0, 500, 1_022, 1_024, 2_046] {
        assert!(!exists(seq).await, "{seq}");
    }
    for seq in [1_023, 2_047, 2_048] {
        assert!(exists(seq).await, "{seq}");
    }
    assert_eq!(open(&blob).await.state(), job.journal.state());
}
