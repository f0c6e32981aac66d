//! S3 servers that run beside a test, on this machine.
//!
//! Owns their processes, their bucket and the environment by which `wasmill` finds them. Where they come from is
//! `scripts/servers`' business; what goes wrong on the way to them, `proxy`'s.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::Harness;
use crate::job::poll;

/// Every server there is, when nothing is left out.
pub const SERVERS: [&str; 2] = ["versitygw", "moto"];

/// The bucket that each has.
const BUCKET: &str = "bucket";

/// The key that opens them.
const KEY: (&str, &str) = ("wasmill", "a-secret-of-the-tests");

/// A server; killed when dropped.
#[derive(Debug)]
pub struct Server {
    name: &'static str,
    address: SocketAddr,
    child: Child,
    folder: TempDir,
}

impl Server {
    /// Starts the server of this name with an empty bucket; `None` where it could not be had, which is said on standard error.
    ///
    /// # Panics
    /// Where it does not answer in time.
    #[must_use]
    pub fn start(name: &'static str) -> Option<Self> {
        let harness = Harness::get();
        if !harness.has_server(name) {
            return None;
        }
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        std::fs::create_dir(folder.path().join(BUCKET)).expect("a temporary folder can be made");
        let log =
            || File::options().create(true).append(true).open(folder.path().join("log")).expect("a log can be made");
        // Whoever takes the port in between makes the server fail, and the test say so.
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let address = free.local_addr().expect("a listener has an address");
        drop(free);
        let mut command = Command::new(harness.root().join("scripts/servers"));
        command.args(["--run", name, &address.port().to_string()]).arg(folder.path());
        let command = command.env("CARGO_TARGET_DIR", harness.target()).envs(credentials());
        let child = command.stdin(Stdio::null()).stdout(log()).stderr(log()).spawn();
        let mut server = Self { name, address, child: child.expect("a script can be started"), folder };
        server.make_bucket();
        Some(server)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The folder `store` in its bucket, as a pipeline file names it.
    #[must_use]
    pub fn location(&self) -> String {
        format!("s3://{BUCKET}/store")
    }

    /// The environment in which `wasmill` finds the server, by way of `through` where that is not the server itself.
    #[must_use]
    pub fn environment(&self, through: SocketAddr) -> Vec<(String, String)> {
        let of = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let mut environment = credentials();
        environment.push(of("AWS_REGION", "us-east-1"));
        environment.push(of("AWS_ENDPOINT", &format!("http://{through}")));
        environment.push(of("AWS_ALLOW_HTTP", "true"));
        environment
    }

    /// What opens it and must never be shown.
    #[must_use]
    pub fn secret(&self) -> &'static str {
        KEY.1
    }

    /// The folder `store` in the bucket as it lies on the disk: objects are files there. Of versitygw alone.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.folder.path().join(BUCKET).join("store")
    }

    /// Uploads in parts that are open. Of versitygw alone, which keeps each in a folder.
    #[must_use]
    pub fn open_uploads(&self) -> usize {
        fn below(folder: &Path) -> usize {
            let entries: Vec<_> =
                std::fs::read_dir(folder).map(|entries| entries.flatten().collect()).unwrap_or_default();
            // A folder for each object, in it one for each upload, in it the parts.
            entries
                .iter()
                .map(|entry| {
                    std::fs::read_dir(entry.path())
                        .map_or(0, |uploads| uploads.flatten().filter(|upload| upload.path().is_dir()).count())
                })
                .sum()
        }
        below(&self.folder.path().join(BUCKET).join(".sgwtmp/multipart"))
    }

    fn make_bucket(&mut self) {
        // Of moto by a request, which needs no key; of versitygw it is the folder that was made.
        let request = format!(
            "PUT /{BUCKET} HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            self.address
        );
        poll("the server's answer", || {
            let ended = self.child.try_wait().expect("the process can be asked");
            assert!(ended.is_none(), "{} ended: {}", self.name, self.log());
            let Ok(mut stream) = TcpStream::connect(self.address) else { return false };
            let mut answer = Vec::new();
            stream.write_all(request.as_bytes()).is_ok()
                && stream.read_to_end(&mut answer).is_ok()
                && !answer.is_empty()
        });
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail where the process is gone already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn credentials() -> Vec<(String, String)> {
    [("AWS_ACCESS_KEY_ID", KEY.0), ("AWS_SECRET_ACCESS_KEY", KEY.1)]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}
