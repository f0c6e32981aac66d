//! What end-to-end tests stand on: the built `wasmill`, the guests, a job in a folder of its own, its output.
//!
//! Owns building what is tested, starting and stopping processes within a deadline, and reading a sink's files. Does not own
//! any expectation: those stand in the tests. Everything here panics with the reason where a test cannot go on.

pub mod counts;
mod job;
pub mod lines;
mod output;
pub mod probe;
pub mod proxy;
mod server;

pub use job::{Finished, Job, Pipeline, Running, memory_of};
pub use output::Output;
pub use server::{SERVERS, Server};

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The workspace and what was built of it.
#[derive(Debug)]
pub struct Harness {
    root: PathBuf,
    target: PathBuf,
    profile: String,
}

impl Harness {
    /// The one harness of this process. The first call brings `wasmill` and the guests up to date; concurrent test processes
    /// wait for one another on cargo's own lock.
    ///
    /// # Panics
    /// Where something does not build; the compiler's words are in the message.
    pub fn get() -> &'static Self {
        static HARNESS: OnceLock<Harness> = OnceLock::new();
        HARNESS.get_or_init(|| {
            let harness = Self::locate();
            harness.build();
            harness
        })
    }

    /// The workspace's folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The command.
    #[must_use]
    pub fn wasmill(&self) -> PathBuf {
        self.target.join(&self.profile).join("wasmill")
    }

    /// Another binary of the workspace.
    #[must_use]
    pub fn binary(&self, name: &str) -> PathBuf {
        self.target.join(&self.profile).join(name)
    }

    /// A guest by its library's name, such as `per_aircraft`.
    ///
    /// # Panics
    /// Where no guest of that name was built.
    #[must_use]
    pub fn guest(&self, name: &str) -> PathBuf {
        let path = self.target.join("wasm32-unknown-unknown/release").join(format!("{name}.wasm"));
        assert!(path.exists(), "no guest {name}: {} does not exist", path.display());
        path
    }

    /// A guest in another language, by its name, such as `probe_c`; `None` where its tool could not be had, which is said on
    /// standard error.
    ///
    /// # Panics
    /// Where it was neither built nor left out.
    #[must_use]
    pub fn probe(&self, name: &str) -> Option<PathBuf> {
        static LEFT_OUT: OnceLock<String> = OnceLock::new();
        let left_out = LEFT_OUT.get_or_init(|| self.left_out("probes", "guests-skipped"));
        is_there(name, left_out).then(|| self.guest(name))
    }

    /// Whether there is an S3 server of this name; that it could not be had is said on standard error.
    pub(crate) fn has_server(&self, name: &str) -> bool {
        static LEFT_OUT: OnceLock<String> = OnceLock::new();
        is_there(name, LEFT_OUT.get_or_init(|| self.left_out("servers", "servers-skipped")))
    }

    /// What a script leaves out, as it lists it.
    fn left_out(&self, script: &str, list: &str) -> String {
        self.finish(Command::new(self.root.join("scripts").join(script)).arg("--offline"));
        let list = self.target.join(list);
        std::fs::read_to_string(&list).unwrap_or_else(|error| panic!("{}: {error}", list.display()))
    }

    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// A test binary lies in `TARGET/PROFILE/deps`.
    fn locate() -> Self {
        let binary = std::env::current_exe().expect("the test binary has a path");
        let folder = binary.ancestors().nth(2).expect("the test binary lies in the target folder");
        let profile = folder.file_name().expect("the profile's folder has a name").to_string_lossy().into_owned();
        let target = folder.parent().expect("the profile's folder lies in the target folder").to_owned();
        // Above the folder that cargo runs tests in, not where this was compiled: clones may share one target folder.
        let here = std::env::current_dir().expect("tests run in a folder");
        let root = here.ancestors().find(|folder| folder.join("Cargo.lock").exists());
        let root = root.expect("tests run in the workspace").to_owned();
        Self { root, target, profile }
    }

    /// With the Makefile's set of packages, so that cargo finds what `make build` left and compiles nothing heavy again.
    fn build(&self) {
        let mut host = Command::new(env!("CARGO"));
        host.args(["build", "--locked", "--workspace", "--lib", "--bins", "--examples"]);
        host.args(if self.profile == "debug" { &[][..] } else { &["--release"][..] });
        self.finish(&mut host);
        self.finish(&mut Command::new(self.root.join("scripts/guests")));
    }

    fn finish(&self, command: &mut Command) {
        let command = command.current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target);
        let ran = command.output().unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
        assert!(ran.status.success(), "{command:?} failed:\n{}", String::from_utf8_lossy(&ran.stderr));
    }
}

/// Whether the list of what is left out does not have `name`.
#[expect(clippy::print_stderr, reason = "what is skipped is never silent")]
fn is_there(name: &str, left_out: &str) -> bool {
    let reason = left_out.lines().find(|line| line.split_once(':').is_some_and(|(left_out, _)| left_out == name));
    reason.inspect(|reason| eprintln!("skipped: {reason}")).is_none()
}
