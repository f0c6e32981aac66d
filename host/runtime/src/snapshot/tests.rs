//! What snapshots promise: what comes back is what went, and only what is new goes.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use tempfile::TempDir;
use wasmill_core::checkpoint::counts::Counts;
use wasmill_core::fault::FaultKind;
use wasmill_core::id::JobId;
use wasmill_core::key_group::KeyGroupRange;

use super::*;
use crate::blob::faulty::{Fault, Faulty};

type Files = BTreeMap<String, Vec<u8>>;

fn names() -> Names {
    Names::new(&JobId::new("flights").unwrap())
}

/// A local cut of these files.
fn cut(files: &Files) -> LocalCut {
    let dir = TempDir::new().unwrap().keep();
    let groups = Some(KeyGroupRange { start: 1, end: 3 });
    for (name, content) in files {
        std::fs::write(dir.join(name), content).unwrap();
    }
    let files = files.iter().map(|(name, content)| LocalFile {
        name: name.clone(),
        bytes: content.len() as u64,
        key_groups: groups.filter(|_| name.ends_with(".sst")),
    });
    let (write, cut) = (Duration::ZERO, Duration::ZERO);
    let (backend, counts) = (StateBackend::Rocksdb, Counts::default());
    LocalCut { backend, dir, files: files.collect(), counts, write, cut }
}

fn read(dir: &Path) -> Files {
    let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
    entries.map(|e| (e.file_name().into_string().unwrap(), std::fs::read(e.path()).unwrap())).collect()
}

fn some_files() -> Files {
    Files::from([
        ("000004.sst".to_owned(), vec![4; 1_000]),
        ("000007.sst".to_owned(), (0..200_000u32).flat_map(u32::to_le_bytes).collect()),
        ("CURRENT".to_owned(), b"MANIFEST-000005\n".to_vec()),
        ("EMPTY".to_owned(), vec![]),
        ("MANIFEST-000005".to_owned(), vec![9; 500]),
    ])
}

async fn stored(files: &Files, inventory: &Inventory, blob: &Blob, checkpoint: u64) -> Result<Stored, Error> {
    let (attempt, checkpoint) = (Attempt(1), CheckpointId(checkpoint));
    upload(cut(files), inventory, Owner { blob, names: &names(), attempt, checkpoint }, std::future::pending()).await
}

fn memory() -> Blob {
    Blob::of(Faulty::new())
}

#[tokio::test]
async fn what_comes_back_is_what_went() {
    let (blob, dir) = (memory(), TempDir::new().unwrap());
    let files = some_files();
    let stored = stored(&files, &Inventory::new(), &blob, 1).await.unwrap();
    assert_eq!(stored.bytes_new, files.values().map(|content| content.len() as u64).sum::<u64>());
    assert_eq!(stored.bytes_referenced, 0);
    let objects: std::collections::BTreeSet<_> = stored.state.files.iter().map(|file| &file.object).collect();
    assert_eq!(objects.len(), 2, "the large file, and the small ones in one object");
    let to = dir.path().join("part");
    std::fs::create_dir(&to).unwrap();
    std::fs::write(to.join("left behind"), "x").unwrap();
    download(&stored.state, &to, (&blob, &names()), |_| {}).await.unwrap();
    assert_eq!(read(&to), files, "and nothing else");
}

#[tokio::test]
async fn a_snapshot_uploads_only_what_the_last_decided_one_does_not_have() {
    let (blob, dir) = (memory(), TempDir::new().unwrap());
    let mut files = some_files();
    let mut inventory = Inventory::new();
    let first = stored(&files, &inventory, &blob, 1).await.unwrap();
    inventory.stored(CheckpointId(1), &first.state.files);
    inventory.decided(CheckpointId(1));
    files.insert("000009.sst".to_owned(), vec![7; 300]);
    files.remove("000004.sst");
    let second = stored(&files, &inventory, &blob, 2).await.unwrap();
    assert_eq!(second.bytes_referenced, 800_000, "000007.sst");
    assert_eq!(second.bytes_new, 300 + 500 + 16, "the new table, and what may have changed");
    for file in &second.state.files {
        let (by, _) = names::file_origin(&file.object).unwrap();
        assert_eq!(by.0 == 1, file.name == "000007.sst", "{}", file.name);
    }
    download(&second.state, dir.path(), (&blob, &names()), |_| {}).await.unwrap();
    assert_eq!(read(dir.path()), files);
    // After a restore of these files as they are, the next snapshot goes on from them.
    let third = stored(&files, &Inventory::restored(&second.state), &blob, 3).await.unwrap();
    assert_eq!(third.bytes_referenced, 800_300);
}

