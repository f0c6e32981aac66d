//! What wasmtime makes of `wit/operator.wit`.
//!
//! Owns nothing by hand. The public names are re-exported by [`super::contract`].

#![expect(missing_docs, clippy::too_many_arguments, reason = "generated; wit/operator.wit documents the shapes")]

wasmtime::component::bindgen!({
    path: "../../wit/operator.wit",
    world: "operator",
    imports: { default: trappable },
    additional_derives: [PartialEq],
});
