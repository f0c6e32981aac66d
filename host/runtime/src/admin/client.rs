//! Asks a running job's admin endpoint.
//!
//! Owns one kind of request: a GET whose answer is read to its end. Nothing more of HTTP is needed.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use wasmill_core::fault::{Fault, FaultKind};

use crate::config::Secret;
use crate::telemetry::JobStatus;

/// How long connecting and each read may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest answer that is read.
const MAX_ANSWER: u64 = 64 << 20;

/// The status that the endpoint at `address` (host and port) tells.
///
/// # Errors
/// Of kind `External` where nobody answers; of kind `User` where the token is refused.
pub fn fetch_status(address: &str, token: Option<&Secret>) -> Result<JobStatus, Fault> {
    let body = get(address, "/status", token)?;
    serde_json::from_str(&body).map_err(|error| {
        Fault::new(FaultKind::External, format!("http://{address}/status is no status of wasmill: {error}"))
    })
}

/// The text at `path` of the endpoint at `address` (host and port).
///
/// # Errors
/// As [`fetch_status`].
pub fn get(address: &str, path: &str, token: Option<&Secret>) -> Result<String, Fault> {
    let cannot = |error: std::io::Error| {
        Fault::new(FaultKind::External, format!("http://{address}{path} does not answer: {error}"))
    };
    let target = address
        .to_socket_addrs()
        .map_err(cannot)?
        .next()
        .ok_or_else(|| Fault::new(FaultKind::External, format!("`{address}` is no address")))?;
    let mut stream = TcpStream::connect_timeout(&target, PATIENCE).map_err(cannot)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(cannot)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(cannot)?;
    let authorization = token.map(|token| format!("Authorization: Bearer {}\r\n", token.reveal())).unwrap_or_default();
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n{authorization}\r\n").map_err(cannot)?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut answer).map_err(cannot)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer.as_ref(), ""));
    match head.split_whitespace().nth(1) {
        Some("200") => Ok(body.to_owned()),
        Some("401") => {
            let message =
                format!("http://{address}{path} wants another token: is the job's `admin.token` the pipeline file's?");
            Err(Fault::new(FaultKind::User, message))
        }
        code => {
            let code = code.unwrap_or("no HTTP");
            Err(Fault::new(FaultKind::External, format!("http://{address}{path} answers {code}")))
        }
    }
}
