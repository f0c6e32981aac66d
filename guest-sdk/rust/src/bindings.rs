//! The types and functions that wit-bindgen makes of `wit/`.
//!
//! Owns nothing by hand. On other targets than WebAssembly the types are the same and the imports cannot be called: the
//! state and the diagnostics of a native run come in from outside (see [`crate::state::StateHost`], [`crate::diagnostics`]).

wit_bindgen::generate!({
    path: "../../wit",
    world: "operator",
    pub_export_macro: true,
    default_bindings_module: "wasmill_guest::bindings",
    generate_all,
    generate_unused_types: true,
});
