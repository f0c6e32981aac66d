//! Tests of the file source's promises.

use std::fs;
use std::io::Write;

use proptest::prelude::*;
use tempfile::TempDir;
use wasmill_core::id::{Parallelism, SubtaskIndex};

use super::*;
use crate::clock::ManualClock;
use crate::config::source::Source;
use crate::format::encode::{Encoder, Settings as SinkSettings};

const CSV: &str = "id,name,n\n1,a,10\n\n2,\"b,\"\"x\"\"\nline\",NA\r\n3,c,-5";

struct Folder {
    dir: TempDir,
}

impl Folder {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn write(&self, name: &str, content: &[u8]) {
        let bytes = match name.rsplit('.').next() {
            Some("gz") => gzip(content),
            Some("zst") => zstd::encode_all(content, 1).unwrap(),
            _ => content.to_vec(),
        };
        fs::write(self.dir.path().join(name), bytes).unwrap();
    }

    fn append(&self, name: &str, content: &[u8]) {
        let path = self.dir.path().join(name);
        fs::OpenOptions::new().append(true).create(true).open(path).unwrap().write_all(content).unwrap();
    }

    fn factory(&self, settings: &str) -> FileSourceFactory {
        self.try_factory(settings).unwrap()
    }

    fn try_factory(&self, settings: &str) -> Result<FileSourceFactory, Error> {
        let config = format!("connector = \"file\"\n{settings}");
        let Source::File(config) = toml::from_str(&config).unwrap() else { panic!("a file") };
        FileSourceFactory::new(config, self.dir.path(), Arc::new(ManualClock::default()))
    }

    fn open(&self, settings: &str, restored: &[SplitPosition]) -> Result<Box<dyn SourceReader>, Fault> {
        self.factory(settings).open(place(0, 1), restored)
    }

    fn read(&self, settings: &str) -> Vec<String> {
        read_all(&mut *self.open(settings, &[]).unwrap()).unwrap()
    }

    fn read_raw(&self, settings: &str) -> Vec<String> {
        raw(&read_batch(&mut *self.open(settings, &[]).unwrap()).unwrap())
    }