#[tokio::test]
async fn the_cuts_folder_is_gone_also_after_a_failure() {
    let store = Faulty::new();
    let impatient = crate::blob::Retry { deadline: Duration::ZERO, ..Default::default() };
    for fault in [Fault::None, Fault::Before] {
        let blob = Blob::of(store.clone());
        let blob = if fault == Fault::None { blob } else { blob.with_retry(impatient) };
        store.on_puts([fault]);
        let cut = cut(&some_files());
        let dir = cut.dir.clone();
        let (attempt, checkpoint) = (Attempt(1), CheckpointId(1));
        let result = upload(
            cut,
            &Inventory::new(),
            Owner { blob: &blob, names: &names(), attempt, checkpoint },
            std::future::pending(),
        )
        .await;
        assert_eq!(result.is_ok(), fault == Fault::None);
        assert!(!dir.exists());
    }
}

#[tokio::test]
async fn an_upload_ends_when_its_checkpoint_is_given_up() {
    let store = Faulty::new();
    // It would be tried for two minutes.
    store.on_puts(vec![Fault::Before; 1_000]);
    let blob = Blob::of(store).with_retry(crate::blob::Retry::default());
    let cut = cut(&some_files());
    let dir = cut.dir.clone();
    let owner = Owner { blob: &blob, names: &names(), attempt: Attempt(1), checkpoint: CheckpointId(1) };
    let given_up = tokio::task::yield_now();
    let error = upload(cut, &Inventory::new(), owner, given_up).await.unwrap_err();
    assert!(matches!(error, Error::GivenUp), "{error}");
    assert!(!dir.exists());
}

#[tokio::test]
async fn c8_damage_is_named_and_nothing_half_fetched_remains() {
    let (blob, dir) = (memory(), TempDir::new().unwrap());
    let stored = stored(&some_files(), &Inventory::new(), &blob, 1).await.unwrap();
    let file = stored.state.files.iter().find(|file| file.name == "000007.sst").unwrap();
    let object = names().full(&file.object);
    let good = blob.get(&object).await.unwrap();
    let mut flipped = good.to_vec();
    flipped[77] ^= 1;
    for bytes in [Some(Bytes::from(flipped)), None] {
        match bytes {
            Some(bytes) => blob.put(&object, bytes).await.unwrap(),
            None => blob.delete(&object).await.unwrap(),
        }
        let to = dir.path().join("part");
        let error = download(&stored.state, &to, (&blob, &names()), |_| {}).await.unwrap_err();
        assert!(error.to_string().contains(&object), "{error}");
        assert_eq!(error.kind(), FaultKind::Refused);
        assert!(!to.exists());
    }
}

#[tokio::test]
async fn files_of_a_later_kind_are_refused() {
    let state = PartState { backend: "slate".to_owned(), rows: 1, files: vec![], counts: Counts::default() };
    let dir = TempDir::new().unwrap();
    let error = download(&state, dir.path(), (&memory(), &names()), |_| {}).await.unwrap_err();
    assert!(matches!(&error, Error::Kind { backend, .. } if backend == "slate"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever files of whatever sizes, around every limit at which they are stored in another way.
    #[test]
    fn any_files_come_back(sizes in prop::collection::vec(prop_oneof![
        0usize..5, Just(SMALL as usize), Just(SMALL as usize + 1), 0usize..400_000,
    ], 0..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let files: Files =
            sizes.iter().enumerate().map(|(n, &size)| (format!("{n:06}.sst"), vec![n as u8; size])).collect();
        runtime.block_on(async {
            let (blob, dir) = (memory(), TempDir::new().unwrap());
            let stored = stored(&files, &Inventory::new(), &blob, 1).await.unwrap();
            download(&stored.state, dir.path(), (&blob, &names()), |_| {}).await.unwrap();
            assert!(read(dir.path()) == files);
        });
    }
}
