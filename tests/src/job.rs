//! A pipeline in a folder of its own, and the processes that run it.
//!
//! Owns the folder (gone with the [`Job`]), the command's arguments and the deadline of every wait.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::{Harness, Output};

/// How long any process may take. Far above what is usual: it only keeps a hanging test from hanging for ever.
const PATIENCE: Duration = Duration::from_secs(300);

/// The text of a pipeline file, and changes to it that must have an effect.
#[derive(Debug, Clone)]
pub struct Pipeline(String);

impl Pipeline {
    /// A pipeline by its text. Relative paths are relative to the job's folder.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The pipeline file of `examples/NAME`.
    ///
    /// # Panics
    /// Where there is none.
    #[must_use]
    pub fn of_example(name: &str) -> Self {
        let path = Harness::get().root().join("examples").join(name).join("pipeline.toml");
        Self(std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    }

    /// The same with each `old` replaced by `new`.
    ///
    /// # Panics
    /// Where `old` does not occur: then the test would not test what it says.
    #[must_use]
    pub fn with(self, old: &str, new: &str) -> Self {
        assert!(self.0.contains(old), "the pipeline has no `{old}` to replace:\n{}", self.0);
        Self(self.0.replace(old, new))
    }
}

/// A pipeline file in a folder of its own.
#[derive(Debug)]
pub struct Job {
    folder: TempDir,
    environment: Vec<(String, String)>,
}

impl Job {
    /// Writes the pipeline file into a new folder.
    ///
    /// # Panics
    /// Where the folder cannot be written.
    #[must_use]
    pub fn new(pipeline: &Pipeline) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let job = Self { folder, environment: Vec::new() };
        job.change(pipeline);
        job
    }

    /// The same with these variables in the environment of its processes.
    #[must_use]
    pub fn within(self, environment: Vec<(String, String)>) -> Self {
        Self { environment, ..self }
    }

    /// Puts another pipeline file in the place of the present one; what the job left in its folder stays.
    ///
    /// # Panics
    /// Where the folder cannot be written.
    pub fn change(&self, pipeline: &Pipeline) {
        std::fs::write(self.file(), &pipeline.0).expect("the pipeline file can be written");
    }

    /// The job's folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The pipeline file.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.folder().join("pipeline.toml")
    }

    /// `wasmill run PIPELINE ARGUMENTS` until its end.
    ///
    /// # Panics
    /// Where it does not start or does not end.
    pub fn run(&self, arguments: &[&str]) -> Finished {
        self.start(arguments).wait()
    }

    /// `wasmill run PIPELINE ARGUMENTS`, started.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn start(&self, arguments: &[&str]) -> Running {
        self.spawn(&["run"], arguments)
    }

    /// Another command on the pipeline, such as `["checkpoints", "list"]` with `["--json"]`, until its end.
    ///
    /// # Panics
    /// Where it does not start or does not end.
    pub fn command(&self, command: &[&str], arguments: &[&str]) -> Finished {
        self.spawn(command, arguments).wait()
    }

    /// What anyone can see now in the folder `path` of a file sink.
    #[must_use]
    pub fn output(&self, path: &str) -> Output {
        Output::read(&self.folder().join(path))
    }

    fn spawn(&self, command: &[&str], arguments: &[&str]) -> Running {
        let streams = tempfile::tempdir().expect("a temporary folder can be made");
        let stream = |name| File::create(streams.path().join(name)).expect("a temporary file can be made");
        let wasmill = Harness::get().wasmill();
        let child = Command::new(&wasmill)
            .args(command)
            .arg(self.file())
            .args(arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(stream("stdout"))
            .stderr(stream("stderr"))
            .spawn()
            .unwrap_or_else(|error| panic!("{} does not start: {error}", wasmill.display()));
        Running { child, streams }
    }
}

/// A process on its way; killed when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    streams: TempDir,
}

