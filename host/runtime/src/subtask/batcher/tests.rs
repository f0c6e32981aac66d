//! What a call gets of the records gathered, and of pieces of them. Owns no rule.

use super::*;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn records(keys: &[Option<&str>]) -> RecordBatch {
    let mut batch = RecordBatch::default();
    for (index, key) in keys.iter().enumerate() {
        batch.push(key.map(str::as_bytes), at(index as i64), (index != 1).then_some(b"v"));
    }
    batch
}

#[test]
fn a_key_crosses_once_a_batch_and_an_absent_one_is_not_an_empty_one() {
    let from = records(&[Some("a"), None, Some(""), Some("a"), None]);
    let mut batcher = Batcher::new(8, 1 << 20);
    for round in 0..3 {
        for record in 0..from.len() {
            batcher.push(&from, record);
        }
        assert_eq!(batcher.slots, [0, 1, 2, 0, 1], "round {round}");
        assert_eq!(batcher.absent_key(), Some(1));
        batcher.finish(false);
        let batch = batcher.batch();
        assert_eq!(packed::u32s(&batch.absent_values).collect::<Vec<_>>(), [1]);
        assert_eq!(packed::u32s(&batch.keys.ends).collect::<Vec<_>>(), [1, 1, 1]);
        let keys: Vec<_> = batcher.take().records.keys.iter().map(|key| key.map(<[u8]>::to_vec)).collect();
        assert_eq!(keys[1..], [None, Some(vec![]), Some(b"a".to_vec()), None]);
        batcher.clear();
    }
}

#[test]
fn a_record_keeps_its_place_through_batches_of_many_origins_and_through_pieces() {
    let mut batcher = Batcher::new(8, 1 << 20);
    for (split, positions) in [(Some("x"), [3, 4]), (None, [0, 0]), (Some("y"), [7, 9])] {
        let mut from = records(&[Some("a"), Some("b")]);
        if let Some(split) = split {
            from.origin = Some(Arc::new(Origin { source: "s".to_owned(), split: split.to_owned() }));
            from.positions = positions.to_vec();
        }
        (0..2).for_each(|record| batcher.push(&from, record));
    }
    let shown = |place: Option<Place>| place.map_or_else(|| "none".to_owned(), |place| place.to_string());
    let expected = ["x:3", "x:4", "none", "none", "y:7", "y:9"];
    let gathered = batcher.take();
    for (record, expected) in expected.iter().enumerate() {
        assert!(shown(gathered.record(record).place).starts_with(expected));
    }
    batcher.load(&gathered, 1..6, &[false, false, false, true]);
    for (record, expected) in ["x:4", "none", "y:7", "y:9"].iter().enumerate() {
        assert!(shown(batcher.place(record)).starts_with(expected), "{record}");
    }
}

#[test]
fn a_batch_carries_the_watermarks_as_runs() {
    let from = records(&[Some("a"), Some("b"), Some("c")]);
    let mut batcher = Batcher::new(8, 1 << 20);
    batcher.advance(at(1));
    batcher.push(&from, 0);
    batcher.advance(at(5));
    batcher.advance(at(6));
    batcher.push(&from, 1);
    batcher.push(&from, 2);
    let first = batcher.finish(false);
    let runs: Vec<_> = batcher.batch().watermarks.iter().map(|run| (run.until, run.watermark)).collect();
    assert_eq!((runs, first), (vec![(1, 1), (3, 6)], at(1)));
    batcher.clear();
    batcher.push(&from, 0);
    let first = batcher.finish(false);
    assert_eq!((batcher.batch().watermarks[0].watermark, first), (6, at(6)));
}

#[test]
fn the_pieces_of_a_batch_have_its_records_and_watermarks_once() {
    let from = records(&[Some("a"), Some("b"), Some("c"), Some("d")]);
    let mut batcher = Batcher::new(8, 1 << 20);
    for record in 0..from.len() {
        batcher.advance(at(record as i64 * 10));
        batcher.push(&from, record);
    }
    batcher.advance(at(40));
    let gathered = batcher.take();
    let mut piece = |range: Range<usize>, left_out: &[bool]| {
        batcher.load(&gathered, range, left_out);
        let first = if batcher.is_empty() { None } else { Some(batcher.finish(false).as_millis()) };
        let advances: Vec<_> = batcher.advances().iter().map(|(after, at)| (*after, at.as_millis())).collect();
        (first, batcher.times.iter().map(|time| time.as_millis()).collect::<Vec<_>>(), advances)
    };
    assert_eq!(piece(0..2, &[]), (Some(0), vec![0, 1], vec![(0, 0), (1, 10)]));
    assert_eq!(piece(2..4, &[]), (Some(20), vec![2, 3], vec![(0, 20), (1, 30), (2, 40)]));
    assert_eq!(piece(2..4, &[false, false, true]), (Some(30), vec![3], vec![(0, 20), (0, 30), (1, 40)]));
    assert_eq!(piece(3..4, &[true; 4]), (None, vec![], vec![(0, 30), (0, 40)]));
    batcher.clear();
    batcher.push(&from, 0);
    assert_eq!(batcher.finish(false), at(40));
}

#[test]
fn headers_keep_to_their_records_in_pieces_too_and_cross_where_the_input_carries_them() {
    let mut from = records(&[Some("a"), Some("b"), Some("a")]);
    let header = |record, name: &[u8]| Header { record, name: name.to_vec(), value: b"v".to_vec() };
    from.headers = vec![header(0, b"x"), header(0, b"y"), header(2, b"z")];
    let mut batcher = Batcher::new(8, 1 << 20);
    (0..3).for_each(|record| batcher.push(&from, record));
    let gathered = batcher.take();
    assert_eq!(gathered.record(0).headers, from.headers[..2]);
    let crossed = |batcher: &mut Batcher, carries| {
        batcher.finish(carries);
        let headers = batcher.batch().headers.as_ref()?;
        let names = (0..).map_while(|index| contract::value_at(&headers.names, index));
        Some(packed::u32s(&headers.records).zip(names.map(<[u8]>::to_vec)).collect::<Vec<_>>())
    };
    assert_eq!(crossed(&mut batcher, false), None);
    batcher.load(&gathered, 0..3, &[]);
    assert_eq!(crossed(&mut batcher, true), Some(vec![(0, b"x".to_vec()), (0, b"y".to_vec()), (2, b"z".to_vec())]));
    batcher.load(&gathered, 1..3, &[false, true]);
    assert_eq!(crossed(&mut batcher, true), Some(vec![(0, b"z".to_vec())]));
    let full = Batcher::new(8, 5);
    let [mut without, mut with] = [Batcher::new(8, 5), full];
    from.headers.truncate(0);
    without.push(&from, 0);
    from.headers = vec![header(0, b"name")];
    with.push(&from, 0);
    assert!(!without.is_full() && with.is_full(), "headers count as bytes");
}
