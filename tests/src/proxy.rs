//! What goes wrong between a client and a store: an HTTP proxy that does to each request what a test says.
//!
//! Owns faults on the way: refusals, delay, lost replies, bodies cut short or damaged. Does not own the store. A connection
//! carries one request, so that a fault hits one.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// The store never sees it; this status is the answer.
    Status(u16),
    /// It waits so long, then goes on.
    Delay(Duration),
    /// It has its effect, and the reply is lost.
    LoseReply,
    /// The reply's body ends after three quarters, though its head promises all.
    Cut,
    /// The reply's last bit is flipped.
    Flip,
}

/// A request that came.
#[derive(Debug, Clone)]
pub struct Request {
    /// Such as `PUT`.
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// When it came.
    pub at: Instant,
    /// How many came before it.
    pub number: usize,
}

type Rule = Box<dyn Fn(&Request) -> Fault + Send>;

/// The proxy; gone when dropped.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    store: SocketAddr,
    rule: Mutex<Rule>,
    requests: Mutex<Vec<Request>>,
    over: AtomicBool,
}

impl Proxy {
    /// In front of `store`, without a fault.
    ///
    /// # Panics
    /// Where no port is free.
    #[must_use]
    pub fn to(store: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let address = listener.local_addr().expect("a listener has an address");
        let shared = Arc::new(Shared {
            store,
            rule: Mutex::new(Box::new(|_| Fault::None)),
            requests: Mutex::default(),
            over: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        run(move || {
            for client in listener.incoming() {
                if serving.over.load(Ordering::Relaxed) {
                    return;
                }
                if let Ok(client) = client {
                    let shared = Arc::clone(&serving);
                    // A client that goes away is its own business.
                    run(move || drop(shared.serve(client)));
                }
            }
        });
        Self { address, shared }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on each request has the fault that `rule` says.
    pub fn rule(&self, rule: impl Fn(&Request) -> Fault + Send + 'static) {
        *self.shared.rule.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(rule);
    }

    /// The requests that came so far.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        // The listener looks up at the next connection.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn serve(&self, mut client: TcpStream) -> io::Result<()> {
        let (head, mut body) = read_head(&mut client)?;
        let mut words = head.lines().next().unwrap_or_default().split(' ').map(str::to_owned);
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let length = header(&head, "content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
        let have = body.len();
        body.resize(have.max(length), 0);
        client.read_exact(&mut body[have..])?;
        let request = {
            let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
            let request = Request { method, path, at: now(), number: requests.len() };
            requests.push(request.clone());
            request
        };
        let fault = (self.rule.lock().unwrap_or_else(PoisonError::into_inner))(&request);
        match fault {
            Fault::Status(status) => {
                let answer = format!("HTTP/1.1 {status} Fault\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                client.write_all(answer.as_bytes())?;
                return client.shutdown(Shutdown::Write);
            }
            Fault::Delay(time) => pause(time),
            _ => {}
        }
        let mut answer = self.ask(&head, &body)?;
        let at = answer.windows(4).position(|end| end == b"\r\n\r\n").map_or(answer.len(), |at| at + 4);
        match fault {
            Fault::LoseReply => return client.shutdown(Shutdown::Both),
            Fault::Cut => answer.truncate(at + (answer.len() - at) * 3 / 4),
            Fault::Flip if answer.len() > at => *answer.last_mut().expect("it has a body") ^= 1,
            _ => {}
        }
        client.write_all(&answer)?;
        client.shutdown(Shutdown::Write)
    }

    /// The store's whole answer.
    fn ask(&self, head: &str, body: &[u8]) -> io::Result<Vec<u8>> {
        let mut store = TcpStream::connect(self.store)?;
        let lines = head.trim_end().lines().filter(|line| !line.to_ascii_lowercase().starts_with("connection:"));
        let head = lines.collect::<Vec<_>>().join("\r\n");
        store.write_all(format!("{head}\r\nConnection: close\r\n\r\n").as_bytes())?;
        store.write_all(body)?;
        let mut answer = Vec::new();
        store.read_to_end(&mut answer)?;
        Ok(answer)
    }
}

/// The head of a request, and what came of its body with it.
fn read_head(client: &mut TcpStream) -> io::Result<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        let count = client.read(&mut buffer)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&buffer[..count]);
        if let Some(at) = bytes.windows(4).position(|end| end == b"\r\n\r\n") {
            let body = bytes.split_off(at + 4);
            return Ok((String::from_utf8_lossy(&bytes).into_owned(), body));
        }
    }
}

fn header(head: &str, name: &str) -> Option<String> {
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned())
}

#[expect(clippy::disallowed_methods, reason = "a proxy of a test: a connection that fails is seen by its client")]
fn run(serve: impl FnOnce() + Send + 'static) {
    drop(std::thread::spawn(serve));
}

#[expect(clippy::disallowed_methods, reason = "another process's requests share no clock with the test")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "the delay is the fault")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}
