//! A pipeline made ready to run: components loaded, connectors made, ports resolved, everything checked that can be.
//!
//! Owns what `wasmill check` and every attempt share. Touches no record and no state.

use std::collections::BTreeMap;
use std::sync::Arc;

use wasmill_core::checkpoint::log::{Setting, Settings};
use wasmill_core::contract::OperatorContract;
use wasmill_core::digest::Digest;
use wasmill_core::fault::{Fault, FaultKind};
use wasmill_core::graph::{Graph, NodeKind};
use wasmill_core::id::OperatorUid;

use crate::clock::SharedClock;
use crate::config::{Grant, OperatorNode, Pipeline};
use crate::connector;
use crate::guest::{Component, Engine, EngineOptions, Grants};
use crate::sink::SinkFactory;
use crate::source::SourceFactory;

/// A pipeline made ready to run.
pub struct Prepared {
    /// The graph, in which every edge has the index of the component's input that it feeds.
    pub graph: Graph,
    /// The components by the operator's uid.
    pub components: BTreeMap<OperatorUid, Component>,
    /// What the operators declare.
    pub contracts: BTreeMap<OperatorUid, OperatorContract>,
    pub(super) sources: BTreeMap<OperatorUid, Arc<dyn SourceFactory>>,
    pub(super) sinks: BTreeMap<OperatorUid, Arc<dyn SinkFactory>>,
}

impl Prepared {
    /// Loads and checks everything.
    ///
    /// # Errors
    /// The first thing that would keep the job from running, with the uid it belongs to.
    pub fn load(pipeline: &Pipeline, clock: &SharedClock) -> Result<Self, Fault> {
        let engine = Engine::new(EngineOptions { cache_dir: Some(pipeline.state_dir.join("compiled")) })
            .map_err(|error| Fault::new(FaultKind::Internal, error))?;
        let mut components = BTreeMap::new();
        let mut contracts = BTreeMap::new();
        for operator in &pipeline.operators {
            let place = || pipeline.place(&["operator", operator.uid.as_str(), "component"]);
            let component = engine
                .load_granted(&operator.component, &grants(operator, clock))
                .map_err(|error| Fault::from(error).at(place()))?;
            contracts.insert(operator.uid.clone(), component.contract().clone());
            components.insert(operator.uid.clone(), component);
        }
        let graph = pipeline.bind(&contracts)?;
        let mut sources = BTreeMap::new();
        for source in &pipeline.sources {
            let factory = connector::source(&source.config, &source.uid, &pipeline.base, Arc::clone(clock))?;
            factory.check().map_err(|fault| fault.at(pipeline.place(&["source", source.uid.as_str()])))?;
            sources.insert(source.uid.clone(), factory);
        }
        let mut sinks = BTreeMap::new();
        for sink in &pipeline.sinks {
            let factory = connector::sink(&sink.config, &sink.uid, &pipeline.base)?;
            factory.check().map_err(|fault| fault.at(pipeline.place(&["sink", sink.uid.as_str()])))?;
            sinks.insert(sink.uid.clone(), factory);
        }
        Ok(Self { graph, components, contracts, sources, sinks })
    }

    /// What the log keeps of the pipeline.
    pub(super) fn settings(&self, pipeline: &Pipeline) -> Settings {
        let setting = |node: &wasmill_core::graph::Node| {
            let component = match node.kind {
                NodeKind::Operator => self.components.get(&node.uid).map(|component| Digest::of(component.bytes())),
                NodeKind::Source | NodeKind::Sink => None,
            };
            (node.uid.clone(), Setting { component, parallelism: node.parallelism })
        };
        pipeline.graph.nodes().iter().map(setting).collect()
    }
}

/// What an operator is given.
fn grants(operator: &OperatorNode, clock: &SharedClock) -> Grants {
    Grants {
        clock: operator.grants.contains(&Grant::Clock).then(|| Arc::clone(clock)),
        random: operator.grants.contains(&Grant::Random),
        wasi: operator.wasi,
    }
}
