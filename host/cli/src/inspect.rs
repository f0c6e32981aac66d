//! `wasmill inspect`: what a component declares.
//!
//! Owns the layout. Loads the component and asks it; runs nothing else of it.

use std::path::Path;

use serde_json::json;
use wasmill_core::contract::{OperatorContract, Port};
use wasmill_core::fault::{Fault, FaultKind};
use wasmill_runtime::clock::SystemClock;
use wasmill_runtime::guest::{Access, Component, Engine, EngineOptions, Grants, Import};

use crate::exit::Exit;
use crate::show;

/// Shows the component in `file`.
pub fn inspect(file: &Path, as_json: bool) -> Result<Exit, Fault> {
    let engine =
        Engine::new(EngineOptions { cache_dir: None }).map_err(|error| Fault::new(FaultKind::Internal, error))?;
    let component = engine.load_granted(file, &Grants::all(SystemClock::shared())).map_err(Fault::from)?;
    if as_json {
        return Ok(show::print(&format!("{}\n", as_value(file, &component))));
    }
    Ok(show::print(&page(file, &component)))
}

fn as_value(file: &Path, component: &Component) -> serde_json::Value {
    let imports: serde_json::Map<_, _> =
        component.imports().iter().map(|import| (import.interface.clone(), json!(import.functions))).collect();
    json!({
        "file": file.display().to_string(),
        "size": component.size(),
        "digest": component.digest(),
        "wit-version": component.wit_version(),
        "core-module": component.was_core_module(),
        "imports": imports,
        "grants": component.granted(),
        "denied": component.denied(),
        "exports": component.exports(),
        "contract": component.contract(),
    })
}

fn page(file: &Path, component: &Component) -> String {
    let contract = component.contract();
    let kind = if component.was_core_module() { "core module with its component type" } else { "component" };
    let mut page = format!("{}: {} {}\n", file.display(), contract.name, contract.version);
    page.push_str(&format!(
        "  {kind}, {}, contract {}, sha256 {}\n",
        show::bytes(component.size() as u64),
        component.wit_version(),
        component.digest()
    ));
    page.push_str(&format!("\nkey: {}\n", contract.key_type.as_deref().unwrap_or("bytes")));
    page.push_str(&format!("inputs: {}\n", ports(&contract.inputs)));
    page.push_str(&format!("outputs: {}\n", ports(&contract.outputs)));
    page.push_str(&config(contract));
    page.push_str(&states(contract));
    page.push_str("imports:\n");
    for import in component.imports() {
        let functions = if import.functions.is_empty() { "types".to_owned() } else { import.functions.join(", ") };
        page.push_str(&format!("  {}: {functions}{}\n", import.interface, grounds(import)));
    }
    if component.imports().is_empty() {
        page.push_str("  none\n");
    }
    page
}

fn grounds(import: &Import) -> String {
    match import.access {
        Access::Contract => String::new(),
        Access::Granted(grant) => format!(" (needs grants = [\"{}\"])", grant.name()),
        Access::Denied => " (no grant gives it: needs wasi = \"deny\", and a call traps)".to_owned(),
    }
}

fn ports(ports: &[Port]) -> String {
    if ports.is_empty() {
        return "none".to_owned();
    }
    let words = ports.iter().map(|port| {
        let broadcast = if port.broadcast { " (broadcast)" } else { "" };
        let headers = if port.headers { " (with headers)" } else { "" };
        format!("{}{broadcast}{headers}", port.name)
    });
    words.collect::<Vec<_>>().join(", ")
}

fn config(contract: &OperatorContract) -> String {
    if contract.config.is_empty() {
        return "config: none\n".to_owned();
    }
    let mut text = "config:\n".to_owned();
    for key in &contract.config {
        let required = if key.required { " (required)" } else { "" };
        text.push_str(&format!("  {}{required}: {}\n", key.name, key.doc));
    }
    text
}

fn states(OperatorContract { states, outputs, .. }: &OperatorContract) -> String {
    if states.is_empty() {
        return "states: none\n".to_owned();
    }
    let mut text = "states:\n".to_owned();
    for state in states {
        let word = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let value = serde_json::to_value(state).unwrap_or_default();
        let access = if state.lazy { ", lazy" } else { "" };
        text.push_str(&format!(
            "  {}: {}, version {}, {}{access}\n    type: {}\n",
            state.name,
            word(&value["kind"]),
            state.version,
            word(&value["codec"]),
            state.value_type
        ));
        if let Some(map_key) = &state.map_key_type {
            text.push_str(&format!("    map key: {map_key}\n"));
        }
        if let Some(ttl) = &state.ttl {
            let expired = ttl.expired_output.and_then(|output| outputs.get(usize::from(output)));
            let then = expired.map_or_else(String::new, |port| format!(", then goes to the output {}", port.name));
            text.push_str(&format!("    lives {}{then}\n", show::millis(ttl.milliseconds as f64)));
        }
        if state.is_cleaned_by_timers() {
            text.push_str("    cleaned by timers\n");
        }
    }
    text
}
