//! What the store promises, over a folder, memory, and a store that fails.

use std::time::Duration;

use tempfile::TempDir;
use wasmill_core::digest::Digest;
use wasmill_core::fault::FaultKind;

use super::faulty::{Fault, Faulty};
use super::*;

fn folder() -> (TempDir, Blob) {
    let dir = TempDir::new().unwrap();
    let blob = Blob::open("a store/sub", dir.path()).unwrap();
    (dir, blob)
}

/// Runs the promise over a folder and over memory.
async fn on_each(promise: impl AsyncFn(Blob)) {
    let (_dir, blob) = folder();
    promise(blob).await;
    promise(Blob::open("memory:", Path::new("/")).unwrap()).await;
    promise(Blob::of(Faulty::new())).await;
}

fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

#[tokio::test]
async fn objects_are_created_once_replaced_read_listed_and_removed() {
    on_each(async |blob| {
        assert_eq!(blob.find("jobs/a/x").await.unwrap(), None);
        assert!(!blob.exists("jobs/a/x").await.unwrap());
        assert_eq!(blob.put_if_absent("jobs/a/x", bytes("1")).await.unwrap(), Put::Created);
        assert_eq!(blob.put_if_absent("jobs/a/x", bytes("2")).await.unwrap(), Put::Exists);
        assert_eq!(blob.get("jobs/a/x").await.unwrap(), "1");
        blob.put("jobs/a/x", bytes("three")).await.unwrap();
        blob.put("jobs/b/y", bytes("")).await.unwrap();
        assert!(blob.exists("jobs/b/y").await.unwrap());
        assert_eq!(blob.list("jobs/a").await.unwrap(), [Listed { name: "jobs/a/x".to_owned(), bytes: 5 }]);
        assert_eq!(blob.list("jobs").await.unwrap().len(), 2);
        assert_eq!(blob.list("nothing").await.unwrap(), []);
        blob.delete("jobs/a/x").await.unwrap();
        blob.delete("jobs/a/x").await.unwrap();
        assert!(matches!(blob.get("jobs/a/x").await.unwrap_err(), Error::Missing { .. }));
        blob.check_writable().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn files_come_back_as_they_went_whole_or_in_pieces() {
    let dir = TempDir::new().unwrap();
    let (small, large) = (vec![7; 1_000], (0u32..10_000_000).flat_map(u32::to_le_bytes).collect::<Vec<_>>());
    on_each(async |blob| {
        for (name, content) in [("empty", &vec![]), ("small", &small), ("large", &large)] {
            let path = dir.path().join(name);
            std::fs::write(&path, content).unwrap();
            let (sha256, length) = hash_file(&path).await.unwrap();
            assert_eq!((sha256, length), (Digest::of(content), content.len() as u64));
            blob.upload(&path, sha256, length, name).await.unwrap();
            let back = dir.path().join("back");
            blob.download(&Piece { object: name, range: 0..length, sha256 }, &back).await.unwrap();
            assert!(std::fs::read(&back).unwrap() == *content, "{name}");
            let piece = Piece {
                object: name,
                range: length / 3..length / 2,
                sha256: Digest::of(&content[content.len() / 3..content.len() / 2]),
            };
            blob.download(&piece, &back).await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn a_file_that_is_not_what_it_was_is_not_uploaded() {
    let dir = TempDir::new().unwrap();
    let blob = Blob::open("memory:", dir.path()).unwrap();
    for length in [10u64, 20_000_000] {
        let path = dir.path().join("file");
        std::fs::write(&path, vec![1; length as usize]).unwrap();
        let error = blob.upload(&path, Digest::of(b"other"), length, "x").await.unwrap_err();
        assert!(matches!(error, Error::Changed { .. }), "{error}");
        let error = blob.upload(&path, Digest::of(b"other"), length + 1, "x").await.unwrap_err();
        assert!(matches!(error, Error::Changed { .. }), "shorter than it was: {error}");
        assert!(!blob.exists("x").await.unwrap());
    }
    let error = blob.upload(&dir.path().join("none"), Digest::of(b""), 1, "x").await.unwrap_err();
    assert!(matches!(error, Error::Local { .. }), "{error}");
}

#[tokio::test]
async fn c8_a_short_body_is_read_again_and_damage_is_named_and_leaves_nothing() {
    let dir = TempDir::new().unwrap();
    let store = Faulty::new();
    let blob = Blob::of(store.clone());
    let content = vec![9; 3_000_000];
    blob.put("files/a", Bytes::from(content.clone())).await.unwrap();
    let to = dir.path().join("a");
    let piece = Piece { object: "files/a", range: 0..3_000_000, sha256: Digest::of(&content) };
    store.on_gets([Fault::Cut, Fault::Cut, Fault::Before, Fault::Flip]);
    blob.download(&piece, &to).await.unwrap();
    assert!(std::fs::read(&to).unwrap() == content);
    store.on_gets([Fault::Flip; 3]);
    let error = blob.download(&piece, &to).await.unwrap_err();
    assert!(matches!(&error, Error::Damaged { object, .. } if object == "files/a"), "{error}");
    assert_eq!(error.kind(), FaultKind::Refused);
    assert!(!to.exists(), "nothing damaged stays");
    let missing = Piece { object: "files/b", ..piece };
    assert!(matches!(blob.download(&missing, &to).await.unwrap_err(), Error::Missing { .. }));
    store.on_gets([Fault::Cut]);
    assert_eq!(blob.get("files/a").await.unwrap().len(), 3_000_000, "also where no checksum is known");
}

#[tokio::test]
async fn c5_an_upload_that_fails_in_a_part_leaves_no_object_and_is_taken_back_as_soon_as_the_store_lets_it() {
    let dir = TempDir::new().unwrap();
    let store = Faulty::new();
    let blob = Blob::of(store.clone());
    let (path, content) = (dir.path().join("file"), vec![5; 70 << 20]);
    std::fs::write(&path, &content).unwrap();
    let sha256 = Digest::of(&content);
    let length = content.len() as u64;
    store.on_part(Some(4));
    for tries in 1..=3 {
        let error = blob.upload(&path, sha256, length, "files/a").await.unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error}");
        assert!(!blob.exists("files/a").await.unwrap(), "nor a short one");
        assert_eq!(store.open_uploads(), tries, "the store did not take it back");
    }
    store.on_part(None);
    blob.take_back_uploads().await;
    assert_eq!(store.open_uploads(), 0);
    // One that nobody waits for any more is taken back too.
    let dropped = tokio::time::timeout(Duration::ZERO, blob.upload(&path, sha256, length, "files/a")).await;
    assert!(dropped.is_err());
    blob.take_back_uploads().await;
    assert_eq!(store.open_uploads(), 0);
    blob.upload(&path, sha256, length, "files/a").await.unwrap();
    assert_eq!((blob.digest("files/a", length).await.unwrap(), store.open_uploads()), (Some((sha256, length)), 0));
}

#[tokio::test]
async fn a_lost_reply_is_answered_as_exists() {
    let store = Faulty::new();
    let blob = Blob::of(store.clone());
    store.on_puts([Fault::Before, Fault::After]);
    assert_eq!(blob.put_if_absent("x", bytes("mine")).await.unwrap(), Put::Exists);
    assert_eq!(blob.get("x").await.unwrap(), "mine");
    store.on_puts([Fault::After, Fault::Before]);
    blob.put("x", bytes("again")).await.unwrap();
    assert_eq!(blob.get("x").await.unwrap(), "again");
}

#[tokio::test]
async fn a_store_that_stays_down_is_given_up_at_the_deadline_saying_how_often_it_was_tried() {
    let store = Faulty::new();
    let blob = Blob::of(store.clone()).with_retry(Retry { deadline: Duration::ZERO, ..Retry::default() });
    store.on_puts([Fault::Before]);
    let error = blob.put("x", bytes("")).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { tries: 1, .. }), "{error}");
    assert!(error.to_string().contains("503 slow down") && error.to_string().contains("memory:test"), "{error}");
    assert_eq!(error.kind(), FaultKind::External);
}

#[tokio::test]
async fn a_store_that_cannot_be_written_says_so_at_once() {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let error = Blob::open("file", dir.path()).unwrap_err();
    assert!(error.to_string().contains("should be a folder"), "{error}");
    let error = Blob::open("file/below", dir.path()).unwrap().check_writable().await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    assert_eq!(error.kind(), FaultKind::External);
}

#[test]
fn a_location_is_a_path_or_a_known_url() {
    let open = |location: &str| Blob::open(location, Path::new("/base"));
    for (location, prefix) in [
        ("store", "base/store"),
        ("/abs/../x y", "x y"),
        ("./a:b", "base/a:b"),
        ("file:///tmp/a%20b", "tmp/a b"),
        ("memory:", ""),
        ("memory://name", ""),
    ] {
        assert_eq!(open(location).unwrap().prefix.as_ref(), prefix, "{location}");
    }
    for (location, reason) in [
        ("", "it is empty"),
        ("s3://key:secret@bucket/x", "no credentials"),
        ("az://container/x?sig=secret", "no query"),
        ("ftp://host", "ftp: is no known kind"),
        ("s3:", "s3"),
        ("file://host/x", "file:///path"),
    ] {
        let error = open(location).unwrap_err();
        assert!(error.to_string().contains(reason), "{location}: {error}");
        assert!(!error.to_string().contains("secret"), "{location}: {error}");
    }
}

#[test]
fn the_stores_of_three_clouds_are_opened_by_url_and_a_folder_in_the_bucket() {
    for location in ["s3://bucket/a/b", "s3a://bucket/a/b", "gs://bucket/a/b"] {
        let blob = Blob::open(location, Path::new("/base")).unwrap();
        assert_eq!((blob.prefix.as_ref(), blob.location()), ("a/b", location));
    }
    // Azure's address has the account in it, which comes from the environment or the URL.
    let blob = Blob::open("abfss://container@account.dfs.core.windows.net/a/b", Path::new("/base")).unwrap();
    assert_eq!(blob.prefix.as_ref(), "a/b");
    let error = Blob::open("az://container/a/b", Path::new("/base")).unwrap_err();
    assert!(error.to_string().to_lowercase().contains("account"), "{error}");
}

#[tokio::test]
async fn stores_in_memory_are_shared_by_name() {
    let open = |location| Blob::open(location, Path::new("/")).unwrap();
    open("memory://shared-by-name").put("x", bytes("1")).await.unwrap();
    assert!(open("memory://shared-by-name").exists("x").await.unwrap());
    assert!(!open("memory://other-name").exists("x").await.unwrap());
    open("memory:").put("x", bytes("1")).await.unwrap();
    assert!(!open("memory:").exists("x").await.unwrap());
}
