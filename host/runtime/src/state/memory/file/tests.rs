//! Row files: golden bytes, and that no damage passes.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

type Written = (String, u8, Vec<u8>, Option<Vec<u8>>);

fn owned(family: &str, change: &Change<'_>) -> Written {
    let (tag, first, second) = change.parts();
    (family.to_owned(), tag, first.to_vec(), second.map(<[u8]>::to_vec))
}

fn write(dir: &Path, changes: &[(&str, Change<'_>)]) -> (LocalFile, Vec<u8>) {
    let mut writer = FileWriter::new(dir, 7, "op/0").unwrap();
    for (family, change) in changes {
        writer.append(family, change).unwrap();
    }
    let file = writer.end().unwrap();
    let bytes = std::fs::read(dir.join(&file.name)).unwrap();
    assert_eq!(file.bytes, bytes.len() as u64);
    (file, bytes)
}

fn read_back(bytes: &[u8]) -> Result<(Vec<Written>, FileRead), Error> {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("000007.rows");
    std::fs::write(&path, bytes).unwrap();
    let mut changes = Vec::new();
    let read = read(&path, "op/0", |family, change| {
        changes.push(owned(family, &change));
        Ok(())
    })?;
    Ok((changes, read))
}

fn hex(text: &str) -> Vec<u8> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let digits: Vec<u8> = lines.flat_map(str::bytes).filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

const CHANGES: [(&str, Change<'static>); 5] = [
    ("count", Change::Put(&[0, 3, 1, b'a'], &[0, 1, 9])),
    ("count", Change::Put(&[0, 5, 0], &[0, 1])),
    ("count", Change::Delete(&[0, 3, 1, b'b'])),
    ("visits", Change::DeleteRange(&[0, 4, 1, b'a', 1], &[0, 4, 1, b'a', 2])),
    ("count", Change::Put(&[0, 3, 1, b'c'], &[])),
];

/// The file is never changed: what any version wrote must be readable by every later one.
#[test]
fn a_row_file_equals_the_golden_bytes() {
    let golden = hex(include_str!("../../../../golden/row-file-1.txt"));
    let dir = TempDir::new().unwrap();
    let (file, bytes) = write(dir.path(), &CHANGES);
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(bytes, golden, "{digits}");
    assert_eq!((file.name.as_str(), file.key_groups), ("000007.rows", Some(KeyGroupRange { start: 3, end: 6 })));
    let (changes, read) = read_back(&golden).unwrap();
    assert_eq!(changes, CHANGES.map(|(family, change)| owned(family, &change)));
    assert_eq!((read.bytes, read.key_groups), (golden.len() as u64, KeyGroupRange { start: 3, end: 6 }));
}

#[test]
fn an_empty_row_file_is_one() {
    let dir = TempDir::new().unwrap();
    let (_, bytes) = write(dir.path(), &[]);
    assert_eq!(read_back(&bytes).unwrap().0, []);
}

#[test]
fn damage_anywhere_is_told_with_the_file_and_never_a_panic() {
    let dir = TempDir::new().unwrap();
    let (_, good) = write(dir.path(), &CHANGES);
    for at in 0..good.len() {
        let mut flipped = good.clone();
        flipped[at] ^= 0x40;
        for bad in [&flipped[..], &good[..at], &[&good[..], &[0]].concat()] {
            let error = read_back(bad).err().unwrap();
            assert!(matches!(&error, Error::RowFile { .. }), "{at}: {error}");
            assert!(error.to_string().contains("000007.rows"), "{error}");
        }
    }
}

#[test]
fn row_files_are_read_in_the_order_of_their_numbers() {
    let dir = TempDir::new().unwrap();
    for number in [1_000_000, 2, 999_999] {
        FileWriter::new(dir.path(), number, "op/0").unwrap().end().unwrap();
    }
    std::fs::write(dir.path().join("LOCK"), "").unwrap();
    assert_eq!(names(dir.path(), "op/0").unwrap(), ["000002.rows", "999999.rows", "1000000.rows"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn what_was_written_is_read(
        changes in proptest::collection::vec((0..3usize, 1u8..4, 0..70_000usize, 0..200usize), 0..40),
    ) {
        let families = ["a", "b", "c"];
        let pieces: BTreeMap<usize, Vec<u8>> =
            changes.iter().flat_map(|(_, _, a, b)| [*a, *b]).map(|len| (len, vec![len as u8; len])).collect();
        let changes: Vec<(&str, Change<'_>)> = changes.iter().map(|(family, tag, a, b)| {
            let (first, second) = (&pieces[a][..], &pieces[b][..]);
            let change = match *tag {
                PUT => Change::Put(second, first),
                DELETE => Change::Delete(second),
                _ => Change::DeleteRange(first, second),
            };
            (families[*family], change)
        }).collect();
        let dir = TempDir::new().unwrap();
        let (_, bytes) = write(dir.path(), &changes);
        let expected: Vec<Written> = changes.iter().map(|(family, change)| owned(family, change)).collect();
        prop_assert!(read_back(&bytes).unwrap().0 == expected);
    }

    #[test]
    fn no_bytes_panic_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..60), with_head in any::<bool>()) {
        let head: &[u8] = if with_head { b"wasmrows\x01\0\0\0" } else { b"" };
        prop_assert!(read_back(&[head, &bytes].concat()).is_err());
    }
}
