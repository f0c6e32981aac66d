//! The admin endpoint: `/metrics`, `/healthz`, `/readyz`, `/status` over HTTP, and how a running job's is found.
//!
//! The sole importer of axum. Owns the paths, the token check and the file `admin.json` in the state folder. Does not own what
//! is shown.

mod client;
mod registration;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use wasmill_core::fault::{Fault, FaultKind};
use wasmill_core::id::JobId;

pub use self::client::{fetch_status, get as fetch};
pub use self::registration::Registration;
use crate::config::{Secret, Secrets};
use crate::spawn::{self, Thread};
use crate::telemetry::{Monitor, Phase, Recorder};

/// What the endpoint is started with.
pub struct Options {
    /// Where to listen; port 0 picks a free one.
    pub listen: SocketAddr,
    /// What a request for metrics or status must bring, where set.
    pub token: Option<Secret>,
    /// The job's state folder, in which the address is left for others to find.
    pub state_dir: PathBuf,
    /// The job.
    pub job: JobId,
    /// Tells the job's status.
    pub monitor: Monitor,
    /// The process's metrics.
    pub recorder: Recorder,
    /// What is masked in whatever is shown.
    pub secrets: Secrets,
}

/// The running endpoint; dropping it ends it.
pub struct Server {
    address: SocketAddr,
    state_dir: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<Thread<()>>,
}

struct Shared {
    token: Option<Secret>,
    monitor: Monitor,
    recorder: Recorder,
    secrets: Secrets,
}

impl Server {
    /// Listens, and serves on a thread of its own.
    ///
    /// # Errors
    /// An address that is taken or not this machine's, or a state folder that cannot be written.
    pub fn start(options: Options) -> Result<Self, Fault> {
        let Options { listen, token, state_dir, job, monitor, recorder, secrets } = options;
        let cannot = |error: std::io::Error| {
            let message =
                format!("the admin endpoint cannot listen on {listen}: {error}; choose another `admin.listen`");
            Fault::new(FaultKind::External, message)
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
        let listener = std::net::TcpListener::bind(listen).map_err(cannot)?;
        listener.set_nonblocking(true).map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        Registration { job, pid: std::process::id(), address }.write(&state_dir)?;

        let router = router(Arc::new(Shared { token, monitor, recorder, secrets }));
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = spawn::thread("admin", move || {
            runtime.block_on(async {
                let listener = match TcpListener::from_std(listener) {
                    Ok(listener) => listener,
                    Err(error) => return tracing::error!(%error, "the admin endpoint cannot listen"),
                };
                let serve = axum::serve(listener, router).into_future();
                tokio::select! {
                    result = serve => if let Err(error) = result {
                        tracing::error!(%error, "the admin endpoint ended");
                    },
                    _ = stopped => {}
                }
            });
        })?;
        tracing::info!(%address, "admin endpoint");
        Ok(Self { address, state_dir, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The job's state folder.
    #[must_use]
    pub fn state_dir(&self) -> &Path {
        &self.state_dir
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        Registration::remove(&self.state_dir);
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic was logged by the thread.
            let _ = thread.join();
        }
    }
}

fn router(shared: Arc<Shared>) -> Router {
    let guarded = Router::new()
        .route("/metrics", get(metrics))
        .route("/status", get(status))
        .layer(middleware::from_fn_with_state(Arc::clone(&shared), authorize));
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .merge(guarded)
        .with_state(shared)
}

async fn authorize(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let Some(token) = &shared.token else { return next.run(request).await };
    let given =
        request.headers().get(header::AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    if given.is_some_and(|given| same(given, token.reveal().as_bytes())) {
        next.run(request).await
    } else {
        let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
        (StatusCode::UNAUTHORIZED, challenge, "send the header `Authorization: Bearer TOKEN`\n").into_response()
    }
}

/// Equality in a time that tells nothing of where the first difference is.
fn same(given: &[u8], wanted: &[u8]) -> bool {
    given.len() == wanted.len() && given.iter().zip(wanted).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    match shared.monitor.phase() {
        Phase::Running => "ready\n".into_response(),
        phase => (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", phase.as_str())).into_response(),
    }
}

async fn status(State(shared): State<Arc<Shared>>) -> Response {
    let mut status = shared.monitor.status();
    status.last_failure = status.last_failure.map(|failure| shared.secrets.mask(&failure));
    Json(status).into_response()
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    let form = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (form, shared.monitor.metrics(&shared.recorder)).into_response()
}

#[cfg(test)]
mod tests;
