//! Tests of the file sink's promises.

use std::fs;

use tempfile::TempDir;
use wasmill_core::id::Parallelism;
use wasmill_core::time::Timestamp;

use super::*;
use crate::config::sink::Sink;

struct Folder {
    dir: TempDir,
}

impl Folder {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn factory(&self, uid: &str, settings: &str) -> FileSinkFactory {
        let config = format!("connector = \"file\"\ninput = \"a\"\npath = \"out\"\n{settings}");
        let Sink::File(config) = toml::from_str(&config).unwrap() else { panic!("a file") };
        FileSinkFactory::new(&config, &OperatorUid::new(uid).unwrap(), self.dir.path()).unwrap()
    }

    /// The visible files by name, with their content.
    fn visible(&self) -> Vec<(String, String)> {
        let mut files = Vec::new();
        for entry in fs::read_dir(self.dir.path().join("out")).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                let content = fs::read_to_string(entry.path()).unwrap();
                files.push((entry.file_name().into_string().unwrap(), content));
            }
        }
        files.sort();
        files
    }

    fn hidden(&self, uid: &str) -> Vec<std::path::PathBuf> {
        fs::read_dir(self.dir.path().join("out/.pending").join(uid))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect()
    }
}

fn place(index: u32) -> Place {
    Place { index: SubtaskIndex(index), parallelism: Parallelism::new(4).unwrap() }
}

fn batch(numbers: &[u8]) -> RecordBatch {
    let mut batch = RecordBatch::default();
    for number in numbers {
        batch.push(Some(b"k"), Timestamp::MIN, Some(&[*number]));
    }
    batch
}

fn file(name: &str, content: &str) -> (String, String) {
    (name.to_owned(), content.to_owned())
}

#[test]
fn a_part_is_visible_whole_once_its_checkpoint_is_decided() {
    let folder = Folder::new();
    let factory = folder.factory("totals", "");
    factory.recover(&[]).unwrap();
    let mut writer = factory.open(place(2)).unwrap();
    writer.write(&batch(&[1, 2])).unwrap();
    assert_eq!(folder.visible(), []);
    let pending = writer.prepare(CheckpointId(7)).unwrap();
    assert_eq!(pending.len(), 1);
    writer.write(&batch(&[3])).unwrap();
    assert_eq!(folder.visible(), []);
    for _ in 0..2 {
        writer.commit(CheckpointId(7)).unwrap();
        assert_eq!(folder.visible(), [file("totals-0000000007-0002.jsonl", "1\n2\n")]);
    }
    let mut other = factory.open(place(0)).unwrap();
    other.write(&batch(&[9])).unwrap();
    other.prepare(CheckpointId(10)).unwrap();
    other.commit(CheckpointId(10)).unwrap();
    writer.prepare(CheckpointId(10)).unwrap();
    writer.commit(CheckpointId(10)).unwrap();
    assert_eq!(
        folder.visible()[1..],
        [file("totals-0000000010-0000.jsonl", "9\n"), file("totals-0000000010-0002.jsonl", "3\n")]
    );
}

#[test]
fn what_an_aborted_checkpoint_prepared_is_carried_to_the_next() {
    let folder = Folder::new();
    let mut writer = folder.factory("s", "").open(place(0)).unwrap();
    writer.write(&batch(&[1])).unwrap();
    let first = writer.prepare(CheckpointId(1)).unwrap();
    writer.write(&batch(&[2])).unwrap();
    let second = writer.prepare(CheckpointId(2)).unwrap();
    assert_eq!(second.len(), 2);
    assert_eq!(second[0], first[0]);
    assert_eq!(writer.prepare(CheckpointId(3)).unwrap(), second);
    writer.commit(CheckpointId(3)).unwrap();
    assert_eq!(folder.visible(), [file("s-0000000001-0000.jsonl", "1\n"), file("s-0000000002-0000.jsonl", "2\n")]);
    assert_eq!(writer.prepare(CheckpointId(4)).unwrap(), Vec::<PendingCommit>::new());
}

