//! Every example with an expected output gives it, however its records are cut and spread, and after a kill.
//!
//! Owns how an example's folder is laid out: `pipeline.toml`, `input/`, sinks that write to `run/NAME/`, what they must write in
//! `expected/NAME.jsonl`. With one source the order of each key's lines counts; with several it depends on how they mix.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};
use wasmill_tests::{Harness, Job, Pipeline};

/// Its table must be fetched; tests/flights.rs and tests/kill.rs run it over a sample.
const ELSEWHERE: [&str; 1] = ["flights"];
/// How long the input of a job that is killed lasts where nothing else holds it up.
const SECONDS: usize = 6;
/// How often a job is killed, and checkpoints that are decided before each kill, ten a second at most.
const KILLS: usize = 2;
const CHECKPOINTS: usize = 10;

/// An example and its pipeline as a table that a test changes.
struct Example {
    name: String,
    folder: PathBuf,
    pipeline: Table,
}

impl Example {
    /// All of them, by name.
    fn all() -> Vec<Self> {
        let folder = Harness::get().root().join("examples");
        let mut all: Vec<_> = files(&folder).into_iter().filter_map(|folder| Self::read(&folder)).collect();
        all.retain(|example| !ELSEWHERE.contains(&example.name.as_str()));
        assert!(all.len() >= 4, "only {} examples found", all.len());
        all
    }

    fn read(folder: &Path) -> Option<Self> {
        let text = fs::read_to_string(folder.join("pipeline.toml")).ok()?;
        let name = folder.file_name()?.to_string_lossy().into_owned();
        let pipeline = text.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
        Some(Self { name, folder: folder.to_owned(), pipeline })
    }

    /// The pipeline with other settings for each operator and source.
    fn with(&self, parallelism: usize, batch: usize, rate: Option<usize>) -> Pipeline {
        let mut pipeline = self.pipeline.clone();
        for operator in tables(&mut pipeline, "operator") {
            operator.insert("parallelism".to_owned(), number(parallelism));
            let batch = Table::from_iter([("records".to_owned(), number(batch))]);
            operator.insert("batch".to_owned(), Value::Table(batch));
        }
        for source in tables(&mut pipeline, "source") {
            source.extend(rate.map(|rate| ("rate".to_owned(), number(rate))));
        }
        pipeline["checkpoint"]["interval"] = Value::String("100ms".to_owned());
        Pipeline::new(pipeline.to_string())
    }

    /// A job of it in a folder of its own.
    fn job(&self, pipeline: &Pipeline) -> Job {
        let job = Job::new(pipeline);
        let input = job.folder().join("input");
        fs::create_dir(&input).expect("the job's folder can be written");
        for file in files(&self.folder.join("input")) {
            copy(&file, &input);
        }
        let components = files(&self.folder).into_iter().filter(|file| file.extension().is_some_and(|it| it == "wasm"));
        components.for_each(|file| copy(&file, job.folder()));
        job
    }

    /// The lines that each sink must write, or has written to the job's folder.
    fn expected(&self) -> BTreeMap<String, Vec<String>> {
        let files = files(&self.folder.join("expected")).into_iter();
        let expected: BTreeMap<_, _> =
            files.map(|file| (stem(&file), self.sorted(&stem(&file), lines(&file)))).collect();
        let mut sinks: Vec<_> = self.pipeline["sink"].as_table().expect("sinks").keys().cloned().collect();
        sinks.sort();
        assert!(expected.keys().eq(&sinks), "{}: of each sink the expected output stands in `expected`", self.name);
        expected
    }

    fn written(&self, job: &Job) -> BTreeMap<String, Vec<String>> {
        let sinks = self.pipeline["sink"].as_table().expect("sinks").keys();
        sinks.map(|sink| (sink.clone(), self.sorted(sink, job.output(&format!("run/{sink}")).lines))).collect()
    }

    /// Where the order between keys is free, by key; where that within a key is free too, by line.
    fn sorted(&self, sink: &str, mut lines: Vec<String>) -> Vec<String> {
        let from = self.pipeline["sink"][sink]["input"].as_str().expect("a sink takes one output");
        let operator = &self.pipeline["operator"][from.split('/').next().unwrap_or(from)];
        let key = operator["input"].get("key").and_then(Value::as_str);
        match key.filter(|_| self.pipeline["source"].as_table().is_some_and(|sources| sources.len() == 1)) {
            Some(key) => lines.sort_by_key(|line| self.field(line, key)),
            None => lines.sort(),
        }
        lines
    }

    fn field(&self, line: &str, key: &str) -> String {
        let record: serde_json::Value = serde_json::from_str(line).expect("a line is JSON");
        record.get(key).unwrap_or_else(|| panic!("{}: no `{key}` in {line}", self.name)).to_string()
    }

    /// So many records a second that the longest input lasts long enough to be killed.
    fn slow(&self) -> usize {
        let longest = files(&self.folder.join("input")).iter().map(|file| lines(file).len()).max();
        (longest.unwrap_or_default() / SECONDS).max(1)
    }
}

#[test]
fn an_example_gives_its_expected_output_at_any_batch_size_and_parallelism() {
    for example in Example::all() {
        let expected = example.expected();
        for (parallelism, batch) in [1, 2].into_iter().flat_map(|subtasks| [1, 7, 1_024].map(|batch| (subtasks, batch)))
        {
            let job = example.job(&example.with(parallelism, batch, None));
            job.run(&[]).expect_code(0);
            let written = example.written(&job);
            assert_eq!(written, expected, "{}: parallelism {parallelism}, batches of {batch}", example.name);
        }
    }
}

#[test]
fn an_example_gives_its_expected_output_after_kills() {
    for example in Example::all() {
        let job = example.job(&example.with(2, 7, Some(example.slow())));
        for _ in 0..KILLS {
            let mut running = job.start(&[]);
            let decided = running.wait_for_log("checkpoint decided", CHECKPOINTS);
            assert!(decided && running.kill(), "{}: the job ended before it was killed", example.name);
        }
        job.change(&example.with(2, 7, None));
        let ended = job.run(&[]).expect_code(0);
        assert!(ended.stderr.contains("restored="), "{}: {}", example.name, ended.stderr);
        assert_eq!(example.written(&job), example.expected(), "{}: after {KILLS} kills", example.name);
    }
}

fn tables<'t>(pipeline: &'t mut Table, kind: &str) -> impl Iterator<Item = &'t mut Table> {
    let nodes = pipeline.get_mut(kind).and_then(Value::as_table_mut).expect("the pipeline has such nodes");
    nodes.iter_mut().filter_map(|(_, node)| node.as_table_mut())
}

fn number(count: usize) -> Value {
    Value::Integer(count as i64)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    files
}

fn copy(file: &Path, folder: &Path) {
    let name = file.file_name().expect("a file has a name");
    fs::copy(file, folder.join(name)).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
}

fn stem(file: &Path) -> String {
    file.file_stem().expect("a file has a name").to_string_lossy().into_owned()
}

fn lines(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    text.lines().map(str::to_owned).collect()
}