impl Running {
    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended by itself.
    ///
    /// # Panics
    /// Where the system does not say.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("the process can be asked").is_some()
    }

    /// Waits until `holds` is true or the process has ended; says whether `holds` came first.
    ///
    /// # Panics
    /// Where neither comes in time.
    pub fn wait_until(&mut self, mut holds: impl FnMut() -> bool) -> bool {
        let mut held = false;
        poll("a condition", || {
            held = holds();
            held || self.has_ended()
        });
        held
    }

    /// Waits until it has written `text` to standard error so many times or has ended; says whether it has.
    ///
    /// # Panics
    /// Where neither comes in time.
    pub fn wait_for_log(&mut self, text: &str, times: usize) -> bool {
        let mut held = false;
        poll("a line of the log", || {
            held = self.stderr().matches(text).count() >= times;
            held || self.has_ended()
        });
        held
    }

    /// Kills it as `kill -9` does and waits until it is gone; says whether it was still running.
    ///
    /// # Panics
    /// Where it cannot be killed.
    pub fn kill(mut self) -> bool {
        let ended = self.has_ended();
        if !ended {
            self.child.kill().expect("the process can be killed");
            self.child.wait().expect("a killed process ends");
        }
        !ended
    }

    /// Sends a signal by its name, such as `TERM`.
    ///
    /// # Panics
    /// Where it cannot be sent.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.id().to_string()).status();
        assert!(sent.is_ok_and(|status| status.success()), "SIG{name} cannot be sent to {}", self.id());
    }

    /// What it has written to standard error so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.stream("stderr")
    }

    /// What it has written to standard output so far.
    #[must_use]
    pub fn stdout(&self) -> String {
        self.stream("stdout")
    }

    /// Watches standard output until the process has ended. Returns the longest time in which nothing was added to it, from the
    /// first addition to the last.
    ///
    /// # Panics
    /// Where it does not end in time.
    pub fn longest_silence(&mut self) -> Duration {
        let (mut len, mut since, mut longest) = (0, now(), Duration::ZERO);
        poll("the end of the process", || {
            let ended = self.has_ended();
            let found = self.stdout().len();
            if found > len {
                let silence = now().duration_since(since);
                longest = if len > 0 { longest.max(silence) } else { longest };
                (len, since) = (found, now());
            }
            ended
        });
        longest
    }

    /// Watches standard output for so long. Returns the longest time in which nothing was added to it.
    ///
    /// # Panics
    /// Where the process ends meanwhile.
    pub fn longest_silence_for(&mut self, time: Duration) -> Duration {
        let begin = now();
        let (mut len, mut since, mut longest) = (self.stdout().len(), begin, Duration::ZERO);
        while now().duration_since(begin) < time {
            assert!(!self.has_ended(), "it has ended: {}", self.stderr());
            let found = self.stdout().len();
            longest = longest.max(now().duration_since(since));
            if found > len {
                (len, since) = (found, now());
            }
            pause();
        }
        longest
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// Where it does not end in time; its standard error is in the message.
    pub fn wait(mut self) -> Finished {
        let mut status = None;
        let deadline = deadline();
        while status.is_none() {
            assert!(now() < deadline, "no end after {PATIENCE:?}; standard error:\n{}", self.stderr());
            pause();
            status = self.child.try_wait().expect("the process can be asked");
        }
        let code = status.and_then(|status| status.code());
        Finished { code, stdout: self.stream("stdout"), stderr: self.stream("stderr") }
    }

    fn stream(&self, name: &str) -> String {
        let bytes = std::fs::read(self.streams.path().join(name)).expect("the stream was opened");
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail where the process is gone already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A figure of a process's memory in bytes, by its name in `/proc/PID/status`; nothing once the process has ended.
#[must_use]
pub fn memory_of(id: u32, name: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib << 10)
}

/// A process that has ended.
#[derive(Debug, Clone)]
pub struct Finished {
    /// Its exit code; `None`: a signal ended it.
    pub code: Option<i32>,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
}

impl Finished {
    /// The same, where it ended with `code`.
    ///
    /// # Panics
    /// With both streams, where it did not.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Self {
        let Self { stdout, stderr, .. } = &self;
        assert_eq!(self.code, Some(code), "standard output:\n{stdout}\nstandard error:\n{stderr}");
        self
    }
}

#[track_caller]
pub(crate) fn poll(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = deadline();
    while !holds() {
        assert!(now() < deadline, "{what} did not come in {PATIENCE:?}");
        pause();
    }
}

fn deadline() -> Instant {
    now() + PATIENCE
}

#[expect(clippy::disallowed_methods, reason = "a deadline over processes, which share no clock with the test")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "another process offers nothing to wait on with a deadline")]
fn pause() {
    std::thread::sleep(Duration::from_millis(2));
}