#[test]
fn no_empty_part_is_written() {
    let folder = Folder::new();
    let mut writer = folder.factory("s", "").open(place(0)).unwrap();
    writer.write(&RecordBatch::default()).unwrap();
    assert_eq!(writer.prepare(CheckpointId(1)).unwrap(), Vec::<PendingCommit>::new());
    writer.commit(CheckpointId(1)).unwrap();
    assert_eq!(folder.visible(), []);
    assert!(folder.hidden("s").is_empty());
}

#[test]
fn recovery_commits_what_was_decided_and_removes_the_rest() {
    let folder = Folder::new();
    let factory = folder.factory("s", "");
    let mut writer = factory.open(place(0)).unwrap();
    writer.write(&batch(&[1])).unwrap();
    let pending = writer.prepare(CheckpointId(1)).unwrap();
    writer.write(&batch(&[2])).unwrap();
    writer.prepare(CheckpointId(2)).unwrap();
    writer.write(&batch(&[3])).unwrap();
    // Killed here: nothing is told to the writer, the part it wrote at stays.
    std::mem::forget(writer);
    assert_eq!(folder.hidden("s").len(), 3);
    for _ in 0..2 {
        factory.recover(&pending).unwrap();
        assert_eq!(folder.visible(), [file("s-0000000001-0000.jsonl", "1\n")]);
        assert!(folder.hidden("s").is_empty());
    }
}

#[test]
fn a_prepared_part_that_is_lost_or_changed_stops_the_job() {
    let folder = Folder::new();
    let factory = folder.factory("s", "");
    let mut writer = factory.open(place(0)).unwrap();
    writer.write(&batch(&[1])).unwrap();
    let pending = writer.prepare(CheckpointId(1)).unwrap();
    let hidden = folder.hidden("s").remove(0);
    fs::write(&hidden, "2\n").unwrap();
    let changed = factory.recover(&pending).unwrap_err();
    assert_eq!(changed.kind, FaultKind::Refused);
    assert!(changed.message.contains(hidden.to_str().unwrap()), "{changed}");
    assert_eq!(folder.visible(), []);
    fs::remove_file(&hidden).unwrap();
    let lost = factory.recover(&pending).unwrap_err();
    assert_eq!(lost.kind, FaultKind::Refused);
    assert!(lost.message.contains("s-0000000001-0000.jsonl` was prepared and is lost"), "{lost}");
    assert_eq!(factory.recover(&[serde_json::json!(1)]).unwrap_err().kind, FaultKind::Refused);
    // Put back by hand where it belongs: all is well.
    fs::write(folder.dir.path().join("out/s-0000000001-0000.jsonl"), "1\n").unwrap();
    factory.recover(&pending).unwrap();
}

#[test]
fn sinks_of_one_folder_do_not_disturb_each_other() {
    let folder = Folder::new();
    let (one, two) = (folder.factory("a", ""), folder.factory("a-b", ""));
    let mut writer = two.open(place(0)).unwrap();
    writer.write(&batch(&[1])).unwrap();
    writer.prepare(CheckpointId(1)).unwrap();
    one.recover(&[]).unwrap();
    writer.commit(CheckpointId(1)).unwrap();
    assert_eq!(folder.visible(), [file("a-b-0000000001-0000.jsonl", "1\n")]);
    assert_eq!(one.folders().visible_parts(), 0);
    assert_eq!(two.folders().visible_parts(), 1);
}

#[test]
fn a_name_that_an_earlier_lineage_took_is_left_alone() {
    let folder = Folder::new();
    let factory = folder.factory("s", "");
    for number in [1, 2, 3] {
        let mut writer = factory.open(place(0)).unwrap();
        writer.write(&batch(&[number])).unwrap();
        writer.prepare(CheckpointId(1)).unwrap();
        writer.commit(CheckpointId(1)).unwrap();
    }
    assert_eq!(
        folder.visible(),
        [
            file("s-0000000001-0000-2.jsonl", "2\n"),
            file("s-0000000001-0000-3.jsonl", "3\n"),
            file("s-0000000001-0000.jsonl", "1\n"),
        ]
    );
}