    fn fault(&self, settings: &str) -> Fault {
        let opened = self.open(settings, &[]);
        match opened {
            Err(fault) => fault,
            Ok(mut reader) => read_all(&mut *reader).unwrap_err(),
        }
    }
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn place(index: u32, parallelism: u32) -> Place {
    Place { index: SubtaskIndex(index), parallelism: Parallelism::new(parallelism).unwrap() }
}

fn json(value: &[u8]) -> String {
    let settings = SinkSettings {
        format: crate::config::sink::SinkFormat::Jsonl,
        fields: None,
        header: true,
        delimiter: ',',
        separator: "\n".to_owned(),
    };
    let mut out = Vec::new();
    Encoder::new(&settings).unwrap().encode(Some(value), &mut out).unwrap();
    String::from_utf8(out).unwrap().trim_end().to_owned()
}

fn raw(batch: &RecordBatch) -> Vec<String> {
    batch.values.iter().map(|value| String::from_utf8_lossy(value.unwrap()).into_owned()).collect()
}

/// Until nothing comes, at most five records a read.
fn read_batch(reader: &mut dyn SourceReader) -> Result<RecordBatch, Fault> {
    let mut batch = RecordBatch::default();
    loop {
        match reader.read(&mut batch, 5, Timestamp::from_millis(77))? {
            ReadOutcome::Wait(wait) if wait > Duration::ZERO => return Ok(batch),
            ReadOutcome::End => return Ok(batch),
            _ => {}
        }
    }
}

fn read_all(reader: &mut dyn SourceReader) -> Result<Vec<String>, Fault> {
    let batch = read_batch(reader)?;
    Ok(batch.values.iter().map(|value| json(value.unwrap())).collect())
}

#[test]
fn csv_becomes_maps_with_types_and_nulls() {
    let folder = Folder::new();
    folder.write("a.csv", CSV.as_bytes());
    let read =
        folder.read("path = \"a.csv\"\nformat = \"csv\"\ntypes = { id = \"i64\", n = \"f64\" }\nnull = [\"NA\"]");
    // CBOR's order of keys: n, id, name (by length first).
    assert_eq!(
        read,
        [
            r#"{"n":10.0,"id":1,"name":"a"}"#,
            r#"{"n":null,"id":2,"name":"b,\"x\"\nline"}"#,
            r#"{"n":-5.0,"id":3,"name":"c"}"#
        ]
    );
}

#[test]
fn declared_fields_are_kept_as_map_or_array() {
    let folder = Folder::new();
    folder.write("a.csv", CSV.as_bytes());
    folder.write("a.json", b"{\"n\": 1, \"x\": {\"b\": [1.5, null], \"a\": true}, \"id\": \"7\", \"y\": 0}\n");
    let csv = "path = \"a.csv\"\nformat = \"csv\"\nfields = [\"name\", \"id\"]\n";
    assert_eq!(folder.read(csv)[0], r#"{"id":"1","name":"a"}"#);
    assert_eq!(folder.read(&format!("{csv}record = \"array\""))[0], r#"["a","1"]"#);
    let json = "path = \"a.json\"\nformat = \"json\"\nfields = [\"x\", \"id\"]\ntypes = { id = \"i64\" }\n";
    assert_eq!(folder.read(json), [r#"{"x":{"a":true,"b":[1.5,null]},"id":7}"#]);
    assert_eq!(folder.read(&format!("{json}record = \"array\"")), [r#"[{"a":true,"b":[1.5,null]},7]"#]);
}

#[test]
fn a_flight_is_these_bytes() {
    let folder = Folder::new();
    folder.write("f.csv", b"year,tailnum,distance,arr_delay,time_hour\n2013,N14228,1400,NA,2013-01-01 05:00:00\n");
    let mut reader = folder
        .open(
            "path = \"f.csv\"\nformat = \"csv\"\ntypes = { distance = \"i64\", arr_delay = \"i64\" }\nnull = [\"NA\", \"\"]\n\
             fields = [\"tailnum\", \"distance\", \"arr_delay\", \"time_hour\"]\n\
             time = { field = \"time_hour\", format = \"%Y-%m-%d %H:%M:%S\", zone = \"UTC\" }",
            &[],
        )
        .unwrap();
    let batch = read_batch(&mut *reader).unwrap();
    let hex: String = batch.values.get(0).unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
    let golden = [
        "a4",
        "677461696c6e756d664e3134323238", // "tailnum": "N14228"
        "6864697374616e6365190578",       // "distance": 1400
        "696172725f64656c6179f6",         // "arr_delay": null
        "6974696d655f686f757273323031332d30312d30312030353a30303a3030", // "time_hour": "2013-01-01 05:00:00"
    ];
    assert_eq!(hex, golden.concat());
    assert_eq!(batch.times, [Timestamp::from_millis(1_357_016_400_000)]);
    assert_eq!(batch.keys.get(0), None);
}

#[test]
fn event_time_comes_from_a_field_that_need_not_be_kept() {
    let folder = Folder::new();
    folder.write("t.json", b"{\"a\":1,\"t\":1.5}\n{\"t\":-2,\"a\":2}\n{\"a\":3,\"t\":\"4\"}\n");
    folder.write("t.csv", b"a,t\n1,2\n");
    let times = |settings: &str| read_batch(&mut *folder.open(settings, &[]).unwrap()).unwrap().times;
    let at = |millis: &[i64]| millis.iter().map(|&millis| Timestamp::from_millis(millis)).collect::<Vec<_>>();
    let time = "time = { field = \"t\", format = \"unix-s\" }";
    let json = format!("path = \"t.json\"\nformat = \"json\"\n{time}\n");
    assert_eq!(times(&json), at(&[1500, -2000, 4000]));
    assert_eq!(times(&format!("{json}fields = [\"a\"]")), at(&[1500, -2000, 4000]));
    assert_eq!(times(&format!("path = \"t.csv\"\nformat = \"csv\"\nfields = [\"a\"]\n{time}")), at(&[2000]));
    assert_eq!(times("path = \"t.csv\"\nformat = \"csv\""), at(&[77]));
}

#[test]
fn what_cannot_be_decoded_names_file_line_and_field() {
    let folder = Folder::new();
    let cases: [(&str, &[u8], &str, &str); 14] = [
        ("a.csv", b"a,b\n1,2\n3\n", "", "a.csv:3: the record has 1 columns, 2 were expected"),
        (
            "b.csv",
            b"a,b\n\"x\ny\",2\nz,q\n",
            "types = { b = \"i64\" }",
            "b.csv:4: the field `b` is `q`, which is not a whole number",
        ),
        ("c.csv", b"a\n\xff\n", "", "c.csv:2: the field `a` is not UTF-8 text"),
        ("d.csv", b"a,b\n1,2\n", "fields = [\"c\"]", "d.csv:1: there is no column `c` (did you mean `a`?)"),
        ("e.csv", b"a,a\n1,2\n", "", "e.csv:1: two columns are named `a`"),
        (
            "f.csv",
            b"a\nNA\n",
            "null = [\"NA\"]\ntime = { field = \"a\", format = \"rfc3339\" }",
            "f.csv:2: the time field `a` is `NA`",
        ),
        ("a.json", b"{\"a\":1}\n\n{\"b\":1}\n", "fields = [\"a\"]", "a.json:3: the field `a` is missing"),
        ("b.json", b"{\"a\":1,\"a\":2}\n", "", "b.json:1: the field `a` is there twice"),
        ("c.json", b"{\"a\":1,\"a\":2}\n", "fields = [\"a\"]", "c.json:1: the field `a` is there twice"),
        ("d.json", b"[1]\n", "", "d.json:1: not a JSON object: invalid type: sequence, expected an object"),
        ("e.json", b"{\"a\":1} x\n", "", "e.json:1: not a JSON object: trailing characters (column 9)"),
        (
            "f.json",
            b"{\"a\":1.5}\n",
            "types = { a = \"i64\" }",
            "f.json:1: the field `a` is `1.5`, which is not a whole number",
        ),
        (
            "g.json",
            b"{\"b\":1}\n",
            "time = { field = \"t\", format = \"unix-ms\" }",
            "g.json:1: the field `t` is missing",
        ),
        (
            "h.json",
            b"{\"t\":null}\n",
            "time = { field = \"t\", format = \"unix-ms\" }",
            "h.json:1: the time field `t` is null",
        ),
    ];
    for (name, content, settings, message) in cases {
        folder.write(name, content);
        let format = name.rsplit('.').next().unwrap();
        let fault = folder.fault(&format!("path = \"{name}\"\nformat = \"{format}\"\n{settings}"));
        assert_eq!(fault.kind, FaultKind::User);
        assert!(fault.message.contains(message), "{fault}\nshould contain\n{message}");
    }
}

#[test]
fn undecodable_records_are_dropped_and_counted_where_the_pipeline_says_so() {
    let folder = Folder::new();
    folder.write("a.json", b"{\"a\":1}\nnonsense\n{\"a\":\"\xff\"}\n{\"b\":1}\n{\"a\":2}");
    let settings = "path = \"a.json\"\nformat = \"json\"\nfields = [\"a\"]\non-undecodable = \"drop\"";
    let mut reader = folder.open(settings, &[]).unwrap();
    assert_eq!(read_all(&mut *reader).unwrap(), [r#"{"a":1}"#, r#"{"a":2}"#]);
    assert_eq!(reader.counts().undecodable, 3);
    assert_eq!(reader.counts().bytes, 42);
}

#[test]
fn undecodable_records_are_set_aside_with_their_line_where_the_pipeline_says_so() {
    let folder = Folder::new();
    folder.write("a.json", b"{\"a\":1}\nnonsense\n{\"a\":2}\n{\"a\":\"long long long\"}\n{\"a\":3}");
    let settings = "path = \"a.json\"\nformat = \"json\"\non-undecodable = \"dead-letter\"\nmax-record = \"12B\"";
    let mut reader = folder.open(settings, &[]).unwrap();
    let batch = read_batch(&mut *reader).unwrap();
    assert_eq!((batch.len(), &batch.positions[..]), (3, &[1, 3, 5][..]));
    let found = reader.take_undecodable();
    let shown: Vec<_> = found.iter().map(|record| (record.position, record.bytes.as_deref())).collect();
    assert_eq!(shown, [(2, Some(&b"nonsense"[..])), (4, None)]);
    assert!(found[1].reason.contains("max-record") && found[0].split == "a.json");
    assert_eq!((reader.take_undecodable(), reader.counts().undecodable), (Vec::new(), 0));
}

#[test]
fn lines_end_with_or_without_carriage_return_and_at_the_end_of_the_file() {
    let folder = Folder::new();
    folder.write("a.txt", b"\xef\xbb\xbfone\r\n\n\xff\ntwo");
    let mut reader = folder.open("path = \"a.txt\"\nformat = \"raw\"", &[]).unwrap();
    let batch = read_batch(&mut *reader).unwrap();
    let lines: Vec<&[u8]> = batch.values.iter().map(Option::unwrap).collect();
    assert_eq!(lines, [&b"one"[..], b"", b"\xff", b"two"]);
    folder.write("b.csv", b"\xef\xbb\xbfa,b\r\n1,\"2\"\r\n\r\n\"3\",4\r\n");
    let csv = "path = \"b.csv\"\nformat = \"csv\"";
    assert_eq!(folder.read(csv), [r#"{"a":"1","b":"2"}"#, r#"{"a":"3","b":"4"}"#]);
    folder.write("c.csv", b"a\tb\rx\ty\r\r\"z\"\t1\r");
    let csv = "path = \"c.csv\"\nformat = \"csv\"\ndelimiter = \"\\t\"";
    assert_eq!(folder.read(csv), [r#"{"a":"x","b":"y"}"#, r#"{"a":"z","b":"1"}"#]);
    folder.write("d.csv", b"1;2");
    let csv = "path = \"d.csv\"\nformat = \"csv\"\ndelimiter = \";\"\nheader = false\ncolumns = [\"x\", \"y\"]";
    assert_eq!(folder.read(csv), [r#"{"x":"1","y":"2"}"#]);
    folder.write("e.csv", b"");
    assert_eq!(folder.read("path = \"e.csv\"\nformat = \"csv\""), Vec::<String>::new());
}

#[test]
fn a_line_past_the_limit_is_undecodable_and_the_next_is_read() {
    let folder = Folder::new();
    let long = "x".repeat(1_500_000);
    folder.write("a.txt", format!("one\n{long}\ntwo\n{long}").as_bytes());
    folder.write("a.csv", format!("a,b\n1,2\n\"{long},3\n4,5\n").as_bytes());
    let limit = "max-record = \"1MB\"\non-undecodable = \"drop\"";
    let mut reader = folder.open(&format!("path = \"a.txt\"\nformat = \"raw\"\n{limit}"), &[]).unwrap();
    assert_eq!(raw(&read_batch(&mut *reader).unwrap()), ["one", "two"]);
    assert_eq!(reader.counts().undecodable, 2);
    let position = serde_json::json!({"offset": 3_000_009, "line": 4, "ended": true, "replayable": true});
    assert_eq!(reader.positions()[0].position, position);
    // The same where the buffer holds more than the limit at once.
    folder.write("b.txt", b"123456789\n1234567890\n12345678901\n1");
    let short = folder.read_raw("path = \"b.txt\"\nformat = \"raw\"\nmax-record = \"10B\"\non-undecodable = \"drop\"");
    assert_eq!(short, ["123456789", "1234567890", "1"]);
    // A quote that is never closed costs its line, not the file.
    assert_eq!(folder.read(&format!("path = \"a.csv\"\nformat = \"csv\"\n{limit}")).len(), 2);
    let fault = folder.fault("path = \"a.txt\"\nformat = \"raw\"\nmax-record = \"1MB\"");
    assert!(fault.message.contains("a.txt:2: the record is longer than 1000000B"), "{fault}");
}

#[test]
fn files_are_read_in_order_of_name_and_dealt_out_to_subtasks() {
    let folder = Folder::new();
    for name in ["c.txt", "a.txt.gz", "b.txt.zst", "d.txt", ".hidden.txt"] {
        folder.write(name, format!("{name} 1\n{name} 2\n").as_bytes());
    }
    folder.append("a.txt.gz", &gzip(b"a.txt.gz 3\n"));
    let factory = folder.factory("path = \"*.txt*\"\nformat = \"raw\"");
    factory.check().unwrap();
    assert_eq!(factory.splits(), Some(4));
    let mut reader = factory.open(place(0, 1), &[]).unwrap();
    assert_eq!((reader.open_splits(), reader.split_name(0)), (1, "a.txt.gz"));
    let all = raw(&read_batch(&mut *reader).unwrap());
    assert_eq!(all[..4], ["a.txt.gz 1", "a.txt.gz 2", "a.txt.gz 3", "b.txt.zst 1"]);
    assert_eq!(all.len(), 9);
    assert!(reader.counts().bytes > 0);
    let second = raw(&read_batch(&mut *factory.open(place(1, 2), &[]).unwrap()).unwrap());
    assert_eq!(second, ["b.txt.zst 1", "b.txt.zst 2", "d.txt 1", "d.txt 2"]);
    assert_eq!(factory.open(place(5, 6), &[]).unwrap().open_splits(), 0);
}

#[test]
fn what_is_not_there_or_not_readable_is_the_users_to_mend() {
    let folder = Folder::new();
    fs::create_dir(folder.dir.path().join("folder")).unwrap();
    fs::write(folder.dir.path().join("bad.gz"), b"not gzip").unwrap();
    fs::write(folder.dir.path().join("cut.gz"), &gzip(&[7; 10_000])[..20]).unwrap();
    for (path, message) in [
        ("no.csv", "path `no.csv`: no such file"),
        ("folder", "no such file"),
        ("bad.gz", "bad.gz: the compressed data are damaged"),
        ("cut.gz", "cut.gz: the compressed data are damaged or cut short"),
    ] {
        let fault = folder.fault(&format!("path = \"{path}\"\nformat = \"raw\""));
        assert_eq!(fault.kind, FaultKind::User, "{fault}");
        assert!(fault.message.contains(message), "{fault}");
    }
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let folder = Folder::new();
    let cases = [
        ("raw", "fields = [\"a\"]", "fields does not go with format = \"raw\""),
        ("json", "delimiter = \";\"", "delimiter does not go with format = \"json\""),
        ("json", "record = \"array\"", "record = \"array\" needs fields"),
        ("json", "fields = []", "fields is empty"),
        ("json", "fields = [\"a\", \"a\"]", "fields names `a` twice"),
        ("json", "fields = [\"a\"]\ntypes = { b = \"i64\" }", "types names `b`, which is not among fields"),
        ("json", "time = { field = \"t\", format = \"%H\" }", "time.format `%H` does not give a time"),
        ("csv", "header = false", "header = false needs columns"),
        ("csv", "columns = [\"a\"]", "set header = false"),
        ("csv", "delimiter = \"é\"", "delimiter is `é`"),
        ("csv", "header = false\ncolumns = [\"a\"]\nfields = [\"b\"]", "there is no column `b`"),
        ("raw", "max-record = \"2GiB\"", "max-record is 2GiB"),
    ];
    for (format, settings, message) in cases {
        let error = folder.try_factory(&format!("path = \"x\"\nformat = \"{format}\"\n{settings}")).err().unwrap();
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[test]
fn a_reader_restored_at_any_position_reads_the_rest() {
    let folder = Folder::new();
    let mut text = String::from("\u{feff}id,text\n");
    for id in 0..40 {
        text.push_str(&format!("{id},\"{}\"\n{id},plain\r\n\n", "quoted\n".repeat(id % 3)));
    }
    for name in ["a.csv", "b.csv.gz", "c.csv.zst"] {
        folder.write(name, text.as_bytes());
    }
    let settings = "path = \"*.csv*\"\nformat = \"csv\"";
    let whole = folder.read(settings);
    assert_eq!(whole.len(), 240);
    let mut reader = folder.open(settings, &[]).unwrap();
    let mut batch = RecordBatch::default();
    loop {
        // Stored and read back, as a checkpoint does.
        let positions =
            serde_json::from_str::<Vec<SplitPosition>>(&serde_json::to_string(&reader.positions()).unwrap());
        let rest = read_all(&mut *folder.open(settings, &positions.unwrap()).unwrap()).unwrap();
        assert_eq!(rest, whole[batch.len()..], "after {} records", batch.len());
        if reader.read(&mut batch, 1, Timestamp::MIN).unwrap() == ReadOutcome::End {
            break;
        }
    }
    assert_eq!(batch.len(), 240);
}

#[test]
fn a_file_shorter_than_its_position_is_refused() {
    let folder = Folder::new();
    for name in ["a.txt", "a.txt.gz"] {
        folder.write(name, b"one\ntwo\nthree\n");
        let settings = format!("path = \"{name}\"\nformat = \"raw\"");
        let mut reader = folder.open(&settings, &[]).unwrap();
        reader.read(&mut RecordBatch::default(), 2, Timestamp::MIN).unwrap();
        let positions = reader.positions();
        folder.write(name, b"one\n");
        let fault = folder.open(&settings, &positions).err().unwrap();
        assert_eq!(fault.kind, FaultKind::Refused);
        assert!(fault.message.contains(&format!("{name}: has 4 bytes, and 8 were read before")), "{fault}");
        fs::remove_file(folder.dir.path().join(name)).unwrap();
        folder.write("other.txt", b"");
        let gone = folder.open("path = \"*.txt\"\nformat = \"raw\"", &positions).err().unwrap();
        assert_eq!(gone.kind, FaultKind::Refused);
        assert!(gone.message.contains(name), "{gone}");
    }
}

#[test]
fn a_file_that_was_read_to_its_end_may_go_and_is_not_read_again() {
    let folder = Folder::new();
    folder.write("a.txt", b"one\n");
    folder.write("b.txt", b"two\n");
    let settings = "path = \"*.txt\"\nformat = \"raw\"";
    let mut reader = folder.open(settings, &[]).unwrap();
    read_batch(&mut *reader).unwrap();
    fs::remove_file(folder.dir.path().join("a.txt")).unwrap();
    let without = folder.open(settings, &reader.positions()).unwrap();
    folder.write("a.txt", b"one\n");
    let mut again = folder.open(settings, &without.positions()).unwrap();
    assert!(read_batch(&mut *again).unwrap().is_empty());
}

#[test]
fn a_followed_file_gives_whole_lines_as_they_are_written() {
    let folder = Folder::new();
    folder.write("a.txt", b"a1\na");
    folder.write("b.txt", b"");
    let settings = "path = \"*.txt\"\nformat = \"raw\"\nfollow = true";
    let mut reader = folder.open(settings, &[]).unwrap();
    assert_eq!(reader.open_splits(), 2);
    assert_eq!(raw(&read_batch(&mut *reader).unwrap()), ["a1"]);
    folder.append("b.txt", b"b1\nb2\n");
    folder.append("a.txt", b"2\n");
    let mut read = raw(&read_batch(&mut *reader).unwrap());
    read.sort();
    assert_eq!(read, ["a2", "b1", "b2"]);
    let positions = reader.positions();
    folder.append("a.txt", b"a3\n");
    let mut restored = folder.open(settings, &positions).unwrap();
    assert_eq!(raw(&read_batch(&mut *restored).unwrap()), ["a3"]);
}

#[test]
fn a_position_within_the_header_is_none() {
    let folder = Folder::new();
    folder.write("a.csv", b"\xef\xbb\xbfid,na");
    let settings = "path = \"a.csv\"\nformat = \"csv\"\nfollow = true";
    let mut reader = folder.open(settings, &[]).unwrap();
    assert!(read_batch(&mut *reader).unwrap().is_empty());
    assert_eq!(reader.positions()[0].position["offset"], 3);
    folder.append("a.csv", b"me\n1,a\n");
    let mut restored = folder.open(settings, &reader.positions()).unwrap();
    assert_eq!(read_all(&mut *restored).unwrap(), [r#"{"id":"1","name":"a"}"#]);
}

#[test]
fn standard_input_is_not_read_again() {
    let folder = Folder::new();
    let settings = "path = \"-\"\nformat = \"raw\"";
    let position = |offset: u64, ended: bool| {
        let position = Position { offset, line: 1, ended, replayable: false };
        [SplitPosition { split: "-".to_owned(), position: serde_json::to_value(position).unwrap() }]
    };
    let fault = folder.open(settings, &position(5, false)).err().unwrap();
    assert_eq!(fault.kind, FaultKind::Refused);
    assert!(fault.message.contains("standard input cannot be read again"), "{fault}");
    // It had ended before: there is nothing to read again.
    let mut ended = folder.open(settings, &position(5, true)).unwrap();
    assert!(read_batch(&mut *ended).unwrap().is_empty());
}

#[test]
fn a_followed_file_that_is_cut_or_replaced_fails_the_job() {
    let settings = "path = \"a.txt\"\nformat = \"raw\"\nfollow = true";
    type Change = fn(&Folder);
    let changes: [(Change, &str); 3] = [
        (|folder| folder.write("a.txt", b"o"), "a.txt: has 1 bytes, and 4 were read before"),
        (|folder| fs::remove_file(folder.dir.path().join("a.txt")).unwrap(), "a.txt: was replaced or removed"),
        (
            |folder| {
                folder.write("new", b"another\n");
                fs::rename(folder.dir.path().join("new"), folder.dir.path().join("a.txt")).unwrap();
            },
            "a.txt: was replaced or removed",
        ),
    ];
    for (change, message) in changes {
        let folder = Folder::new();
        folder.write("a.txt", b"one\n");
        let mut reader = folder.open(settings, &[]).unwrap();
        read_batch(&mut *reader).unwrap();
        change(&folder);
        let fault = read_batch(&mut *reader).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Refused);
        assert!(fault.message.contains(message), "{fault}");
    }
    let folder = Folder::new();
    folder.write("a.gz", b"");
    assert!(folder.fault("path = \"a.gz\"\nformat = \"raw\"\nfollow = true").message.contains("cannot be followed"));
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<u64>().prop_map(Into::into),
        any::<f64>().prop_filter("JSON has no other", |number| number.is_finite()).prop_map(Into::into),
        "\\PC{0,30}".prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 40, 30, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..30).prop_map(Into::into),
            proptest::collection::hash_map("\\PC{0,5}", inner, 0..30)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Every map in a CBOR value is sorted by its encoded keys.
fn assert_sorted(value: &[u8]) {
    let mut walk = crate::format::cbor::Walk::new(value);
    let head = walk.head().unwrap();
    let mut left = head.argument;
    match head.major {
        crate::format::cbor::ARRAY => {
            while walk.goes_on(&mut left).unwrap() {
                assert_sorted(walk.rest());
                walk.skip().unwrap();
            }
        }
        crate::format::cbor::MAP => {
            let mut before: &[u8] = &[];
            while walk.goes_on(&mut left).unwrap() {
                let rest = walk.rest();
                walk.skip().unwrap();
                let key = &rest[..rest.len() - walk.rest().len()];
                assert!(before < key, "{} {}", before.escape_ascii(), key.escape_ascii());
                before = key;
                assert_sorted(walk.rest());
                walk.skip().unwrap();
            }
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn json_comes_back_as_it_was(
        objects in proptest::collection::vec(proptest::collection::hash_map("\\PC{0,8}", any_json(), 0..30), 1..5)
    ) {
        let folder = Folder::new();
        let objects: Vec<serde_json::Value> =
            objects.into_iter().map(|map| serde_json::Value::Object(map.into_iter().collect())).collect();
        let lines: Vec<String> = objects.iter().map(ToString::to_string).collect();
        folder.write("a.json", lines.join("\n").as_bytes());
        let batch = read_batch(&mut *folder.open("path = \"a.json\"\nformat = \"json\"", &[]).unwrap()).unwrap();
        prop_assert_eq!(batch.len(), objects.len());
        for (value, object) in batch.values.iter().zip(&objects) {
            assert_sorted(value.unwrap());
            let back: serde_json::Value = serde_json::from_str(&json(value.unwrap())).unwrap();
            prop_assert_eq!(&back, object);
        }
    }

    #[test]
    fn csv_comes_back_as_it_was(
        rows in proptest::collection::vec(proptest::collection::vec("[a-z,\"\n\r ]{0,6}", 3), 0..8), crlf: bool, last: bool
    ) {
        let folder = Folder::new();
        let end = if crlf { "\r\n" } else { "\n" };
        let mut text = format!("a,b,c{end}");
        for row in &rows {
            let cells: Vec<String> = row.iter().map(|cell| {
                let bare = !cell.contains([',', '"', '\n', '\r']);
                if bare { cell.clone() } else { format!("\"{}\"", cell.replace('"', "\"\"")) }
            }).collect();
            text.push_str(&cells.join(","));
            text.push_str(end);
        }
        if last {
            text.truncate(text.len() - end.len());
        }
        folder.write("a.csv", text.as_bytes());
        let batch = read_batch(&mut *folder.open("path = \"a.csv\"\nformat = \"csv\"", &[]).unwrap()).unwrap();
        let back: Vec<serde_json::Value> =
            batch.values.iter().map(|value| serde_json::from_str(&json(value.unwrap())).unwrap()).collect();
        let expected: Vec<serde_json::Value> =
            rows.iter().map(|row| serde_json::json!({"a": row[0], "b": row[1], "c": row[2]})).collect();
        prop_assert_eq!(back, expected);
    }

    #[test]
    fn no_line_panics(content in proptest::collection::vec(any::<u8>(), 0..300)) {
        let folder = Folder::new();
        folder.write("a", &content);
        for format in ["csv", "json", "raw"] {
            if let Ok(mut reader) =
                folder.open(&format!("path = \"a\"\nformat = \"{format}\"\non-undecodable = \"drop\""), &[])
            {
                let _ = read_batch(&mut *reader);
            }
        }
    }
}

fn said(batch: &RecordBatch) -> Vec<(u32, i64)> {
    batch.marks.iter().map(|mark| (mark.after, mark.watermark.as_millis())).collect()
}

#[test]
fn a_record_says_its_splits_watermark_in_a_field_that_is_kept_or_not() {
    let folder = Folder::new();
    folder.write("a.csv", b"t,w\n5,1970-01-01\n6,\n7,NA\n8,1970-01-02\n");
    let csv =
        "path = \"a.csv\"\nformat = \"csv\"\nnull = [\"NA\"]\nwatermark = { field = \"w\", format = \"%Y-%m-%d\" }";
    for fields in ["", "\nfields = [\"t\"]"] {
        let batch = read_batch(&mut *folder.open(&format!("{csv}{fields}"), &[]).unwrap()).unwrap();
        assert_eq!((batch.len(), said(&batch)), (4, vec![(1, 0), (4, 86_400_000)]));
    }
    folder.write("a.json", b"{\"t\":5,\"w\":-7}\n{\"t\":6}\n{\"t\":7,\"w\":null}\n{\"w\":9,\"t\":8}\n");
    let json = "path = \"a.json\"\nformat = \"json\"\nwatermark = { field = \"w\", format = \"unix-ms\" }\n\
                time = { field = \"t\", format = \"unix-ms\" }";
    for fields in ["", "\nfields = [\"t\"]", "\nfields = [\"w\", \"t\"]\non-undecodable = \"drop\""] {
        let batch = read_batch(&mut *folder.open(&format!("{json}{fields}"), &[]).unwrap()).unwrap();
        let expected = if fields.contains("\"w\"") { vec![(1, -7), (3, 9)] } else { vec![(1, -7), (4, 9)] };
        assert_eq!(said(&batch), expected, "{fields}");
    }
}

#[test]
fn a_watermark_that_cannot_be_read_is_named_with_its_field() {
    let folder = Folder::new();
    folder.write("a.csv", b"t,w\n5,soon\n");
    folder.write("a.json", b"{\"t\":5,\"w\":\"soon\"}\n");
    for (format, more) in [("csv", ""), ("json", ""), ("json", "\nfields = [\"t\"]")] {
        let settings = format!(
            "path = \"a.{format}\"\nformat = \"{format}\"{more}\nwatermark = {{ field = \"w\", format = \"unix-ms\" }}"
        );
        let message = folder.fault(&settings).message;
        assert!(message.contains("the time field `w` is") && message.contains("soon"), "{message}");
    }
    let no_column = "path = \"a.csv\"\nformat = \"csv\"\nwatermark = { field = \"wm\", format = \"unix-ms\" }";
    assert!(folder.fault(no_column).message.contains("`wm`"));
    let raw = "path = \"a.csv\"\nformat = \"raw\"\nwatermark = { field = \"w\", format = \"unix-ms\" }";
    assert!(matches!(folder.try_factory(raw), Err(Error::Setting { setting: "watermark.field", .. })));
    let zone = "path = \"a.csv\"\nformat = \"csv\"\nwatermark = { field = \"w\", format = \"%Y\", zone = \"Mars\" }";
    assert!(folder.try_factory(zone).is_err());
}

#[test]
fn a_split_that_is_held_is_passed_over_and_a_silent_one_is_told() {
    let folder = Folder::new();
    folder.write("a.txt", b"a1\n");
    folder.write("b.txt", b"b1\n");
    let mut reader = folder.open("path = \"*.txt\"\nformat = \"raw\"\nfollow = true", &[]).unwrap();
    reader.hold(&[true, false]);
    assert_eq!(raw(&read_batch(&mut *reader).unwrap()), ["b1"]);
    assert_eq!([0, 1].map(|split| reader.is_waiting(split)), [false, true]);
    reader.hold(&[false, true]);
    folder.append("b.txt", b"b2\n");
    assert_eq!(raw(&read_batch(&mut *reader).unwrap()), ["a1"]);
    assert_eq!([0, 1].map(|split| reader.is_waiting(split)), [true, true]);
    reader.hold(&[false, false]);
    assert_eq!(raw(&read_batch(&mut *reader).unwrap()), ["b2"]);
}
