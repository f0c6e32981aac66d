//! One operator's subtask that is driven by hand: records in, emits out, and the time that the subtask itself took.
//!
//! Owns the surroundings of the subtask. Does not own what is measured. Making records and taking what was emitted are not in the
//! time.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::sync::mpsc;
use wasmill_core::contract::OperatorContract;
use wasmill_core::graph::NodeKind;
use wasmill_core::id::{Attempt, CheckpointId, OperatorUid, Parallelism, SubtaskId, SubtaskIndex};
use wasmill_core::key_group::{KeyGroupRange, MaxParallelism};
use wasmill_core::time::Timestamp;
use wasmill_runtime::clock::SharedClock;
use wasmill_runtime::config::operator::OnFailure;
use wasmill_runtime::control::Mailbox;
use wasmill_runtime::exchange::channel::{Receiver, Sender, channel};
use wasmill_runtime::exchange::gate::{Gate, InputChannel, OnLate};
use wasmill_runtime::exchange::route::{OutEdge, Outputs, Routing};
use wasmill_runtime::guest::{GuestFactory, InstanceOptions, Limits, SharedState};
use wasmill_runtime::state::{KeyedState, Options, Restore, SharedMemory, StateBackend, StateSpec};
use wasmill_runtime::subtask::operator::{self, Cut, Instances, OperatorSubtask, Snapshots};
use wasmill_runtime::subtask::{CallState, Context};
use wasmill_runtime::telemetry::SubtaskMeter;

/// Records of a batch.
pub const BATCH: usize = 1024;

/// A subtask and the channels at its ends.
pub struct Drive {
    subtask: OperatorSubtask,
    records: Sender,
    emitted: Receiver,
    call: Arc<Mutex<CallState>>,
    clock: SharedClock,
    _dir: TempDir,
}

impl Drive {
    /// A subtask that alone has all key groups, over empty state with a cache of `budget` bytes and as many for RocksDB; its
    /// records come by the input of that index.
    ///
    /// # Errors
    /// When the operator does not start or the state does not open.
    pub fn new(factory: Arc<dyn GuestFactory>, input: u16, budget: usize, clock: SharedClock) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let contract = factory.contract().clone();
        let state = open(&contract, dir.path(), budget, &clock)?;
        let call = Arc::new(Mutex::new(CallState::new(Some(state))));
        let instances = Instances::new(factory, instance()?, Arc::clone(&call) as SharedState, None)?;
        let id = SubtaskId { uid: OperatorUid::new("bench")?, index: SubtaskIndex(0) };
        let context = Context {
            id: id.clone(),
            mailbox: Mailbox::default(),
            reports: mpsc::unbounded_channel().0,
            clock: Arc::clone(&clock),
            meter: Arc::new(SubtaskMeter::new(id, NodeKind::Operator)),
        };
        let (records, receiver) = channel(Mailbox::default().bell().clone(), context.mailbox.bell().clone());
        let (edge, emitted) = channel(context.mailbox.bell().clone(), Mailbox::default().bell().clone());
        let gate = Gate::new(vec![InputChannel { input, on_late: OnLate::Pass, receiver }], Timestamp::MIN);
        let outputs = Outputs::new(vec![vec![OutEdge { routing: Routing::Forward, targets: vec![edge] }]]);
        let options = operator::Options {
            contract,
            key_groups: KeyGroupRange::all(MaxParallelism::DEFAULT),
            batch_records: BATCH,
            batch_bytes: 1 << 20,
            on_failure: OnFailure::Fail,
            late_outputs: 0,
            merged_late: Vec::new(),
            merged_watermark: Timestamp::MIN,
            expires_at_once: false,
            cuts: dir.path().join("cuts"),
            snapshots: Arc::new(NoSnapshots),
        };
        let subtask = OperatorSubtask::new(context, options, (gate, outputs), instances, Arc::clone(&call));
        Ok(Self { subtask, records, emitted, call, clock, _dir: dir })
    }

    /// Runs the subtask until `fill`, which sends while there is room, has nothing more to send; what it emits goes to `take`. Returns
    /// the time that the subtask took.
    ///
    /// # Errors
    /// The subtask's fault.
    pub fn run(&mut self, mut fill: impl FnMut(&Sender) -> bool, mut take: impl FnMut(&Receiver)) -> Result<Duration> {
        let mut took = Duration::ZERO;
        while fill(&self.records) {
            took += self.time(|subtask| {
                while subtask.step()? {}
                Ok(())
            })?;
            take(&self.emitted);
        }
        took += self.time(|subtask| Ok(subtask.flush()?))?;
        take(&self.emitted);
        Ok(took)
    }

    fn time(&mut self, run: impl FnOnce(&mut OperatorSubtask) -> Result<()>) -> Result<Duration> {
        let begin = self.clock.monotonic();
        run(&mut self.subtask)?;
        Ok(self.clock.monotonic().saturating_sub(begin))
    }

    /// Looks at the state.
    ///
    /// # Errors
    /// What `look` says, or where the operator has none.
    pub fn state<T>(&self, look: impl FnOnce(&mut KeyedState) -> Result<T>) -> Result<T> {
        let mut call = self.call.lock();
        look(call.keyed().ok_or_else(|| anyhow!("the operator keeps no state"))?)
    }
}

/// The component of a package, as `make guests` built it.
///
/// # Errors
/// When it was not built.
pub fn built_component(name: &str) -> Result<std::path::PathBuf> {
    let own = std::env::current_exe().context("where this program is")?;
    let target = own.parent().and_then(Path::parent).ok_or_else(|| anyhow!("no target folder"))?;
    let built = target.join(format!("wasm32-unknown-unknown/release/{name}.wasm"));
    ensure!(built.exists(), "{} is missing: run `make guests`", built.display());
    Ok(built)
}

fn open(contract: &OperatorContract, dir: &Path, budget: usize, clock: &SharedClock) -> Result<KeyedState> {
    let options = Options {
        backend: StateBackend::Rocksdb,
        dir: dir.join("state"),
        states: contract.states.iter().map(StateSpec::of).collect(),
        range: KeyGroupRange::all(MaxParallelism::DEFAULT),
        max_parallelism: MaxParallelism::DEFAULT,
        cache_bytes: budget,
        shared: SharedMemory::new(budget),
        clock: Arc::clone(clock),
        place: "bench/0".to_owned(),
    };
    Ok(KeyedState::open(options, Restore::Empty)?)
}

fn instance() -> Result<InstanceOptions> {
    Ok(InstanceOptions {
        uid: OperatorUid::new("bench")?,
        subtask: SubtaskIndex(0),
        parallelism: Parallelism::ONE,
        attempt: Attempt(1),
        config: "{}".to_owned(),
        limits: Limits::default(),
    })
}

struct NoSnapshots;

impl Snapshots for NoSnapshots {
    fn take(&self, _: Cut) {}
    fn decided(&self, _: CheckpointId) {}
    fn given_up(&self, _: CheckpointId) {}
}