#[test]
fn at_least_once_shows_parts_at_the_barrier() {
    let folder = Folder::new();
    let mut writer = folder.factory("s", "delivery = \"at-least-once\"\nformat = \"raw\"").open(place(0)).unwrap();
    writer.write(&batch(b"xy")).unwrap();
    assert_eq!(writer.prepare(CheckpointId(1)).unwrap(), Vec::<PendingCommit>::new());
    assert_eq!(folder.visible(), [file("s-0000000001-0000.raw", "x\ny\n")]);
}

#[test]
fn parts_longer_than_the_buffer_are_whole_and_readable_by_others() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let mut writer = folder.factory("s", "").open(place(0)).unwrap();
    for _ in 0..300 {
        writer.write(&batch(&[7; 1000])).unwrap();
    }
    let pending = writer.prepare(CheckpointId(1)).unwrap();
    assert_eq!(pending[0]["bytes"], 600_000);
    writer.commit(CheckpointId(1)).unwrap();
    assert_eq!(folder.visible()[0].1, "7\n".repeat(300_000));
    let made = folder.dir.path().join("out/plain");
    fs::write(&made, "").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&folder.dir.path().join("out/s-0000000001-0000.jsonl")), mode(&made));
}

#[test]
fn an_output_that_cannot_be_written_is_an_outside_fault_that_names_it() {
    let folder = Folder::new();
    fs::write(folder.dir.path().join("out"), "a file where the folder should be").unwrap();
    let factory = folder.factory("s", "");
    for fault in [factory.check().unwrap_err(), factory.open(place(0)).err().unwrap()] {
        assert_eq!(fault.kind, FaultKind::External);
        assert!(fault.message.contains("sink `s`") && fault.message.contains("/out"), "{fault}");
    }
}

#[test]
fn a_record_that_is_not_cbor_names_sink_and_key() {
    let folder = Folder::new();
    let mut writer = folder.factory("s", "").open(place(0)).unwrap();
    let fault = writer.write(&batch(&[1, 0xff])).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Guest);
    assert!(fault.message.contains("sink `s`: the record with key `k`"), "{fault}");
}

#[test]
fn checking_a_sink_leaves_nothing_behind() {
    let folder = Folder::new();
    folder.factory("s", "").check().unwrap();
    assert_eq!(fs::read_dir(folder.dir.path()).unwrap().count(), 0);
}

#[test]
fn an_attempt_that_was_overtaken_removes_nothing_of_a_later_one() {
    let folder = Folder::new();
    let job = JobId::new("job").unwrap();
    let [overtaken, later] = [1, 2].map(|attempt| {
        let factory = folder.factory("out", "format = \"raw\"");
        factory.begin(&job, Attempt(attempt));
        factory
    });
    let mut writer = later.open(place(0)).unwrap();
    writer.write(&batch(b"a")).unwrap();
    writer.prepare(CheckpointId(1)).unwrap();
    overtaken.recover(&[]).unwrap();
    assert_eq!(folder.hidden("job/out").len(), 1);
    later.recover(&[]).unwrap();
    assert_eq!(folder.hidden("job/out").len(), 0);
}

#[test]
fn jobs_that_write_to_one_folder_do_not_meet() {
    let folder = Folder::new();
    for name in ["one", "two"] {
        let factory = folder.factory("out", "format = \"raw\"");
        factory.begin(&JobId::new(name).unwrap(), Attempt(1));
        factory.recover(&[]).unwrap();
        let mut writer = factory.open(place(0)).unwrap();
        writer.write(&batch(b"a")).unwrap();
        writer.prepare(CheckpointId(1)).unwrap();
        writer.commit(CheckpointId(1)).unwrap();
    }
    let names: Vec<_> = folder.visible().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names[0].starts_with("one-out-") && names[1].starts_with("two-out-"), "{names:?}");
}
