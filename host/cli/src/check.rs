//! `wasmill check`: everything about a pipeline that can be known without running it.
//!
//! Owns the order of the checks and the plan's layout.

use std::path::Path;

use serde_json::{Value, json};
use wasmill_core::fault::{Fault, FaultKind};
use wasmill_core::graph::{Edge, Exchange, Node};
use wasmill_runtime::clock::SystemClock;
use wasmill_runtime::config::Pipeline;
use wasmill_runtime::guest::Component;
use wasmill_runtime::job::{self, Prepared};

use crate::exit::Exit;
use crate::logging::Screen;
use crate::show;

/// Checks the pipeline in `file` and shows the plan.
pub fn check(file: &Path, as_json: bool, screen: &Screen) -> Result<Exit, Fault> {
    let pipeline = Pipeline::load(file)?;
    screen.mask_with(&pipeline.secrets);
    let prepared = Prepared::load(&pipeline, &SystemClock::shared())?;
    check_store(&pipeline)?;
    let text = if as_json { format!("{}\n", plan(&pipeline, &prepared)) } else { page(&pipeline, &prepared) };
    Ok(show::print(&screen.mask(&text)))
}

fn check_store(pipeline: &Pipeline) -> Result<(), Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Fault::new(FaultKind::External, format!("cannot start: {error}")))?;
    runtime.block_on(job::check_store(pipeline))
}

fn plan(pipeline: &Pipeline, prepared: &Prepared) -> Value {
    let nodes: Vec<Value> = pipeline.graph.nodes().iter().map(|node| plan_of(node, pipeline, prepared)).collect();
    json!({
        "job": pipeline.job.name,
        "max-parallelism": pipeline.job.max_parallelism,
        "store": pipeline.checkpoint.store,
        "state-dir": pipeline.state_dir.display().to_string(),
        "nodes": nodes,
    })
}

fn plan_of(node: &Node, pipeline: &Pipeline, prepared: &Prepared) -> Value {
    let mut plan = json!(node);
    if let Some(component) = prepared.components.get(&node.uid) {
        let contract = component.contract();
        plan["component"] = json!({
            "name": contract.name,
            "version": contract.version,
            "digest": component.digest(),
            "size": component.size(),
            "states": contract.states.iter().map(|state| &state.name).collect::<Vec<_>>(),
            "grants": pipeline.operator(&node.uid).map(|operator| &operator.grants),
            "denied": component.denied(),
            "unbounded": unbounded(node, pipeline, prepared),
        });
    }
    plan
}

fn page(pipeline: &Pipeline, prepared: &Prepared) -> String {
    let rows: Vec<_> = pipeline.graph.nodes().iter().map(|node| row(node, pipeline, prepared)).collect();
    let head = ["uid", "kind", "subtasks", "input", "what"];
    format!(
        "{}: job {} can run\n\n{}\ncheckpoints: {} every {}, {} kept\nstate: {}, {}\n{}",
        pipeline.file.display(),
        pipeline.job.name,
        show::table(&head, &rows),
        pipeline.checkpoint.store,
        pipeline.checkpoint.interval,
        pipeline.checkpoint.retain,
        pipeline.state_dir.display(),
        pipeline.state.memory,
        pipeline.graph.nodes().iter().map(|node| growing(node, pipeline, prepared)).collect::<String>(),
    )
}

/// The states of a node that nothing bounds, unless the pipeline gives a reason.
fn unbounded<'a>(node: &Node, pipeline: &Pipeline, prepared: &'a Prepared) -> Vec<&'a str> {
    let known = pipeline.operator(&node.uid).is_some_and(|operator| operator.unbounded.is_some());
    let component = prepared.components.get(&node.uid).filter(|_| !known);
    let states = component.into_iter().flat_map(|component| component.contract().unbounded_states());
    states.map(|state| state.name.as_str()).collect()
}

fn growing(node: &Node, pipeline: &Pipeline, prepared: &Prepared) -> String {
    let states = unbounded(node, pipeline, prepared);
    if states.is_empty() {
        return String::new();
    }
    let (uid, states) = (&node.uid, states.join(", "));
    format!(
        "unbounded: operator {uid}, state {states}: without a TTL, entries stay until the component removes them; give it one, \
         or say why that is well in [operator.{uid}], `unbounded = \"reason\"`\n"
    )
}

fn row(node: &Node, pipeline: &Pipeline, prepared: &Prepared) -> Vec<String> {
    let kind = serde_json::to_value(node.kind).unwrap_or_default();
    let inputs = pipeline.inputs(&node.uid);
    let input = node.edges.iter().zip(inputs).map(|(edge, input)| words(edge, &input.key.to_string()));
    let what = match prepared.components.get(&node.uid) {
        Some(component) => {
            let contract = component.contract();
            let states: Vec<_> = contract.states.iter().map(|state| state.name.as_str()).collect();
            let states = if states.is_empty() { String::new() } else { format!(", state {}", states.join(", ")) };
            let size = show::bytes(component.size() as u64);
            format!("{} {}, {size}{states}{}", contract.name, contract.version, imports(node, pipeline, component))
        }
        None => String::new(),
    };
    vec![
        node.uid.to_string(),
        kind.as_str().unwrap_or_default().to_owned(),
        node.parallelism.to_string(),
        input.collect::<Vec<_>>().join(", "),
        what,
    ]
}

/// What the component may use beside the contract, and how many of its imports trap.
fn imports(node: &Node, pipeline: &Pipeline, component: &Component) -> String {
    let granted = pipeline.operator(&node.uid).into_iter().flat_map(|operator| &operator.grants);
    let granted: Vec<_> = granted.map(|grant| grant.name()).collect();
    let granted = if granted.is_empty() { String::new() } else { format!(", granted {}", granted.join(", ")) };
    match component.denied().len() {
        0 => granted,
        denied => format!("{granted}, {denied} interface(s) of WASI denied"),
    }
}

fn words(edge: &Edge, key: &str) -> String {
    let output = edge.output.as_ref().map(|output| format!("/{output}")).unwrap_or_default();
    let how = match edge.exchange {
        Exchange::Key => format!("by {key}"),
        Exchange::Forward => "forward".to_owned(),
        Exchange::Broadcast => "broadcast".to_owned(),
        Exchange::Rebalance => "rebalance".to_owned(),
    };
    format!("{}{output} {how}", edge.from)
}
